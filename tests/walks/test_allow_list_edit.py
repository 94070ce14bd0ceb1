"""A maintainer's allow-list edit, from merge request to a build that gets its machine."""

import re
from datetime import timedelta

import pytest

from tests.docs.test_documents import steady
from tests.walks.conftest import Play
from tests.walks.walking import Walk


def settled(text: str) -> str:
    """Return what is the same in each run: what a budget of a day has left depends on the hour."""
    text = re.sub(r"( *budgets\.powerful\.per_\w+) .*", r"\1 FIGURES", steady(text))
    text = re.sub(r" *\b\d+ (s|min)\b", " AGE", text)
    return re.sub(r"\(in \w+( \w+)*\)", "(in TIME)", text)


@pytest.mark.slow
def test_walk_of_a_maintainers_allow_list_edit(walk: Walk, play: Play) -> None:
    now = walk.now()
    for age, written in ((60, "07:20"), (50, "07:30"), (40, "07:40")):
        since = now - timedelta(minutes=age)
        walk.words[f"2026-11-21T{written}:00Z"] = f"{since:%Y-%m-%dT%H:%M:%SZ}"
    walk.words["2026-12-27"] = f"{now + timedelta(days=20):%Y-%m-%d}"
    (walk.project / "fleet.d").mkdir()

    play("allow-list-edit", settle=settled)

    plan = walk.json("fleet plan --json")
    (chromium,) = [s for s in plan["signatures"] if "copr/302" in s["requests"]]
    assert chromium["by_worker"] == {"copr/302": "copr-ci-powerful-0001"}
    assert plan["actions"] == []
    workers = {each["worker"]: each["state"] for each in plan["workers"]}
    assert workers == {"copr-ci-normal-0001": "idle", "copr-ci-powerful-0001": "idle"}
    assert walk.json("cat terraform.json") == {"create": 1, "update": 0, "delete": 0}

    walk.run("mkdir .old && git archive main~1 | tar -x -C .old")
    change = walk.json("fleet plan --json --base .old/fleet.yaml")["change"]
    assert [each["requests"] for each in change["requests"]] == [["copr/302"]]
    assert change["rest_before"] == change["rest_after"]
    (rule,) = change["config"]
    assert rule["path"] == ["powerful", 0]
    assert rule["after"].endswith('rejects: ["praiskup/ping/fedora-43-x86_64/chromium-headers"]}')
