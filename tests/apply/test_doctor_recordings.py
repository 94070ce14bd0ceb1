"""What `fleet doctor` says of a queue that is a recording."""

from tests.apply.test_doctor import check, of
from tests.builders import a_fleet, a_reading, a_world
from tests.builders.sentences import tells


def test_workers_of_recording_are_unchecked_without_advice() -> None:
    fleet = a_fleet(queues={"debian": {"kind": "world", "path": "world.json"}})
    world = a_world(queues={"debian": a_reading(workers=None)})

    finding = of(check(fleet, world), "queue debian, workers")

    assert (finding.result, finding.fix) == ("unchecked", "")
    assert tells(finding.said, "recording", "workers")
