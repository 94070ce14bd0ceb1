"""Cache results of pure functions per Fleet, as long as the Fleet exists.

Loops and simulations call the same functions with the same Fleet in each run. A Fleet is
immutable, so that results stay valid. Only the latest result per function and name is kept, so
that the memory of a loop is limited.
"""

from collections.abc import Callable
from operator import is_
from typing import TypeVar
from weakref import finalize

from fleet.schema.model import Fleet

Answer = TypeVar("Answer")
_known: dict[int, dict[object, tuple[tuple[object, ...], object]]] = {}
"""Id of a Fleet to the inputs and result of each cached function and name."""


def remembered(
    fleet: Fleet, about: object, parts: tuple[object, ...], find: Callable[[], Answer]
) -> Answer:
    """Return the cached result; compute it again if one of `parts` is another object.

    `about` names the result. It must depend only on the fleet, on `about`, and on `parts`.
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
