"""Cache results of pure functions per Fleet, for the lifetime of the Fleet.

Loops and simulations call the same functions with the same Fleet in each run. A Fleet is
immutable, so the results stay valid. Only the latest result per function and name is kept, which
bounds the memory of a loop.
"""

from collections.abc import Callable
from operator import is_
from typing import TypeVar
from weakref import finalize

from fleet.schema.model import Fleet

Answer = TypeVar("Answer")
_known: dict[int, dict[object, tuple[tuple[object, ...], object]]] = {}
"""Id of a Fleet to function and name to the inputs and the result."""


def remembered(
    fleet: Fleet, about: object, parts: tuple[object, ...], find: Callable[[], Answer]
) -> Answer:
    """Return the cached result about a fleet; compute it again if its inputs are other objects.

    `about` is the subject. The result depends only on the subject, and on `parts`, which are
    compared by identity.
    """
    answers = _known.get(id(fleet))
    if answers is None:
        answers = _known[id(fleet)] = {}
        finalize(fleet, _known.pop, id(fleet), None).atexit = False
    held = answers.get(about)
    if held and len(held[0]) == len(parts) and all(map(is_, held[0], parts)):
        return held[1]  # type: ignore[return-value]  # stored by the same function
    answer = find()
    answers[about] = (parts, answer)
    return answer
