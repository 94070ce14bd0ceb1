"""Sentences about image versions, promotions and failed creations of machines."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.model.facts import Attempt
from fleet.model.images import WaitingVersion
from fleet.schema.units import write_count, write_time
from fleet.words.sentence import Sentence

UNPROMOTED_BY_PERSON = "it was made the candidate by hand"
TESTED_EARLIER = "it was tested before fleet promoted versions automatically"
NO_BOOT = "no successful boot of this image is recorded"
NO_EARLIER = "no earlier version is published"
STOPPED_BEFORE = "its machine stopped before its worker registered"
REMOVED = "removed from fleet.yaml"
MACHINES_UNKNOWN = "its machines are unknown in this run"
NO_MACHINE_TYPE = "its machine type is not in the catalogue"
NOT_READ = "not read"
HOLDS_NEXT = "the next machine that fails to boot is held, with its console"
OWN_TYPE = "own"
"""The machine type of a pool that states sizes instead of a type."""


def _write_time_to_second(moment: datetime) -> str:
    """Format a time to the second, for instance "2026-11-29 04:53:18 UTC"."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


describe_unpublished = Sentence[str, str](
    "image {image} has no published version at provider {provider}"
)
explain_unknown_versions = Sentence[str]("the versions of its image are unknown: {reason}")
explain_unpromoted = Sentence[str](
    "no version of image {image} is promoted: fleet image promote {image}"
)
explain_manual = Sentence[str]("images.{image}.promote is manual")
explain_failed = Sentence[str]("it failed: {why}")
explain_no_executor = Sentence[str, Sequence[str], str](
    "its test proved no executor, so queue {queue} gives it no work (unproven: [{unproven:comma}]"
    "[{unproven:unless}no executor is enabled]); repeat the test on a machine that can run the "
    "jobs, or add the tags to images.{image}.provides"
)
explain_other_task = Sentence[str, str, str](
    "queue {queue} requires {wanted}, and its worker has {own}"
)
explain_trial = Sentence[datetime, str, int](
    "becomes current at {until:time} if its machines boot (images.{image}.promote.after is "
    "{after:duration})"
)
describe_boot = Sentence[str, datetime]("last booted: {image} at {at:second}")
describe_pin = Sentence[str, str](
    "image {image} is pinned to version {version} (images.{image}.version)"
)
explain_pin_state = Sentence[str, str]("{pin}, which is {state}: only tested versions boot")
explain_pin_unpublished = Sentence[str, str](
    "{pin}, which is not published at provider {provider}"
)
explain_pin_unrecorded = Sentence[str, Sequence[str], str](
    "{pin}, which is not in the store; it has: [{known:comma}][{known:unless}none]"
    "[; to record the ids of fleet.yaml as this version: `fleet image promote {promote}`]"
)
advise_pin = Sentence[str](
    "a pinned version has no replacement: edit images.{image}.version in fleet.yaml"
)
explain_stopped = Sentence[str, str]("image {image} {stop}")
describe_fall_back = Sentence[str]("new machines boot {version} instead")
explain_candidate_stopped = Sentence[str, str, str, str](
    "candidate {image} {version} {stop}; {last_boot}; no machine is created with it"
)
describe_missing_tags = Sentence[str, str, Iterable[str]](
    "candidate {image} {version} does not report {tags:comma}, which the current version does"
)
describe_declared = Sentence[str, str](
    "fleet.yaml names {declared}, which is not promoted: fleet image promote {image}"
)
describe_earlier = Sentence[str, str, str](
    "fleet.yaml names {declared}, but machines boot {current}, which was promoted later: fleet "
    "image promote {image}"
)


class BootCount(NamedTuple):
    """The latest boots of an image version on one machine type of a pool."""

    failed: int
    boots: int
    type: str


def describe_failures(counts: Iterable[BootCount]) -> str:
    """Return the last part of a sentence: failed boots among the latest, per machine type."""
    parts = (
        f"{each.failed} of its last {write_count(each.boots, 'boot')}{describe_type(each.type)}"
        for each in counts
    )
    return f"failed {' and '.join(parts)} (guards.boot_failures)"


def describe_type(kind: str) -> str:
    """Return " on TYPE" for a machine type; empty if the pool states sizes instead."""
    return "" if kind == OWN_TYPE else f" on {kind}"


describe_stop = Sentence[str, datetime]("{failures}; retried from {until:second}")


def suspect_machine(pool: str, kinds: Sequence[str], booted: Attempt) -> str:
    """State where a failing image boots successfully, and the remaining possible causes."""
    here = booted.pool == pool
    where = "here" if here else f"in pool {booted.pool}"
    when = _write_time_to_second(booted.at)
    boots = f"the same version booted {where}{describe_type(booted.type)} at {when}"
    others = [kind for kind in kinds if kind not in (booted.type, OWN_TYPE)]
    suspects = [*(f"machine type {kind}" for kind in others), f"the network of pool {pool}"]
    return f"{boots}, so suspect {' or '.join(suspects)}, not the image"


advise_keeping = Sentence[str](
    "set pools.{pool}.boot.on_failure: {{hold: 1}} to keep the console of the next one"
)
advise_approval = Sentence[str]("when the cause is mended: `{command}`")
explain_stop_in_pool = Sentence[str, str]("in pool {pool} it {failures}")
explain_modes = Sentence[Sequence[str]]("all pools with this image have mode {modes:or}")
explain_unknown_machines = Sentence[str]("the machines of pool {pool} are unknown in this run")
explain_no_boots = Sentence[int](
    "[all of its {failed:boot} failed so far][{failed:unless}no machine boots it yet]"
)
explain_came_up = Sentence[timedelta, int, int](
    "candidate for {age:duration}: {boots:boot}, {failed} failed"
)
explain_newer = Sentence[Sequence[str], str | None](
    "tested, published at {providers:comma}, and [is newer than {current}]"
    "[{current:unless}no version is current]"
)
describe_streak = Sentence[int, datetime](
    "in {runs} {runs:run|runs in a row}); retried from {until:second}"
)
explain_quota = Sentence[str, str]("the quota at provider {provider} is used up ({streak}")
explain_stock = Sentence[str, str, bool, str](
    "{provider} is out of stock of {kind}[{spot:if} on the spot market] ({streak}"
)
explain_taken = Sentence[str, str]("{provider} refused every name as taken ({streak}")
explain_failed_attempts = Sentence[int, int, str](
    "{failures} of {attempts} attempts failed ({streak}"
)
describe_creation = Sentence[str, str](
    "its creation [timed out ({timeout})][{timeout:unless}failed ({detail})]"
)
describe_attempts = Sentence[int, datetime, str](
    "{failed} {failed:attempt|attempts in a row} to create a machine failed, last at "
    "{last:second}: {detail}"
)
explain_spot_price = Sentence[str, str](
    "the spot price of {kind} at provider {provider} is unknown"
)
explain_price = Sentence[str]("its price in {currency} is unknown")
explain_mode = Sentence[str]("mode is {mode}")
explain_unknown_provider = Sentence[str, str]("provider {provider} is unknown: {reason}")


def describe_waiting(each: WaitingVersion) -> str:
    """State the version that waits for promotion, the start of its wait, and the reason."""
    since = f"since {write_time(each.since)}"
    if each.state == "failed":
        return f"version {each.version} is not promoted: {each.because}, {since}"
    if each.until is None:
        return f"version {each.version} waits for promotion {since}: {each.because}"
    return f"version {each.version} is the candidate ({each.share}%) {since}: {each.because}"
