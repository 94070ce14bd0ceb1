"""What commands refuse alike: wrong words, unknown names, no store, a lock, no place to write."""

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import ONE, TWO, Trial


@pytest.mark.parametrize(
    "command",
    ["state export --out state.json", f"machine delete {TWO} --apply", "image prune"],
)
def test_command_is_refused_while_another_run_holds_the_lock(idle: Trial, command: str) -> None:
    with idle.locked():
        said = idle.told(*command.split(), code=1)

    assert tells(said, "lock", "fleet trial", "somebody else")
    assert idle.machines() == [ONE, TWO]
    assert not (idle.folder / "state.json").exists()
