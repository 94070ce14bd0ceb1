"""A written base engine: parts in a dictionary, faults on request."""

from collections.abc import Sequence

from fleet.errors import StackFailed
from fleet.model.facts import Base, SharedResource, Unknown
from fleet.ports import Progress, StackRef, StackStep


class FakeSharedStackEngine:
    """Keeps what it was told; `base` is what is recorded."""

    def __init__(self, base: Base | Unknown | None = None) -> None:
        self.base = base
        self.fails: set[str] = set()
        """Names of parts that cannot be made."""
        self.fails_to_change: set[str] = set()
        """Names of parts that exist, and stay as they are."""
        self.anew: set[str] = set()
        """Names of parts that can only be changed by making them anew."""
        self.besides: list[StackStep] = []
        """What `up` would do too, to what is no part by itself."""
        self.runs = 0

    def read(self, _: StackRef) -> Base | Unknown | None:
        """Return the base as recorded."""
        return self.base

    def preview(self, _: StackRef, parts: Sequence[SharedResource]) -> tuple[StackStep, ...]:
        """Return what `up` would do."""
        base = self._recorded()
        wanted = {part.key: part for part in parts}
        recorded = {part.key: part for part in base.parts}
        steps = [_step(key, "delete") for key in base.ids.keys() - wanted.keys()]
        steps += [_step(key, "create") for key in wanted.keys() - base.ids.keys()]
        for key in wanted.keys() & base.ids.keys():
            if wanted[key] != recorded.get(key):
                anew = wanted[key].name in self.anew
                steps.append(_step(key, "replace" if anew else "update"))
        return tuple(sorted([*steps, *self.besides], key=lambda step: step.worker))

    def up(
        self, ref: StackRef, parts: Sequence[SharedResource], progress: Progress
    ) -> tuple[StackStep, ...]:
        """Apply the changes, but for what fails."""
        self.runs += 1
        failing = self.fails | self.fails_to_change
        done = [step for step in self.preview(ref, parts) if step.worker not in failing]
        base = self._recorded()
        made = [part for part in parts if part.name not in self.fails]
        kept = {} if self.anew & {step.worker for step in done} else base.ids
        ids = {part.key: kept.get(part.key, f"id-{part.name}") for part in made}
        self.base = Base(serial=base.serial + 1, parts=tuple(parts), ids=ids, laid=not failing)
        for step in done:
            progress(step)
        if failing:
            raise StackFailed(f"{sorted(failing)} failed")
        return tuple(done)

    def _recorded(self) -> Base:
        return self.base if isinstance(self.base, Base) else Base(serial=0)


def _step(key: str, operation: str) -> StackStep:
    return StackStep.model_validate({"worker": key.partition("/")[2], "operation": operation})
