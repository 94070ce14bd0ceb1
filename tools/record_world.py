"""Record examples/tutorial/world.json from the replayed answers of a real Debusine.

Run it as `python -m tools.record_world` after a change of the world's form.
"""

from datetime import UTC, datetime
from pathlib import Path

from fleet.model.facts import World
from fleet.queues.debusine.rest import DebusineRest
from fleet.schema.model import DebusineQueue
from tests.rigs.replay import PENDING, TOKEN, Replay

TARGET = Path(__file__).parent.parent / "examples/tutorial/world.json"
RECORDED_AT = datetime(2026, 11, 21, 0, 15, tzinfo=UTC)


def record_world() -> World:
    """Return the world of the example fleet: one real queue, no machines yet."""
    with Replay(*PENDING, "open-metrics-work-requests") as server:
        queue = DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])
        reading = DebusineRest(queue, TOKEN).read(RECORDED_AT)
    return World(fleet="demo", time=RECORDED_AT, queues={"debian": reading})


def world_text() -> str:
    """Return the recorded world as the text of its file."""
    return record_world().model_dump_json(indent=2, exclude_none=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(world_text(), encoding="utf-8")
    print(f"wrote {TARGET}")
