"""This module turns the real engine's events into steps and its failures into short text."""

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal

from fleet.ports import Progress, Step
from fleet.store.masking import mask

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent, StepEventMetadata

Operation = Literal["create", "delete", "update", "replace"]

_OPERATIONS: dict[str, Operation] = {
    "create": "create",
    # An adopted machine is what a creation that was cut short has left.
    "import": "create",
    "delete": "delete",
    "update": "update",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "import-replacement": "replace",
    "read-replacement": "replace",
}
_CLOSING = frozenset({"", "update failed", "preview failed"})
_LINE_LIMIT = 300
# A line of its source, its own name and release, and how many errors it counts.
_OF_PLUGIN = (
    r"\b[\w./@-]+\.go:\d+: |\bsdk\.\w+: |: provider=[\w-]+@\w[\w.+-]*"
    r"|\d+ errors? occurred:\s*(\* ?)?"
)


class Events:
    """Collects one operation's events; resources of the engine itself are left out.

    Each resource counts by itself, also where one bears the name of another, or of no worker.
    Without a progress they are a preview's: it tells of outputs too, and nothing of it is done.
    """

    def __init__(self, secrets: Collection[str], progress: Progress | None = None) -> None:
        self._secrets = secrets
        self._begin(progress)

    def _begin(self, progress: Progress | None) -> None:
        self._progress = progress
        self._planned: dict[str, Step] = {}
        self._done: dict[str, Step] = {}
        self._errors: dict[str, None] = {}
        self._failed: dict[str, tuple[str, ...]] = {}
        self.is_complete = False
        """Whether the engine has said that this was all."""

    def go_on(self, progress: Progress) -> None:
        """Begin anew, for what is heard from now on is of the update after the preview."""
        self._begin(progress)

    def __call__(self, event: "EngineEvent") -> None:
        """Take one event; called from the SDK's own thread."""
        if (begun := event.resource_pre_event) and (step := _step(begun.metadata)):
            self._planned[begun.metadata.urn] = step
        progress, ended = self._progress, event.res_outputs_event
        if progress and ended and (step := _step(ended.metadata)):
            first = ended.metadata.urn not in self._done
            self._done[ended.metadata.urn] = step
            if first:
                progress(step)
        self.is_complete = self.is_complete or event.summary_event is not None
        told = event.diagnostic_event
        if told and told.severity == "error":
            line = shorten(told.message, self._secrets)
            self._errors[line] = None
            if told.urn and line not in _CLOSING:
                name = told.urn.rpartition("::")[2]
                said = [*self._failed.get(name, ()), whole(told.message, self._secrets)]
                self._failed[name] = tuple(dict.fromkeys(said))

    @property
    def planned(self) -> tuple[Step, ...]:
        """Return what was begun or would be, sorted by name."""
        return _sorted(self._planned.values())

    @property
    def done(self) -> tuple[Step, ...]:
        """Return what was ended, sorted by name."""
        return _sorted(self._done.values())

    @property
    def failed(self) -> dict[str, str]:
        """Return all that was said of each resource that failed: its code may stand anywhere."""
        done = {step.worker for step in self._done.values()}
        return {name: "; ".join(said) for name, said in self._failed.items() if name not in done}

    @property
    def errors(self) -> tuple[str, ...]:
        """Return what went wrong, without the engine's own closing line."""
        lines = tuple(line for line in self._errors if line not in _CLOSING)
        return lines or tuple(self._errors)


def _sorted(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda step: (step.worker, step.operation)))


def whole(text: str, secrets: Collection[str] = ()) -> str:
    """Return an error as one line, without secrets."""
    return re.sub(r"^error: ", "", " ".join(_plain(text, secrets).split()))


def _plain(text: str, secrets: Collection[str]) -> str:
    """Return an error without secrets, and without what only a plugin's makers need."""
    return re.sub(_OF_PLUGIN, "", mask(text, secrets))


def shorten(text: str, secrets: Collection[str] = ()) -> str:
    """Return the telling line of an error, without secrets, class names and ends of lines."""
    text = _plain(text, secrets)
    # The SDK's exceptions say `code: 1`, `stdout: …` and `stderr: …`, each on a line.
    stripped = (re.sub(r"^ *(stderr|stdout|code): *", "", line) for line in text.splitlines())
    lines = [line.strip() for line in stripped if line.strip()]
    marked = [line for line in lines if re.match(r"(error|[\w.]*(Error|Exception)):", line)]
    line = (marked or lines or [""])[-1 if marked else 0]
    line = re.sub(r"^error: ", "", line)
    return re.sub(r"^(Preview failed: )?Unexpected <class '[^']*'>: ", "", line)[:_LINE_LIMIT]


def _step(metadata: "StepEventMetadata") -> Step | None:
    operation = _OPERATIONS.get(metadata.op.value)
    kind, _, name = metadata.urn.rpartition("::")
    if operation is None or kind.rpartition("::")[2].startswith("pulumi:"):
        return None
    in_place = operation in {"update", "replace"}
    detail = ", ".join(sorted(metadata.diffs or ())) if in_place else ""
    return Step(worker=name, operation=operation, detail=detail)
