"""Count the consecutive complete listings in which a machine of a stack is missing.

An unreadable listing or stack neither increases nor resets the count: unknown is not zero.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from fleet.model.facts import Absence, Listing, Machine, MachineState, Stack, Unknown, WorkerInputs
from fleet.ports import MachineCleaner, SourceReader

Stacks = Mapping[str, Stack | Unknown] | Unknown
Listings = Mapping[str, Listing | Unknown]
_Key = tuple[str, str, str]
"""Provider, name and id of a machine."""


def find_absences(
    before: Callable[[], Iterable[Absence]],
    cleaners: Mapping[str, MachineCleaner],
    sources: tuple[Stacks, Listings],
    asking: SourceReader,
    now: datetime,
) -> tuple[Absence, ...]:
    """Return the machines of stacks that a complete listing omits, with updated counts."""
    stacks, listings = sources
    if isinstance(stacks, Unknown):
        return tuple(before())
    unlisted: dict[_Key, WorkerInputs] = {}
    judged: set[_Key] = set()
    for key, inputs, listing in _list_recorded(stacks, listings):
        judged.add(key)
        if not any(key[1] == each.name or key[2] == each.id for each in listing.machines):
            unlisted[key] = inputs
    works = _check(cleaners, unlisted, asking, now)
    known = {(each.provider, each.name, each.id): each for each in before()}
    found = {key: each for key, each in known.items() if _is_undecided(key, judged, sources)}
    for key in unlisted:
        provider, name, machine_id = key
        last = known.get(key)
        found[key] = Absence(
            provider=provider,
            name=name,
            id=machine_id,
            since=min(last.since, now) if last else now,
            lists=last.lists + 1 if last else 1,
            works=works.get(key),
        )
    return tuple(found[key] for key in sorted(found))


def _list_recorded(
    stacks: Mapping[str, Stack | Unknown], listings: Listings
) -> Iterator[tuple[_Key, WorkerInputs, Listing]]:
    """Yield key, inputs and listing of each recorded machine, if its provider has a listing."""
    for _, stack in sorted(stacks.items()):
        listing = None if isinstance(stack, Unknown) else listings.get(stack.provider)
        if isinstance(stack, Unknown) or not isinstance(listing, Listing):
            continue
        for inputs in stack.workers:
            if inputs.name in stack.ids:
                yield (stack.provider, inputs.name, stack.ids[inputs.name]), inputs, listing


def _is_undecided(key: _Key, judged: set[_Key], sources: tuple[Stacks, Listings]) -> bool:
    """Return True if an unreadable listing or stack keeps an earlier absence undecided."""
    stacks, listings = sources
    if key in judged or isinstance(stacks, Unknown):
        return False
    is_listed = isinstance(listings.get(key[0]), Listing)
    return not is_listed or any(isinstance(each, Unknown) for each in stacks.values())


def _check(
    cleaners: Mapping[str, MachineCleaner],
    unlisted: Mapping[_Key, WorkerInputs],
    asking: SourceReader,
    now: datetime,
) -> dict[_Key, bool]:
    """Map machine to True if its livecheck passes; omit machines without a conclusive check."""
    by_provider: defaultdict[str, list[Machine]] = defaultdict(list)
    names: dict[tuple[str, str], _Key] = {}
    for key, inputs in unlisted.items():
        names[key[0], key[2]] = key
        by_provider[key[0]].append(_as_machine(inputs, key[2], now))
    asked = {
        name: partial(cleaner.check_unlisted, _sort_by_name(by_provider[name]))
        for name, cleaner in cleaners.items()
    }
    told = asking("the livechecks of provider", asked)
    return {
        names[provider, machine_id]: works
        for provider, answers in told.items()
        if not isinstance(answers, Unknown)
        for machine_id, works in answers.items()
    }


def _sort_by_name(machines: Sequence[Machine]) -> Sequence[Machine]:
    return sorted(machines, key=lambda each: each.name)


def _as_machine(inputs: WorkerInputs, machine_id: str, now: datetime) -> Machine:
    """Return a machine for a livecheck, from its inputs in the stack. Its state is assumed."""
    return Machine(
        name=inputs.name,
        id=machine_id,
        pool=inputs.labels.get("pool", ""),
        type=inputs.type,
        state=MachineState.RUNNING,
        created_at=now,
        image=inputs.image or None,
    )
