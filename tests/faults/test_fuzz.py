"""Bad input of every kind: a few of each here, ten thousand of each in `nox -s fuzz`.

`FLEET_FUZZ_SEED` and `FLEET_FUZZ_COUNT` say which, and how many of each kind.
"""

import os
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from tests.faults.fuzz import KINDS, Kind, run

SLICES = 8
SEED = os.environ.get("FLEET_FUZZ_SEED", "1")


@pytest.mark.parametrize("name", KINDS)
def test_random_bad_input_is_reported(name: str, tmp_path: Path) -> None:
    feed(name, tmp_path, f"{SEED}/everyday", 12)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("name", KINDS)
def test_much_random_bad_input_is_reported(name: str, part: int, tmp_path: Path) -> None:
    count = int(os.environ.get("FLEET_FUZZ_COUNT", "10000"))
    feed(name, tmp_path, f"{SEED}/{part}", count // SLICES)


def feed(name: str, folder: Path, seed: str, count: int) -> None:
    """Give so many inputs of a kind to the program; each is known by its number under a seed."""
    kind = KINDS[name]
    found: dict[str, str] = {}
    with kind.arrange(folder) or nullcontext():
        seeds = kind.seeds()
        for number in range(count):
            random = Random(f"{name}/{seed}/{number}")  # noqa: S311 - to be repeated
            content = kind.change(random, random.choice(seeds))
            wrong = given(kind, folder, content, random)
            if wrong and wrong not in found:
                kept = folder / f"found-{number}"
                kept.write_bytes(content)
                found[wrong] = f"{kept}: {wrong}"
    assert not found, f"seed {seed}\n" + "\n".join(found.values())


def given(kind: Kind, folder: Path, content: bytes, random: Random) -> str:
    """Have the program read an input, and return what is wrong with how it ended."""
    kind.place(folder / kind.name, content)
    command = random.choice(kind.commands)
    wrong = run(folder, command)
    return f"{' '.join(command)}: {wrong}" if wrong else ""
