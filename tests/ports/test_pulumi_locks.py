"""When the owner of a stack's lock does nothing any more."""

from pathlib import Path

import pytest

from fleet.engines.pulumi_locks import is_over

NOTHING_PENDING = "Name:\tpulumi\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n"


def stat(state: str, flags: int = 0) -> list[str]:
    """Return the words of /proc/PID/stat from the state on, as far as they are looked at."""
    return [state, "1", "7", "7", "0", "-1", str(flags)]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param(stat("Z"), NOTHING_PENDING, id="a zombie"),
        pytest.param(stat("R", 0x4), NOTHING_PENDING, id="it is exiting"),
        pytest.param(
            stat("D"), NOTHING_PENDING.replace("000\nShd", "100\nShd"), id="its thread was killed"
        ),
        pytest.param(stat("S"), "ShdPnd:\t0000000000000100\n", id="it was killed"),
    ],
)
def test_what_was_killed_is_over_before_the_kernel_has_taken_it_away(
    words: list[str], status: str
) -> None:
    assert is_over(words, status)


def test_a_process_to_which_another_signal_is_on_its_way_is_not_over() -> None:
    assert not is_over(stat("S"), "ShdPnd:\t0000000000000002\n")


def test_this_process_is_not_over() -> None:
    words = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()

    assert not is_over(words, Path("/proc/self/status").read_text(encoding="utf-8"))
