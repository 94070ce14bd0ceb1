"""What commands refuse alike: wrong words, unknown names, no store, a lock, no place to write."""

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import ONE, TWO, Trial

WHY = "--for 2h --reason 'disk full'"


NAMES = {
    f"freeze --pool bilders {WHY}": "builders",
    f"hold trial-builders-0009 {WHY}": ONE,
    f"hold trial-bilders-0001 {WHY}": ONE,
    "machine list --pool bilders": ("pool bilders", "builders"),
    f"machine delete {TWO} trial-builders-002 --apply": ("machine trial-builders-002", TWO),
    "machine console trial-builders-0009": ONE,
    "image show sid": ("image sid", "trixie"),
    "image promote sid": ("image sid", "fleet.yaml", "trixie"),
    "image publish sid": ("image sid", "trixie"),
    "image build sid": ("sid", "trixie"),
    "image test sid": ("image sid", "trixie"),
    "state init --forget-stack trial-nope": ("store", "stack", "trial-nope", "trial-builders"),
    "explain bilders": "'builders'?",
    "explain pool bilders": "'builders'? known: builders",
    "explain worker nope": ("worker nope", ONE),
    "explain worker trial-bilders-0001": f"'{ONE}'? known: {ONE}",
    "tags explain --request 99": "request 99",
}


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
