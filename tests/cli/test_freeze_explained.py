"""`fleet explain` of what a freeze stops: when it ends, who set it, and when work starts."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

from tests.builders.sentences import tells
from tests.rigs.trial import Trial, fleet_yaml

POOL = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"
WHY = ("--for", "2h", "--reason", "disk full")


def answer(trial: Trial, *words: str) -> dict[str, Any]:
    said = trial.told("explain", *words, "--json")
    found: dict[str, Any] = json.loads(said[said.index("{") :])
    return found


def end_of(said: str) -> datetime:
    found = re.search(r"until (\S+ \S+) UTC", said)
    assert found is not None, said
    return datetime.fromisoformat(f"{found[1]}+00:00")


def test_frozen_request_starts_after_the_end_of_the_freeze(trial: Trial) -> None:
    trial.wait_for("1")
    end = end_of(trial.told("freeze", "--creates", *WHY))

    found = answer(trial, "request", "1")
    shown = " ".join(trial.told("explain", "request", "1").split())

    (wait,) = (each["wait"] for each in found["suggestions"] if each["wait"])
    start = datetime.fromisoformat(wait["start"])
    assert end <= start < end + timedelta(minutes=10)
    assert abs(datetime.fromisoformat(wait["until"]) - end) < timedelta(minutes=1)
    assert "expected start: unknown" not in shown
    assert tells(shown, f"{end:%Y-%m-%d %H:%M}", "disk full", "`fleet freeze --end`")


def test_request_waits_for_the_last_of_its_freezes(trial: Trial) -> None:
    trial.wait_for("1")
    trial.write(fleet_yaml(pools={"builders": POOL}))
    trial.told("freeze", "--creates", "--for", "1h", "--reason", "first")
    end = end_of(trial.told("freeze", "--pool", "builders", *WHY))

    shown = " ".join(trial.told("explain", "request", "1").split())

    assert tells(
        shown, f"{end:%Y-%m-%d %H:%M}", "disk full", "`fleet freeze --pool builders --end`"
    )


def test_request_explanation_omits_freeze_of_deletes(trial: Trial) -> None:
    trial.wait_for("1")
    trial.told("freeze", "--deletes", *WHY)

    shown = " ".join(trial.told("explain", "request", "1").split())

    assert "freeze --end" not in shown


def test_frozen_pool_names_end_author_and_reason(trial: Trial) -> None:
    trial.wait_for("1")
    end = end_of(trial.told("freeze", "--creates", *WHY))

    shown = " ".join(trial.told("explain", "pool", "builders").split())

    assert tells(shown, f"{end:%Y-%m-%d %H:%M}", "disk full", "`fleet freeze --end`")
    assert shown.count(f"{end:%Y-%m-%d %H:%M}") == 1
