"""This module says which version of an image comes next, by `images.NAME.promote`, and when.

Only a version that is newer than all that were ever in use comes next: one that was taken back,
and what is older than it, waits for a person.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from fleet.facts.versions import ImageVersion, WaitingVersion
from fleet.schema.model import ImageRecipe
from fleet.schema.pools import Promote
from fleet.schema.units import write_duration

_USED = ("candidate", "current", "previous", "retired")


@dataclass(frozen=True)
class Standing:
    """The version of an image that comes next."""

    version: ImageVersion
    since: datetime
    becomes: Literal["candidate", "current"] | None = None
    """What it becomes now, unless it does not come up; None: it waits."""
    share: int = 0
    """Of each pool's workers in percent, as a candidate."""
    why: str = ""
    """Why it waits."""
    until: datetime | None = None
    """Until when; None where a person has to say."""

    @property
    def is_on_trial(self) -> bool:
        """Say whether it is a candidate that its boots decide about."""
        by_rule = self.becomes is not None or self.until is not None
        return self.version.state == "candidate" and by_rule

    def waiting(self, why: str = "") -> WaitingVersion:
        """Return what people are told of it while it waits."""
        name, version = self.version.image, self.version.version
        return WaitingVersion(
            image=name,
            version=version,
            state=self.version.state,
            share=self.version.share,
            since=self.since,
            until=self.until,
            because=why or self.why,
            command=f"fleet image promote {name} {version}",
        )


def find_standing(
    name: str, recipe: ImageRecipe, versions: Iterable[ImageVersion], now: datetime
) -> Standing | None:
    """Return the version that comes next; None where there is none, or fleet.yaml pins one."""
    ours = [each for each in versions if each.image == name]
    candidate = _newest(each for each in ours if each.state == "candidate")
    fresh = _newest(_fresh(recipe, ours))
    rule = recipe.promotion
    # What is on trial is not given up for what is newer: that waits for the end of it.
    wanted = (candidate or fresh) if isinstance(rule, Promote) else (fresh or candidate)
    if recipe.version is not None or wanted is None or wanted.since is None:
        return None
    if rule == "manual":
        return Standing(wanted, wanted.since, why=f"images.{name}.promote is manual")
    if not wanted.by_rule:
        why = "it was tested before fleet promoted versions by itself"
        if wanted is candidate:
            why = "no rule made it the candidate: a person did"
        return Standing(wanted, wanted.since, why=why)
    if not isinstance(rule, Promote) or not any(each.state == "current" for each in ours):
        return Standing(wanted, wanted.since, "current")
    if wanted is not candidate:
        return Standing(wanted, wanted.since, "candidate", rule.candidate)
    return _on_trial(wanted, wanted.since, rule, now)


def _on_trial(version: ImageVersion, since: datetime, rule: Promote, now: datetime) -> Standing:
    until = since + timedelta(seconds=rule.after)
    if now >= until:
        return Standing(version, since, "current")
    after = f"images.{version.image}.promote.after is {write_duration(rule.after)}"
    why = f"it becomes current at {until:%Y-%m-%d %H:%M} UTC if it comes up ({after})"
    return Standing(version, since, why=why, until=until)


def _newest(versions: Iterable[ImageVersion]) -> ImageVersion | None:
    return max(versions, key=lambda each: each.version, default=None)


def _fresh(recipe: ImageRecipe, ours: Sequence[ImageVersion]) -> Iterable[ImageVersion]:
    """Return tested versions that are published everywhere and newer than all in use."""
    reached = max((each.version for each in ours if each.state in _USED), default="")
    return (
        each
        for each in ours
        if each.state == "tested"
        and each.version > reached
        and recipe.publish
        and each.ids.keys() >= set(recipe.publish)
    )
