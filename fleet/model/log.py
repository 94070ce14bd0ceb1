"""The log: who changed what, when and why; each entry carries the digest of the one before.

An entry is kept as the JSON text that was written, so that its digest stays what it was when later
versions of fleet add fields.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import Field

from fleet.model.plan import Rate
from fleet.model.values import Moment, Value

KEPT = timedelta(days=100)
"""How long an entry stays: the current month and at least the two whole months before it."""
_NOTED = re.compile(r"([0-9]{1,15}):([0-9a-f]{16,64})")


class Origin(Value):
    """Who writes into the log, and from which commit and pipeline; empty: unknown."""

    by: str = Field("", description="Login at the forge, else the user of this system.")
    host: str = Field("", description="The computer, where no pipeline is known.")
    commit: str = ""
    pipeline: str = Field("", description="URL of the pipeline or workflow run.")
    job: str = Field("", description="URL of the job.")


class LogEntry(Value):
    """One run, one change of a machine, or one order of a person."""

    at: Moment
    kind: str = Field(
        pattern=r"^[a-z][a-z-]{0,31}$", description="What happened: `run`, `create`, `freeze` ..."
    )
    origin: Origin = Origin()
    run: str = Field("", description="The run it belongs to, as `run_id` writes it.")
    plan: str = Field("", description="Digest of the plan.")
    pool: str = ""
    machine: str = ""
    reason: str = Field("", description="Reason of the plan, as `requests-wait`.")
    because: str = Field("", description="The reason in a sentence, or what a person gave.")
    cost: Rate | None = Field(None, description="Money per hour that it adds; None: unknown.")
    outcome: str = Field("", description="`done`, `failed`, `refused`, `partly`, `killed` ...")
    details: dict[str, str] = Field(
        default_factory=dict, description="What else belongs to this kind."
    )

    def written(self) -> str:
        """Return the JSON text that the log keeps, without its time and what is empty."""
        return self.model_dump_json(exclude={"at"}, exclude_defaults=True)


def run_id(started: datetime) -> str:
    """Return how the run that began at a moment in UTC is named in the log."""
    return started.isoformat().replace("+00:00", "Z")


class Mark(NamedTuple):
    """A place in the chain: how many entries were ever written up to it, and its digest."""

    number: int = 0
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


class Link(NamedTuple):
    """One entry as it is kept."""

    number: int
    at: str
    text: str
    digest: str

    @property
    def mark(self) -> Mark:
        """Return its place in the chain."""
        return Mark(self.number, self.digest)


class Chain(NamedTuple):
    """The whole log as it is kept."""

    anchor: Mark
    """The last entry that its retention removed."""
    links: tuple[Link, ...]
    head: Mark
    """The last entry that was written."""


def linked(before: Mark, entry: LogEntry) -> Link:
    """Return an entry as the next one after another."""
    at, text = entry.at.isoformat(), entry.written()
    return Link(before.number + 1, at, text, digest_after(before.digest, at, text))


def digest_after(before: str, at: str, text: str) -> str:
    """Return the SHA-256, in hex, of the digest before an entry, its time and its text."""
    return hashlib.sha256(f"{before}\n{at}\n{text}".encode()).hexdigest()


def count_expired(times: Sequence[datetime]) -> int:
    """Return how many of the first entries are too old to stay, the latest entry counted last.

    An entry's age counts from the earlier one of the last two entries: one run with a clock that
    is ahead removes nothing.
    """
    oldest = min(times[-2:], default=None)
    if oldest is None:
        return 0
    return next((n for n, at in enumerate(times) if at >= oldest - KEPT), 0)


def read_mark(text: str) -> Mark | None:
    """Return the place that a person noted, as NUMBER:DIGEST; None where it is none."""
    found = _NOTED.fullmatch(text.strip().lower())
    return Mark(int(found[1]), found[2]) if found else None


def find_breaks(chain: Chain) -> Iterator[str]:
    """Yield where the log is not what was written: entries edited, removed, moved or added."""
    before = chain.anchor
    for link in chain.links:
        if link.number != before.number + 1:
            yield (
                f"entries {before.number + 1} to {link.number - 1} are missing"
                if link.number > before.number + 1
                else f"entry {link.number} stands twice"
            )
        if link.digest != digest_after(before.digest, link.at, link.text):
            # Where entries are missing, the next one cannot follow from what is left.
            if link.number == before.number + 1:
                yield f"entry {link.number} was changed, or stands in another entry's place"
        elif link.number != before.number + 1:
            yield f"entry {link.number} has another number than it was written with"
        before = link.mark
    if before.number < chain.head.number:
        yield f"entries {before.number + 1} to {chain.head.number} are missing at the end"
    elif before != chain.head:
        yield f"entry {before.number} is not the last one that was written ({chain.head.number})"


def has_mark(chain: Chain, noted: Mark) -> bool | None:
    """Say whether a noted entry is still what it was; None: its retention has removed it."""
    if noted.number < chain.anchor.number:
        return None
    marks = (chain.anchor, *(link.mark for link in chain.links))
    return any(
        each.number == noted.number and each.digest.startswith(noted.digest) for each in marks
    )
