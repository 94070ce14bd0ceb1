"""This module finds tasks under `durations` that are nearly the name of a task."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet
from fleet.tagrules.mentions import mentions

_NEAR = 0.8
_TASKS = frozenset(
    {
        "any",
        "assemblesignedsource",
        "autopkgtest",
        "blhc",
        "debdiff",
        "extractforsigning",
        "lintian",
        "makesourcepackageupload",
        "mergeuploads",
        "mmdebstrap",
        "noop",
        "piuparts",
        "sbuild",
        "simplesystemimagebuild",
    }
)
"""Tasks of Debusine's workers, and the word for every other one; a queue may have more."""
_TAG = "worker:task:worker:"


def misspelt_task(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a task that nobody has, but nearly."""
    if not fleet.durations:
        return
    import difflib

    tasks = sorted(_TASKS | set(_named(fleet)))
    for task in fleet.durations:
        close = difflib.get_close_matches(task, tasks, n=1, cutoff=_NEAR)
        if task not in tasks and close:
            yield Finding(
                "misspelt-task",
                f"no task is known that is called '{task}': nothing takes this duration",
                ("durations", task),
                severity="warning",
                at="key",
                hint=f"did you mean '{close[0]}'?",
            )


def _named(fleet: Fleet) -> Iterator[str]:
    """Yield the tasks that fleet.yaml speaks of elsewhere."""
    yield from (rule.task for rule in fleet.derive if rule.task is not None)
    for mention in mentions(fleet):
        if mention.tag.startswith(_TAG):
            yield mention.tag.removeprefix(_TAG).partition(":")[0]
