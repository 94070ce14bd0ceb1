"""Every surface says which version of an image waits, since when, why, and the command."""

from pathlib import Path

import pytest

from fleet.apply.observe import Sources
from fleet.cli.doctor import CheckupInputs, examine
from fleet.explain.case import Case
from fleet.model.images import ImageVersion
from fleet.reconcile import reconcile
from fleet.report.answers import diagnosis_blocks
from fleet.report.json import plan_to_terraform_report
from fleet.report.plan import plan_to_markdown
from fleet.report.terminal import document_to_text
from fleet.state.secrets import HostSecrets
from tests.builders import a_pool, a_sim_fleet, a_sim_world, ago
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine
from tests.fakes.source_reader import FakeSourceReader
from tests.rigs.shown import plan_to_text, status_to_text

OLD, NEW = "20261114T060000Z", "20261121T060000Z"
SAID = (f"version {NEW}", "2026-11-21 07:00 UTC")
WHY = ("images.trixie.promote", "manual")
COMMAND = (f"fleet image promote trixie {NEW}",)


def the_case(promote: str) -> Case:
    recipe = {"suite": "trixie", "architecture": "amd64", "publish": ["desk"], "promote": promote}
    pools = {"builders": a_pool(provider="desk", min=0)}
    fleet = a_sim_fleet(images={"trixie": recipe}, pools=pools)
    images = tuple(
        ImageVersion.model_validate(
            {
                "image": "trixie",
                "version": version,
                "state": state,
                "ids": {"desk": version},
                "since": ago(hours=1),
                "by_rule": True,
            }
        )
        for version, state in ((OLD, "current"), (NEW, "tested"))
    )
    world = a_sim_world(images=images)
    return Case(fleet, world, reconcile(fleet, world))


def diagnosed(case: Case) -> str:
    sources = Sources(
        asking=FakeSourceReader,
        queues={},
        providers={},
        registries={},
        engine_of=lambda _: FakeEngine(),
        store=new_store(),
    )
    found = examine(case, CheckupInputs(sources=sources, secrets=HostSecrets({}, Path())))
    return document_to_text(diagnosis_blocks(found), colour=False)


def shown(case: Case) -> dict[str, str]:
    return {
        "plan": plan_to_text(case.plan, colour=False),
        "status": status_to_text(case.plan, colour=False),
        "merge request": plan_to_markdown(case.plan),
        "doctor": diagnosed(case),
    }


@pytest.mark.parametrize("surface", ["plan", "status", "merge request", "doctor"])
def test_waiting_version_has_command(surface: str) -> None:
    text = " ".join(shown(the_case("manual"))[surface].split())
    text = text.replace("`", "").replace("\\", "")

    assert [each for each in (SAID, WHY, COMMAND) if not tells(text, *each)] == []


@pytest.mark.parametrize("surface", ["plan", "status", "merge request"])
def test_version_that_next_run_promotes_is_shown(surface: str) -> None:
    text = shown(the_case("tested"))[surface].replace("`", "")

    assert any(tells(text, *said) for said in (("promote", NEW), (NEW, "promote")))


def test_promoted_version_is_an_update_in_gitlab_report() -> None:
    assert '"update": 1' in plan_to_terraform_report(the_case("tested").plan)
    assert '"update": 0' in plan_to_terraform_report(the_case("manual").plan)
