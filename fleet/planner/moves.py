"""Improve an answer in whole requests: exchange places, and do without hardly used machines.

Rounding leaves parts of existing workers unused, and most places with a last machine that has
little to do. Two requests exchange places, or one takes the place of another that goes where there
is room, if that costs less. What a last machine does often fits where there is room, for less than
the machine costs.
"""

from typing import Any

from fleet.planner.formulation import EPSILON, Answer, Model

_PASSES = 6
"""How often each place is looked at."""
_GAIN = 1e-9
"""What it has to save at least; and what floating point may be off."""


def move(model: Model, answer: Answer) -> Answer:
    """Return an answer that serves the same at no higher cost; with limits, the same one."""
    if model.rows:
        return answer
    moves = _Moves(model, answer)
    for _ in range(_PASSES):
        pairs = moves.served.nonzero()
        if not sum([moves.shift(at) + moves.exchange(at, *pairs) for at in moves.used()]):
            break
    moves.round_machines()
    for _ in range(_PASSES):
        if not sum([moves.save(place) for place in moves.made]):
            break
    return min(answer, Answer(model, moves.counts()), key=Answer.badness)


class _Moves:
    """An answer as arrays of numpy: blocks by places."""

    def __init__(self, model: Model, answer: Answer) -> None:
        import numpy as np

        self._np = np
        places = [*model.places.values()]
        self._keys = [place.key for place in places]
        self.made = [nth for nth, place in enumerate(places) if place.makes]
        """The places where machines are made, by number."""
        self._setups = [float(place.setup) for place in places]
        size = len(model.blocks), len(places)
        self._shares, self._money = np.full(size, np.inf), np.full(size, np.inf)
        self.served: Any = np.zeros(size, dtype=int)
        at = {key: nth for nth, key in enumerate(self._keys)}
        for nth, (block, counts) in enumerate(zip(model.blocks, answer.counts(), strict=True)):
            for key, (share, money) in block.fits.items():
                self._shares[nth, at[key]] = share
                self._money[nth, at[key]] = money + block.seems.get(key, 0.0)
            for key, count in counts.items():
                self.served[nth, at[key]] = count
        self._endless = np.zeros(len(places))
        self._endless[self.made] = np.inf
        parts = np.where(np.isfinite(self._shares), self._shares, 0.0)
        self._costs = self._money + parts * self._setups * np.isinf(self._endless)
        """What each costs where a machine costs by its parts."""
        own = (float(answer.machines.get(p.key, 0)) if p.makes else p.room for p in places)
        self._room: Any = np.array([*own]) + _GAIN
        for block, place in zip(*self.served.nonzero(), strict=True):
            self._room[place] -= self.served[block, place] * self._shares[block, place]

    def counts(self) -> list[dict[str, int]]:
        """Return how many requests of each block are served at each place."""
        keys = self._keys
        return [{keys[nth]: int(own[nth]) for nth in own.nonzero()[0]} for own in self.served]

    def used(self) -> list[int]:
        """Return the places where anybody is served, by number."""
        return list(self.served.any(0).nonzero()[0])

    def shift(self, place: int) -> int:
        """Move requests of a place where they cost less, and return how many."""
        blocks = self.served[:, place].nonzero()[0]
        to, dearer = self._elsewhere(blocks, place)
        moved = 0
        for nth in (dearer < -_GAIN).nonzero()[0]:
            block, other = blocks[nth], to[nth]
            share = max(self._shares[block, other], EPSILON)
            count = int(min(self.served[block, place], max(0.0, self._open()[other] / share)))
            self._move(block, place, other, count)
            moved += count
        return moved

    def exchange(self, place: int, blocks: Any, places: Any) -> int:  # noqa: ANN401 - arrays
        """Let requests of blocks at places take places of others, who go elsewhere.

        Return how many do.
        """
        np, costs, shares, room = self._np, self._costs, self._shares, self._open()
        leaving = self.served[:, place].nonzero()[0]
        comes = (costs[blocks, place] - costs[blocks, places])[:, None]
        fits = shares[blocks, place][:, None] - shares[leaving, place] <= room[place]
        back = costs[leaving][:, places].T - costs[leaving, place]
        taken = shares[blocks, places][:, None]
        back[shares[leaving][:, places].T - taken > room[places][:, None]] = np.inf
        third, dearer = self._elsewhere(leaving, place)
        gains = np.where(fits, -comes - np.minimum(back, dearer), -np.inf)
        gains[places == place] = -np.inf
        found = (gains > _GAIN).nonzero()
        moved = 0
        for nth in (-gains[found]).argsort(kind="stable"):
            one, other = found[0][nth], found[1][nth]
            to = places[one] if back[one, other] <= dearer[other] else third[other]
            moved += self._replace((blocks[one], places[one]), (leaving[other], place), to)
        return moved

    def _elsewhere(self, blocks: Any, place: int) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
        """Return where else there is room for a request, and how much dearer that is."""
        open_ = self._shares[blocks] <= self._open()
        costs = self._np.where(open_, self._costs[blocks], self._np.inf)
        costs[:, place] = self._np.inf
        return costs.argmin(1), costs.min(1) - self._costs[blocks, place]

    def _replace(self, one: tuple[int, int], other: tuple[int, int], to: int) -> bool:
        """Let one request take another's place, which goes there, if both still can; say so."""
        (block, place), (leaving, at) = one, other
        if not (self.served[one] and self.served[other]):
            return False
        self._move(leaving, at, to, 1)
        self._move(block, place, at, 1)
        if self._open()[[at, to]].min() >= 0:
            return True
        self._move(block, at, place, 1)
        self._move(leaving, to, at, 1)
        return False

    def _move(self, block: int, place: int, to: int, count: int) -> None:
        self.served[block, [place, to]] += -count, count
        self._room[[place, to]] += count * self._shares[block, [place, to]] * (1, -1)

    def _open(self) -> Any:  # noqa: ANN401 - an array of numpy
        """Return the room of each place, where machines are made as much as is wanted."""
        return self._room + self._endless

    def round_machines(self) -> None:
        """Count whole machines from now on."""
        self._room[self.made] %= 1.0

    def save(self, place: int) -> bool:
        """Do without a machine of a place if moving its work costs less, and say so."""
        np, room = self._np, self._room.copy()
        blocks = self.served[:, place].nonzero()[0]
        left, shares = self.served[blocks, place], self._shares[blocks]
        dearer = self._money[blocks] - self._money[blocks, place, None]
        room[place] = -1.0
        more = np.where(shares <= room, dearer, np.inf)
        excess, gain, moved = 1 - self._room[place], self._setups[place], []
        while excess > 0 and len(blocks):
            price = np.where(left > 0, more.min(1), np.inf)
            nth = int((price / np.minimum(shares[:, place], excess)).argmin())
            to = int(more[nth].argmin())
            gain -= price[nth]
            if not gain > _GAIN:
                break
            moved.append((blocks[nth], to))
            left[nth] -= 1
            excess -= shares[nth, place]
            room[to] -= shares[nth, to]
            more[:, to] = np.where(shares[:, to] <= room[to], dearer[:, to], np.inf)
        if excess > 0:
            return False
        for block, to in moved:
            self.served[block, [place, to]] += -1, 1
        room[place] = -excess
        self._room = room
        return True
