"""The change log: the actor, object, time and reason of each change, in a chain of digests.

An entry is stored as its original JSON text, so that its digest is stable when later versions of
fleet add fields.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import Field

from fleet.model.values import Moment, Rate, Value

KEPT = timedelta(days=100)
"""Retention of an entry. It covers the current month and at least the two before."""
_NOTED = re.compile(r"([0-9]{1,15}):([0-9a-f]{16,64})")


class Origin(Value):
    """The author of an entry, and the commit and pipeline of the run; empty if unknown."""

    by: str = Field("", description="Login at the forge, else the user of this system.")
    host: str = Field("", description="The computer, if no pipeline is known.")
    commit: str = ""
    pipeline: str = Field("", description="URL of the pipeline or workflow run.")
    job: str = Field("", description="URL of the job.")


class LogEntry(Value):
    """An entry of the log about a run, a change of a machine, or an order of an operator."""

    at: Moment
    kind: str = Field(
        pattern=r"^[a-z][a-z-]{0,31}$",
        description="Kind of the event: `run`, `create`, `freeze` ...",
    )
    origin: Origin = Origin()
    run: str = Field("", description="The run it belongs to, as `run_id` writes it.")
    plan: str = Field("", description="Digest of the plan.")
    pool: str = ""
    machine: str = ""
    reason: str = Field("", description="Reason of the plan, as `requests-wait`.")
    because: str = Field("", description="The reason as a sentence.")
    cost: Rate | None = Field(None, description="Money per hour that it adds; None: unknown.")
    outcome: str = Field("", description="`done`, `failed`, `refused`, `partly`, `killed` ...")
    details: dict[str, str] = Field(
        default_factory=dict, description="Further fields of this kind."
    )

    def written(self) -> str:
        """Return the JSON text of the entry for the log, without its time and empty fields."""
        return self.model_dump_json(exclude={"at"}, exclude_defaults=True)


def run_id(started: datetime) -> str:
    """Return the name that the log uses for a run that started at this time."""
    return started.isoformat().replace("+00:00", "Z")


class Mark(NamedTuple):
    """A position in the log: the number of an entry, counted from the first, and its digest."""

    number: int = 0
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


class Link(NamedTuple):
    """An entry of the log in its stored form."""

    number: int
    at: str
    text: str
    digest: str

    @property
    def mark(self) -> Mark:
        """Return the position of this entry in the log."""
        return Mark(self.number, self.digest)


class Chain(NamedTuple):
    """The whole log in its stored form."""

    anchor: Mark
    """Position of the last entry that was removed after its retention."""
    links: tuple[Link, ...]
    head: Mark
    """Position of the last entry that was written."""


def linked(before: Mark, entry: LogEntry) -> Link:
    """Return the entry in its stored form, with the digest that continues the chain."""
    at, text = entry.at.isoformat(), entry.written()
    return Link(before.number + 1, at, text, digest_after(before.digest, at, text))


def digest_after(before: str, at: str, text: str) -> str:
    """Return the SHA-256, in hex, of the previous digest and an entry's time and text."""
    return hashlib.sha256(f"{before}\n{at}\n{text}".encode()).hexdigest()


def count_expired(times: Sequence[datetime]) -> int:
    """Return the number of expired entries at the start of the log; `times` are in log order.

    The age of an entry is counted to the earlier of the last two entries. So a single run with a
    fast clock expires no entry.
    """
    oldest = min(times[-2:], default=None)
    if oldest is None:
        return 0
    return next((n for n, at in enumerate(times) if at >= oldest - KEPT), 0)


def read_mark(text: str) -> Mark | None:
    """Parse a log position that a user noted, NUMBER:DIGEST; None if the text is malformed."""
    found = _NOTED.fullmatch(text.strip().lower())
    return Mark(int(found[1]), found[2]) if found else None


def find_breaks(chain: Chain) -> Iterator[str]:
    """Yield a sentence for each entry that was edited, removed, moved or inserted."""
    before = chain.anchor
    for link in chain.links:
        if link.number != before.number + 1:
            yield (
                f"entries {before.number + 1} to {link.number - 1} are missing"
                if link.number > before.number + 1
                else f"entry {link.number} exists twice"
            )
        if link.digest != digest_after(before.digest, link.at, link.text):
            # After a gap, the digest of the missing entry is unknown and cannot be compared.
            if link.number == before.number + 1:
                yield f"entry {link.number} was changed, or replaces another entry"
        elif link.number != before.number + 1:
            yield f"entry {link.number} was written with another number"
        before = link.mark
    if before.number < chain.head.number:
        yield f"entries {before.number + 1} to {chain.head.number} are missing at the end"
    elif before != chain.head:
        yield f"entry {before.number} is not the last one that was written ({chain.head.number})"


def has_mark(chain: Chain, noted: Mark) -> bool | None:
    """Return whether the noted entry is unchanged; None if its retention has ended."""
    if noted.number < chain.anchor.number:
        return None
    marks = (chain.anchor, *(link.mark for link in chain.links))
    return any(
        each.number == noted.number and each.digest.startswith(noted.digest) for each in marks
    )
