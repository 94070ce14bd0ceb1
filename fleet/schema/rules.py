"""Sections of fleet.yaml on the requirements of work: sizes, tags, derived tags, allow-list."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from fleet.schema.units import (
    ConfigSection,
    Cores,
    Count,
    Day,
    LongText,
    Mebibytes,
    Percent,
    Seconds,
    SecretRef,
    Share,
    SomeShare,
    Text,
    Url,
    WorkerTag,
    branch,
)


class Size(ConfigSection):
    """A size class. A machine belongs to each class whose minimums it reaches."""

    cores: Cores = Field(description="Minimum processor cores.")
    memory: Mebibytes = Field(description="Minimum main memory.")
    disk: Mebibytes = Field(description="Minimum disk.")
    swap: Mebibytes | None = Field(None, description="Minimum swap.")


class Duration(ConfigSection):
    """The duration of a task for some packages, and the machine on which it was measured."""

    match: LongText | None = Field(
        None,
        description="RE2 pattern of the package name, or of the name that `powerful` matches; "
        "default: every package.",
    )
    takes: Seconds | None = Field(None, description="How long it runs if history does not say.")
    machine: Text | None = Field(
        None, description="Machine type of the measurement; of history too in the first item."
    )
    cores: Cores | None = Field(
        None, description="Cores of that machine; default: those of `machine`."
    )
    parallel: Share | None = Field(
        None,
        description="Share of the work that runs in parallel (Amdahl's law), for machines without "
        "a measurement; default: 90%.",
    )


Durations = Annotated[
    Annotated[Seconds, Tag("one-duration")]
    | Annotated[list[Duration], Field(min_length=1, max_length=1000), Tag("several-durations")],
    branch(
        {"several-durations": list, "one-duration": object},
        "a duration like 30m, or a list of {match, takes, machine, …}",
    ),
]


class Askers(ConfigSection):
    """Names of users, groups, workspaces and scopes whose requests may have a tag."""

    users: list[Text] = Field([], description="User names.")
    groups: list[Text] = Field([], description="Group names.")
    workspaces: list[Text] = Field([], description="Workspace names.")
    scopes: list[Text] = Field([], description="Scope names.")


class LimitsPer(ConfigSection):
    """Maximum number of machines per submitter, owner, scope, team or sandbox."""

    submitter: Count | None = Field(None, description="Machines per submitter.")
    owner: Count | None = Field(None, description="Machines per owner of the project.")
    scope: Count | None = Field(None, description="Machines per scope.")
    team: Count | None = Field(None, description="Machines per team.")
    sandbox: Count | None = Field(None, description="Machines per sandbox (tickets).")


class Limits(ConfigSection):
    """Maximum number of machines in use at the same time."""

    per: LimitsPer = Field(
        default_factory=LimitsPer.model_construct, description="Machines per submitter, owner, …"
    )
    total: Count | None = Field(None, description="Machines in all.")


class Otherwise(ConfigSection):
    """Alternative for a request that requires an on-demand tag while no machine provides it."""

    after: Seconds = Field(description="How long it waits.")
    drop: Literal[True] = Field(description="Then it runs without the tag.")


AskedBy = Literal["user", "task", "rules", "tickets", "system"]
ProvidedBy = Literal["pool", "machine", "image", "worker"]


Asker = Annotated[
    Annotated[AskedBy, Tag("asker-word")] | Annotated[Askers, Tag("asker-names")],
    branch(
        {"asker-word": str, "asker-names": (dict, Askers)},
        "one of user, task, rules, tickets, system, or a mapping of names",
    ),
]


WaitOrDrop = Annotated[
    Annotated[Literal["wait"], Tag("otherwise-wait")]
    | Annotated[Otherwise, Tag("otherwise-drop")],
    branch(
        {"otherwise-wait": str, "otherwise-drop": (dict, Otherwise)},
        "wait, or a mapping like {after: 2h, drop: true}",
    ),
]


class TagRule(ConfigSection):
    """Properties of a tag: its permitted users, its providers, and its limits."""

    kind: Literal["plain", "number"] = Field(
        "plain", description="`number`: requests ask for a minimum, for example memory_gib>=64."
    )
    on_demand: bool = Field(
        False, description="Pools that provide it have no machines while nothing asks for it."
    )
    exclusive: bool = Field(
        False, description="Workers that provide it run only requests that ask for it."
    )
    asked_by: list[Asker] | None = Field(
        None, description="Permitted requesters; default: anyone."
    )
    provided_by: list[ProvidedBy] | None = Field(
        None, description="Permitted providers of the tag; default: any source."
    )
    limits: Limits = Field(
        default_factory=Limits.model_construct,
        description="Maximum number of machines of its requests at the same time.",
    )
    priority: Literal["low", "normal", "high"] = Field(
        "normal", description="`low`: never displaces other requests."
    )
    otherwise: WaitOrDrop = Field(
        "wait", description="When it is not available: wait, or run without the tag."
    )


class HistoryMinimum(ConfigSection):
    """A minimum that follows from the usage of earlier runs of the same task and package."""

    of: Literal["memory", "disk"] = Field(description="Peak main memory, or peak disk space.")
    quantile: SomeShare = Field(95, description="Share of the runs that needed no more.")
    margin: Percent = Field(20, description="Margin to add.")
    min_runs: Annotated[Count, Field(ge=1)] = Field(
        10, description="Minimum number of known runs."
    )


class DeriveRule(ConfigSection):
    """A tag that a request gets because of its task data, tags or history."""

    task: Text | None = Field(None, description="Only for this task; default: every task.")
    from_: Text | None = Field(None, alias="from", description="A dotted path in the task data.")
    tag: WorkerTag | None = Field(
        None,
        description="Instead of `from`: only for requests with this tag, derived tags included; a "
        "trailing `*` matches any ending, which is the value.",
    )
    lookup: Text | None = Field(
        None,
        description="A table of `lookups` that turns the value into a record; the queue may have "
        "`environments` itself.",
    )
    history: HistoryMinimum | None = Field(
        None,
        description="Instead of `from`: the value is what earlier runs needed, in whole GiB. A "
        "minimum of the request itself takes precedence.",
    )
    source_build: bool | None = Field(
        None, description="Only for source builds (true), or only for other builds (false)."
    )
    ask: Text = Field(
        description="The tag; `{value}` is the value found, `{value.KEY}` a part of it."
    )


SOURCE_CHROOT = "srpm-builds"
"""Chroot in the name of a Copr source build. Copr names the results directory like this."""
BUILD_TASK = "build"
"""Task of each Copr build except source builds. Only these builds have tags."""
SOURCE_TASK = "source"
"""Task of a Copr source build."""
MOST_RULES = 2000
"""Maximum number of rules in the allow-list."""


class PowerfulRule(ConfigSection):
    """A rule of the allow-list that gives tags of powerful machines to some builds."""

    match: Text = Field(
        description="RE2 pattern of the whole name: owner/project[:dir]/chroot/package (Copr) or "
        "scope/workspace/architecture/source (Debusine)."
    )
    ask: Annotated[list[WorkerTag], Field(min_length=1)] = Field(
        description="Tags that a matching request gets."
    )
    task: Text | None = Field(
        None,
        description="Only for this task, for example sbuild (Debusine), build or source (Copr, "
        "tickets); default: every task.",
    )
    dirs: bool = Field(False, description="Also match pull-request directories of the project.")
    at_most: Count | None = Field(
        None, description="Warn if it matches more names than this in a recorded queue."
    )
    contact: Text | None = Field(None, description="Contact for questions about it.")
    reason: Text | None = Field(None, description="Why it needs powerful machines.")
    expires: Day | None = Field(None, description="The last day it is valid.")
    matches: list[Text] = Field([], description="Names that must match; `fleet validate` checks.")
    rejects: list[Text] = Field(
        [], description="Names that must not match; `fleet validate` checks."
    )


def default_sizes() -> dict[str, Size]:
    """Return the size classes of a fleet.yaml that declares no size classes."""
    gib = 1024
    return {
        "small": Size.model_construct(cores=2, memory=4 * gib, disk=40 * gib, swap=None),
        "medium": Size.model_construct(cores=8, memory=16 * gib, disk=160 * gib, swap=None),
        "big": Size.model_construct(cores=32, memory=64 * gib, disk=280 * gib, swap=None),
    }


WORKSPACE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9+._-]*/[A-Za-z0-9][A-Za-z0-9+._-]*$"
Workspace = Annotated[str, Field(pattern=WORKSPACE_PATTERN)]
COLLECTION_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9+._-]*$"


class DebusineRules(ConfigSection):
    """Location, at a Debusine server, of the rules that fleet compares and delivers."""

    workspaces: Annotated[list[Workspace], Field(min_length=1)] = Field(
        description="Workspaces that need the rules, each as SCOPE/WORKSPACE."
    )
    collection: Annotated[str, Field(pattern=COLLECTION_PATTERN)] = Field(
        "default", description="Name of the task-configuration collection."
    )
    tasks: Annotated[list[Text], Field(min_length=1)] = Field(
        ["sbuild"],
        description="Tasks that rules of `powerful` without a `task` of their own apply to.",
    )
    token: SecretRef | None = Field(
        None,
        description="REST token of an owner of these workspaces; only `fleet export debusine "
        "--apply` uses it.",
    )


class CoprRulesFile(ConfigSection):
    """A file that contains Copr's allow-list."""

    file: Text = Field(
        description="Configuration of Copr's frontend that sets EXTRA_BUILDCHROOT_TAGS, relative "
        "to this file."
    )


class CoprRulesUrl(ConfigSection):
    """A URL from which Copr's allow-list can be read."""

    url: Url = Field(description="URL of that file, read without credentials.")


CoprRules = Annotated[
    Annotated[CoprRulesFile, Tag("copr-rules-file")]
    | Annotated[CoprRulesUrl, Tag("copr-rules-url")],
    branch(
        {"copr-rules-url": CoprRulesUrl, "copr-rules-file": (dict, CoprRulesFile)},
        "{file: PATH} or {url: ADDRESS}",
        keys={"url": "copr-rules-url"},
    ),
]
