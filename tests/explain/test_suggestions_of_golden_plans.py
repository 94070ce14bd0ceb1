"""Every suggestion about a golden plan, written into its fleet.yaml as text, does what it says."""

from pathlib import Path

import pytest
import yaml

from fleet.apply.config import check_file
from fleet.explain.case import Case
from fleet.explain.search import Replans, edited, find_remedies
from fleet.queues.recorded import read_world
from fleet.schema.model import Fleet
from fleet.state.files import LocalFiles
from tests.builders import NOW
from tests.builders.explaining import awaited, is_served
from tests.builders.queue_worlds import planned
from tests.rigs.golden_plans import FOLDERS
from tests.rigs.pasted import paste
from tests.rigs.repeats import slow_but


def load(path: Path) -> Fleet:
    checked = check_file(str(path), NOW.date())
    assert checked.fleet is not None, checked.findings
    return checked.fleet


@pytest.mark.parametrize("folder", slow_but(FOLDERS[:2], FOLDERS), ids=lambda folder: folder.name)
def test_suggestion_for_golden_plan_serves_its_request(folder: Path, tmp_path: Path) -> None:
    fleet = load(folder / "fleet.yaml")
    world = read_world(str(folder / "world.json"), LocalFiles())
    plan = planned(fleet, world)
    for key in (key for each in plan.unserved for key in {each.requests[0], each.requests[-1]}):
        for remedy in find_remedies(Case(fleet, world, plan), key, Replans()):
            document = yaml.safe_load((folder / "fleet.yaml").read_text(encoding="utf-8"))
            for change in remedy.suggestion.changes:
                paste(document, change)
            (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
            after = load(tmp_path / "fleet.yaml")
            of_request = tuple(e for e in remedy.edits if e.path == ("request",))
            _, then = edited(fleet, world, key, of_request)
            wait = remedy.suggestion.wait
            if wait is not None:
                seen = awaited(Case(after, then, planned(after, then)), wait, Replans())
                assert seen is not None
                then = seen

            assert is_served(planned(after, then), key), remedy.suggestion.sentence
