"""tests/mutants.toml names files and functions that exist."""

import pkgutil
import tomllib

from tests.rigs.process import ROOT


def test_mutant_targets_name_existing_files() -> None:
    plan = tomllib.loads((ROOT / "tests/mutants.toml").read_text(encoding="utf-8"))

    missing = [
        path
        for target in plan["targets"].values()
        for path in (*target["modules"], *target["tests"])
        if not any(ROOT.glob(path))
    ]

    assert missing == []


def test_survivors_name_existing_functions() -> None:
    plan = tomllib.loads((ROOT / "tests/mutants.toml").read_text(encoding="utf-8"))

    for survivor in plan["survivors"]:
        assert callable(pkgutil.resolve_name(survivor["in"])), survivor["in"]
