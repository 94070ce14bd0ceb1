"""This module says which machines are gone although nobody has confirmed their deletion.

A provider in trouble may leave a machine out of a listing. Taken for gone it would run on, known
to nobody; so it has to be out of two listings, some seconds apart.
"""

from collections.abc import Callable, Mapping, Sequence

from fleet.facts import Unknown, WorkerInputs
from fleet.ports import Provider

_SECONDS_APART = 10


class Absences:
    """Looks for machines; what was surely gone once is looked for again, but not waited for."""

    def __init__(self) -> None:
        self._sure: set[tuple[str, str]] = set()

    def surely_gone(
        self,
        provider: Provider,
        going: Sequence[WorkerInputs],
        ids: Mapping[str, str],
        pause: Callable[[float], None],
    ) -> tuple[str, ...]:
        """Return those that their provider lists no more, neither at once nor a while later."""
        gone = _unlisted(provider, [each for each in going if each.name in ids], ids)
        if not self._sure.issuperset(_machines(gone, ids)):
            pause(_SECONDS_APART)
            gone = _unlisted(provider, gone, ids)
            self._sure.update(_machines(gone, ids))
        return tuple(each.name for each in gone)


def _machines(
    workers: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[tuple[str, str]]:
    return [(each.name, ids[each.name]) for each in workers]


def _unlisted(
    provider: Provider, going: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[WorkerInputs]:
    listed: set[str] = set()
    for fleet in {each.labels.get("fleet", "") for each in going}:
        listing = provider.list(fleet)
        if isinstance(listing, Unknown):
            return ()
        listed |= {text for machine in listing.machines for text in (machine.name, machine.id)}
    return [each for each in going if not listed & {each.name, ids[each.name]}]
