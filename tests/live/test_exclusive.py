"""A powerful worker is kept for powerful work by Debusine's own scheduler, not by fleet."""

from pathlib import Path

from tests.live.journal import Journal
from tests.live.project import Project
from tests.live.workspace import Workspace

POWERFUL = "worker:class:powerful"
TAGS = {POWERFUL: {"on_demand": True, "exclusive": True, "limits": {"total": 1}}}
RULES = [{"match": "debian/heavy/.*/.*", "ask": [POWERFUL], "contact": "@heavy", "reason": "big"}]
POOLS = {
    "builders": {"mode": "pause", "workers": {"max": 1}, "retire": {"idle_after": "5s"}},
    "powerful": {
        "provides": [POWERFUL],
        "requires": ["task:fleet:powerful", "task:scope:debian"],
        "workers": {"max": 1},
    },
}
UNTIL_QUIET = ("apply", "--every", "5s", "--until-quiet", "--for", "5m")


def test_scheduler_assigns_no_other_work_to_powerful_worker(
    project: Project, workspace: Workspace, journal: Journal, tmp_path: Path
) -> None:
    heavy = workspace.beside("heavy")
    project.write(name="exclusive", pools=POOLS, tags=TAGS, powerful=RULES)
    exported = project.fleet("export", "debusine", "--task", "noop")
    heavy.configure_tasks(exported, tmp_path / "owner")
    # The scheduler would rather give away what is more urgent, if it may.
    plain = [workspace.post(priority=100) for _ in range(12)]
    powerful = heavy.post()

    # All of it waits as long as there is the powerful worker.
    project.fleet(*UNTIL_QUIET)
    config = project.folder / "fleet.yaml"
    config.write_text(config.read_text().replace("mode: pause", "mode: apply"))
    project.fleet(*UNTIL_QUIET)

    assert journal.retried([*plain, powerful]) == {}
    assert journal.given_to([powerful]) == {"exclusive-powerful-0001"}
    assert journal.given_to(plain) == {"exclusive-builders-0001"}
    assert journal.order([*plain, powerful])[0] == powerful
