"""Remember what pure functions return for one fleet.yaml, for as long as that is held.

A loop, and above all a simulation, asks the same of the same fleet in each run. A Fleet never
changes, so what is known of it stays true; of each function and name the latest answer is kept,
so that no loop grows by it.
"""

from collections.abc import Callable
from operator import is_
from typing import TypeVar
from weakref import finalize

from fleet.schema.model import Fleet

Answer = TypeVar("Answer")
_known: dict[int, dict[object, tuple[tuple[object, ...], object]]] = {}
"""Fleet, as its id, to function and name, to what the answer rests on and the answer."""


def remembered(
    fleet: Fleet, about: object, parts: tuple[object, ...], find: Callable[[], Answer]
) -> Answer:
    """Return an answer about a fleet, found again where it rests on other objects than before.

    `about` says of what it is; it and `parts`, compared by identity, are all it depends on.
    """
    answers = _known.get(id(fleet))
    if answers is None:
        answers = _known[id(fleet)] = {}
        finalize(fleet, _known.pop, id(fleet), None).atexit = False
    held = answers.get(about)
    if held and len(held[0]) == len(parts) and all(map(is_, held[0], parts)):
        return held[1]  # type: ignore[return-value]  # of the same function
    answer = find()
    answers[about] = (parts, answer)
    return answer
