"""tests/mutants.toml names files that exist."""

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
