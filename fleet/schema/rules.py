"""This module declares what work may ask for: sizes, tags, derived tags and the allow-list."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from fleet.schema.base import (
    Cores,
    Count,
    LongText,
    SecretRef,
    Section,
    Text,
    Url,
    WorkerTag,
    branch,
)
from fleet.schema.units import Day, Mebibytes, Percent, Seconds, Share, SomeShare


class Size(Section):
    """A documented size class; a machine provides every class that it reaches."""

    cores: Cores = Field(description="At least this many processor cores.")
    memory: Mebibytes = Field(description="At least this much main memory.")
    disk: Mebibytes = Field(description="At least this much disk.")
    swap: Mebibytes | None = Field(None, description="At least this much swap.")


class Duration(Section):
    """How long a task runs for some packages, and on which machine that was measured."""

    match: LongText | None = Field(
        None,
        description="RE2 that matches the whole name of the package, or the whole name that "
        "`powerful` matches; left out: every package.",
    )
    takes: Seconds | None = Field(
        None, description="How long it runs, where history does not say; left out: not stated."
    )
    machine: Text | None = Field(
        None, description="The machine type that this was measured on, history too where first."
    )
    cores: Cores | None = Field(
        None, description="The cores of that machine; left out: those of `machine`."
    )
    parallel: Share | None = Field(
        None,
        description="Share of the work that more cores share (Amdahl's law), for machines of "
        "which nothing is stated; left out: 90%.",
    )


def _duration_form(value: object) -> str:
    return "several-durations" if isinstance(value, list) else "one-duration"


Durations = Annotated[
    Annotated[Seconds, Tag("one-duration")]
    | Annotated[list[Duration], Field(min_length=1, max_length=1000), Tag("several-durations")],
    branch(_duration_form, "a duration like 30m, or a list of {match, takes, machine, …}"),
]


class Askers(Section):
    """Who may ask for a tag, by name."""

    users: list[Text] = Field([], description="User names.")
    groups: list[Text] = Field([], description="Group names.")
    workspaces: list[Text] = Field([], description="Workspace names.")
    scopes: list[Text] = Field([], description="Scope names.")


class LimitsPer(Section):
    """How many machines one of each may hold at once."""

    submitter: Count | None = Field(None, description="Machines per person who asked.")
    owner: Count | None = Field(None, description="Machines per owner of the project.")
    scope: Count | None = Field(None, description="Machines per scope.")
    team: Count | None = Field(None, description="Machines per team.")
    sandbox: Count | None = Field(None, description="Machines per sandbox of tickets.")


class Limits(Section):
    """How many machines requests with this tag may hold at once."""

    per: LimitsPer = Field(
        default_factory=LimitsPer.model_construct, description="Machines per one of each."
    )
    total: Count | None = Field(None, description="Machines in all.")


class Otherwise(Section):
    """What happens to a request whose on-demand tag cannot be had."""

    after: Seconds = Field(description="After waiting this long.")
    drop: Literal[True] = Field(description="The request runs without the tag.")


AskedBy = Literal["user", "task", "rules", "tickets", "system"]
ProvidedBy = Literal["pool", "machine", "image", "worker"]


def _asker_form(value: object) -> str | None:
    if isinstance(value, str):
        return "asker-word"
    return "asker-names" if isinstance(value, dict | Askers) else None


Asker = Annotated[
    Annotated[AskedBy, Tag("asker-word")] | Annotated[Askers, Tag("asker-names")],
    branch(_asker_form, "one of user, task, rules, tickets, system, or a mapping of names"),
]


def _otherwise_form(value: object) -> str | None:
    if isinstance(value, str):
        return "otherwise-wait"
    return "otherwise-drop" if isinstance(value, dict | Otherwise) else None


WaitOrDrop = Annotated[
    Annotated[Literal["wait"], Tag("otherwise-wait")]
    | Annotated[Otherwise, Tag("otherwise-drop")],
    branch(_otherwise_form, "wait, or a mapping like {after: 2h, drop: true}"),
]


class TagRule(Section):
    """What a tag is, who may ask for it, who may provide it."""

    kind: Literal["plain", "number"] = Field(
        "plain", description="`number`: requests state a minimum, as in memory_gib>=64."
    )
    on_demand: bool = Field(
        False, description="Pools that provide it hold no machine while nothing asks for it."
    )
    exclusive: bool = Field(
        False, description="A worker that provides it runs only requests that ask for it."
    )
    asked_by: list[Asker] | None = Field(None, description="Who may ask for it; left out: anyone.")
    provided_by: list[ProvidedBy] | None = Field(
        None, description="What may provide it; left out: any source."
    )
    limits: Limits = Field(
        default_factory=Limits.model_construct,
        description="How many machines it may hold at once.",
    )
    priority: Literal["low", "normal", "high"] = Field(
        "normal", description="`low` displaces nothing."
    )
    otherwise: WaitOrDrop = Field(
        "wait", description="What happens when none can be had: wait, or run without the tag."
    )


class History(Section):
    """What earlier runs of the same task used for the same package."""

    of: Literal["memory", "disk"] = Field(description="Peak main memory, or peak disk space.")
    quantile: SomeShare = Field(95, description="This share of the runs needed no more.")
    margin: Percent = Field(20, description="So much more than that.")
    min_runs: Annotated[Count, Field(ge=1)] = Field(
        10, description="Not used where fewer runs are known."
    )


class DeriveRule(Section):
    """A tag that a request gets from its own task data."""

    task: Text | None = Field(None, description="Only for this task; left out: for every task.")
    from_: Text | None = Field(None, alias="from", description="A dotted path into the task data.")
    tag: WorkerTag | None = Field(
        None,
        description="In place of `from`: only for requests with this tag, derived ones too; a "
        "trailing `*` stands for any rest, which is the value.",
    )
    lookup: Text | None = Field(
        None,
        description="A table of `lookups` that turns the value into a record; `environments` also "
        "from the queue, where it tells.",
    )
    history: History | None = Field(
        None,
        description="In place of `from`: the value is what earlier runs needed, in whole GiB. "
        "A minimum that the request states itself comes first.",
    )
    source_build: bool | None = Field(
        None, description="Only for source builds (true), or only for others (false)."
    )
    ask: Text = Field(
        description="The tag; `{value}` stands for what was found, `{value.KEY}` for a part of it."
    )


SOURCE_CHROOT = "srpm-builds"
"""The chroot in the name of a Copr source build (Copr's own name of its results directory)."""
MOST_RULES = 2000
"""So many rules the allow-list may hold, for each may take time to check."""


class PowerfulRule(Section):
    """Builds that get powerful machines: the allow-list."""

    match: Text = Field(
        description="Full match on owner/project[:dir]/chroot/package (Copr) or "
        "scope/workspace/architecture/source (Debusine)."
    )
    ask: Annotated[list[WorkerTag], Field(min_length=1)] = Field(
        description="Tags that a matching request gets."
    )
    dirs: bool = Field(False, description="Also the pull-request directories of the project.")
    at_most: Count | None = Field(
        None, description="More names than these in a recorded queue are a finding."
    )
    contact: Text | None = Field(None, description="Whom to ask about it.")
    reason: Text | None = Field(None, description="Why it needs powerful machines.")
    expires: Day | None = Field(None, description="The last day it works.")
    matches: list[Text] = Field([], description="Cases that must match, checked by validate.")
    rejects: list[Text] = Field([], description="Cases that must not match, checked by validate.")


def default_sizes() -> dict[str, Size]:
    """Return the documented size classes (MiB)."""
    gib = 1024
    return {
        "small": Size.model_construct(cores=2, memory=4 * gib, disk=40 * gib, swap=None),
        "medium": Size.model_construct(cores=8, memory=16 * gib, disk=160 * gib, swap=None),
        "big": Size.model_construct(cores=32, memory=64 * gib, disk=280 * gib, swap=None),
    }


WORKSPACE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9+._-]*/[A-Za-z0-9][A-Za-z0-9+._-]*$"
Workspace = Annotated[str, Field(pattern=WORKSPACE_PATTERN)]
COLLECTION_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9+._-]*$"


