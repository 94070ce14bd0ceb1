"""Sentences about image versions, promotions and failed creations of machines."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.model.facts import Attempt
from fleet.model.images import ImageVersion, WaitingVersion
from fleet.schema.units import write_count, write_duration, write_time
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


def explain_no_executor(image: str, queue: str, unproven: Iterable[str]) -> str:
    """Explain why a queue assigns no work to workers of an image version, with a remedy."""
    names = ", ".join(unproven) or "no executor is enabled"
    return (
        f"its test proved no executor, so queue {queue} gives it no work (unproven: {names}); "
        "repeat the test on a machine that can run the jobs, or add the tags to "
        f"images.{image}.provides"
    )


explain_other_task = Sentence[str, str, str](
    "queue {queue} requires {wanted}, and its worker has {own}"
)


def explain_trial(image: str, until: datetime, after: int) -> str:
    """State when a candidate becomes current. `after` is the length of its trial in seconds."""
    rule = f"images.{image}.promote.after is {write_duration(after)}"
    return f"becomes current at {write_time(until)} if its machines boot ({rule})"


describe_boot = Sentence[str, datetime]("last booted: {image} at {at:second}")
describe_pin = Sentence[str, str](
    "image {image} is pinned to version {version} (images.{image}.version)"
)
explain_pin_state = Sentence[str, str]("{pin}, which is {state}: only tested versions boot")
explain_pin_unpublished = Sentence[str, str](
    "{pin}, which is not published at provider {provider}"
)


def explain_pin_unrecorded(pin: str, known: Iterable[str], *, promote: str = "") -> str:
    """State that a pinned version is not in the store, and the versions that are."""
    names = ", ".join(sorted(known)) or "none"
    command = f"; to record the ids of fleet.yaml as this version: `fleet image promote {promote}`"
    return f"{pin}, which is not in the store; it has: {names}{command if promote else ''}"


advise_pin = Sentence[str](
    "a pinned version has no replacement: edit images.{image}.version in fleet.yaml"
)
explain_stopped = Sentence[str, str]("image {image} {stop}")
describe_fall_back = Sentence[str]("new machines boot {version} instead")


def explain_candidate_stopped(version: ImageVersion, stop: str, last: str) -> str:
    """State why machines no longer boot a candidate version, and the time of its last boot."""
    name = f"candidate {version.image} {version.version}"
    return f"{name} {stop}; {last}; no machine is created with it"


def describe_missing_tags(version: ImageVersion, tags: Iterable[str]) -> str:
    """State the tags that the current version reports, but a candidate does not."""
    name = f"candidate {version.image} {version.version}"
    return f"{name} does not report {', '.join(tags)}, which the current version does"


def describe_declared(image: str, declared: str) -> str:
    """State that the image id in fleet.yaml is not promoted, with the command to promote it."""
    return f"fleet.yaml names {declared}, which is not promoted: fleet image promote {image}"


def describe_earlier(image: str, declared: str, current: str) -> str:
    """State that fleet.yaml names an earlier image id than the current one, with the command."""
    names = f"fleet.yaml names {declared}, but machines boot {current}"
    return f"{names}, which was promoted later: fleet image promote {image}"


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


def describe_stop(counts: Iterable[BootCount], until: datetime) -> str:
    """State the number of failed boots of an image, and when its boot is tried again."""
    return f"{describe_failures(counts)}; retried from {_write_time_to_second(until)}"


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


def explain_modes(modes: Iterable[str]) -> str:
    """Explain that all pools with an image have a mode in which no version is promoted."""
    return f"all pools with this image have mode {' or '.join(sorted(modes))}"


explain_unknown_machines = Sentence[str]("the machines of pool {pool} are unknown in this run")


def explain_no_boots(failed: int) -> str:
    """State that all boots of a candidate failed, or (0) that no machine has booted it yet."""
    all_failed = f"all of its {write_count(failed, 'boot')} failed so far"
    return all_failed if failed else "no machine boots it yet"


def explain_came_up(age: timedelta, boots: int, failed: int) -> str:
    """State the age of a candidate version, and the number of its boots and failed boots."""
    count = write_count(boots, "boot")
    return f"candidate for {write_duration(age)}: {count}, {failed} failed"


def explain_newer(providers: Iterable[str], current: str | None) -> str:
    """State where a new version is published, and the current version; None without a version."""
    than = f"is newer than {current}" if current else "no version is current"
    return f"tested, published at {', '.join(sorted(providers))}, and {than}"


def describe_streak(runs: int, until: datetime) -> str:
    """Return the end of a sentence: the failed runs in a row, and the time of the next try."""
    times = "in 1 run" if runs == 1 else f"in {runs} runs in a row"
    return f"{times}); retried from {_write_time_to_second(until)}"


explain_quota = Sentence[str, str]("the quota at provider {provider} is used up ({streak}")


def explain_stock(provider: str, kind: str, streak: str, *, spot: bool) -> str:
    """State that a machine type is out of stock at a provider."""
    where = " on the spot market" if spot else ""
    return f"{provider} is out of stock of {kind}{where} ({streak}"


explain_taken = Sentence[str, str]("{provider} refused every name as taken ({streak}")
explain_failed_attempts = Sentence[int, int, str](
    "{failures} of {attempts} attempts failed ({streak}"
)


def describe_creation(detail: str, timeout: str) -> str:
    """State the error of the last creation of a worker's machine, or the time-out's message."""
    if timeout:
        return f"its creation timed out ({timeout})"
    return f"its creation failed ({detail})"


def describe_attempts(failed: int, last: datetime, detail: str) -> str:
    """State the number of consecutive failed creations in a pool, and the last error."""
    many = "1 attempt" if failed == 1 else f"{failed} attempts in a row"
    return f"{many} to create a machine failed, last at {_write_time_to_second(last)}: {detail}"


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