class DebusineRules(Section):
    """Where a Debusine server keeps the rules that fleet compares and delivers."""

    workspaces: Annotated[list[Workspace], Field(min_length=1)] = Field(
        description="Workspaces that get the rules, each as SCOPE/WORKSPACE."
    )
    collection: Annotated[str, Field(pattern=COLLECTION_PATTERN)] = Field(
        "default", description="Name of their task-configuration collection."
    )
    tasks: Annotated[list[Text], Field(min_length=1)] = Field(
        ["sbuild"], description="The tasks that `powerful` is about."
    )
    token: SecretRef | None = Field(
        None,
        description="REST token of an owner of these workspaces, by reference; only "
        "`fleet export debusine --apply` uses it.",
    )


class CoprRulesFile(Section):
    """A file that holds Copr's allow-list."""

    file: Text = Field(
        description="The configuration of Copr's frontend that sets EXTRA_BUILDCHROOT_TAGS, "
        "relative to this file."
    )


class CoprRulesUrl(Section):
    """An address that answers with Copr's allow-list."""

    url: Url = Field(description="Address of that file, read without credentials.")


def _copr_rules_form(value: object) -> str | None:
    match value:
        case CoprRulesFile():
            return "copr-rules-file"
        case CoprRulesUrl():
            return "copr-rules-url"
        case dict():
            return "copr-rules-url" if "url" in value else "copr-rules-file"
        case _:
            return None


CoprRules = Annotated[
    Annotated[CoprRulesFile, Tag("copr-rules-file")]
    | Annotated[CoprRulesUrl, Tag("copr-rules-url")],
    branch(_copr_rules_form, "{file: PATH} or {url: ADDRESS}"),
]
