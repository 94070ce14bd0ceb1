"""This module declares what machines are made of and how many there are: images and pools."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from fleet.schema.base import SPEED, Cores, Count, LongText, Section, Text, WorkerTag, branch
from fleet.schema.sources import Hooks
from fleet.schema.units import (
    Amount,
    Mebibytes,
    Name,
    Percent,
    PoolName,
    PricePerHour,
    Seconds,
    SomeShare,
    Speed,
)

WINDOW_PATTERN = (
    r"^(mon|tue|wed|thu|fri|sat|sun)(-(mon|tue|wed|thu|fri|sat|sun))? "
    r"([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)"
    r"( [A-Za-z][A-Za-z0-9_+/-]{0,60})?$"
)

# Debian's own rules: policy 5.6.1 for names of packages, 5.6.12 for versions.
PACKAGE_PATTERN = r"^[a-z0-9][a-z0-9+.-]+$"
VERSION_PATTERN = r"^[0-9][A-Za-z0-9.+:~-]*$"
SERVER_PATTERN = r"^https?://[^/?#@\x00-\x20]+(/[^?#@\x00-\x20]*)?$"

Backend = Literal["unshare", "qemu", "incus"]
Task = Literal["autopkgtest", "sbuild", "mmdebstrap", "simplesystemimagebuild"]
Market = Literal["spot", "on-demand"]
Window = Annotated[str, Field(pattern=WINDOW_PATTERN)]
PackageName = Annotated[str, Field(pattern=PACKAGE_PATTERN, max_length=100)]
PackageVersion = Annotated[str, Field(pattern=VERSION_PATTERN, max_length=100)]
PLACE_PATTERN = r"^([a-z]([a-z0-9-]{0,29}[a-z0-9])?|file:///[^?#\s]+|s3://[a-z0-9][a-z0-9.-]+(/[^#\s]*)?(\?\S+)?)$"
Place = Annotated[str, Field(pattern=PLACE_PATTERN, max_length=1000)]
ServerUrl = Annotated[str, Field(pattern=SERVER_PATTERN, max_length=1000)]


class Rebuild(Section):
    """When a new version of an image is baked."""

    every: Seconds = Field(description="A version older than this is replaced by a new one.")
    keep: Annotated[int, Field(ge=1, le=100)] = Field(2, description="Versions that are kept.")


class Promote(Section):
    """How a version that passed its test reaches every machine by itself."""

    candidate: SomeShare = Field(
        20, description="It boots first on at most this share of each pool's workers."
    )
    after: Seconds = Field(
        6 * 3600,
        description="After this it becomes current, unless `guards.boot_failures` stopped it: "
        "then it is retired.",
    )


def _promote_form(value: object) -> str | None:
    match value:
        case str():
            return "promote-word"
        case Promote() | dict():
            return "promote-steps"
        case _:
            return None


PromoteRule = Annotated[
    Annotated[Literal["manual", "tested"], Tag("promote-word")]
    | Annotated[Promote, Tag("promote-steps")],
    branch(_promote_form, "manual, tested, or a mapping like {candidate: 20%, after: 6h}"),
]

_PROMOTE = (
    "How a newer version that passed its test and is published everywhere reaches machines: "
    "`manual`: by `fleet image promote`; `tested`: at once; `{candidate: 20%, after: 6h}`: first "
    "on a share of each pool's workers; left out: that."
)
_PIN = (
    "The version that machines boot, whatever is promoted, as in 20261121T203000Z; "
    "left out: the current one."
)


class ImageRecipe(Section):
    """An image that fleet bakes."""

    suite: Text = Field(description="Debian suite, for instance trixie.")
    architecture: Text = Field(description="Debian's name of the architecture, as in amd64.")
    provides: list[WorkerTag] = Field(
        [],
        description="Tags that its worker reports, until a boot test has recorded them.",
    )
    source: LongText | None = Field(
        None,
        description="A deb822 APT source to install from as well, its key under `Signed-By`.",
    )
    enable_backends: list[Backend] = Field(
        ["unshare"], description="Executor backends that are set up."
    )
    enable_tasks: list[Task] = Field(
        ["autopkgtest", "sbuild"], description="Tasks whose programs are installed."
    )
    packages: list[PackageName] = Field([], description="Further Debian packages.")
    worker_version: PackageVersion | None = Field(
        None, description="This version of debusine-worker and no other; left out: the newest."
    )
    swap: Mebibytes | None = Field(
        None, description="Swap, in a file that is made at the first boot."
    )
    api_url: ServerUrl | None = Field(
        None,
        description="The Debusine server baked in, as in `queues.*.url`; left out: passed as user "
        "data at boot.",
    )
    mirror: ServerUrl | None = Field(
        None, description="The Debian archive it is baked from; left out: Debian's own."
    )
    snapshot: bool = Field(
        False,
        description="The archive is one of an earlier day: its lists count although they expired.",
    )
    rebuild: Rebuild | None = Field(None, description="When a new version is baked.")
    publish: list[Place] = Field(
        [],
        description="Where versions are uploaded to: providers, and stores as in "
        "`file:///srv/images` or `s3://BUCKET/PREFIX`.",
    )
    promote: PromoteRule | None = Field(None, description=_PROMOTE)
    version: Text | None = Field(None, description=_PIN)

    @property
    def promotion(self) -> Promote | Literal["manual", "tested"]:
        """Return how its versions are promoted, also where fleet.yaml does not say."""
        return self.promote or Promote()


class ExistingImage(Section):
    """An image that was baked elsewhere."""

    existing: Annotated[dict[Name, Text], Field(min_length=1)] = Field(
        description="Provider name to the provider's own image id."
    )
    architecture: Text = Field("amd64", description="Debian's name of the architecture.")
    provides: list[WorkerTag] = Field([], description="Tags that its worker reports.")
    version: Text | None = Field(None, description=_PIN)


def _image_form(value: object) -> str | None:
    match value:
        case ExistingImage():
            return "image-existing"
        case ImageRecipe():
            return "image-recipe"
        case dict():
            return "image-existing" if "existing" in value else "image-recipe"
        case _:
            return None


Image = Annotated[
    Annotated[ImageRecipe, Tag("image-recipe")] | Annotated[ExistingImage, Tag("image-existing")],
    branch(_image_form, "an image: a mapping with suite and architecture, or with existing"),
]


def _type_form(value: object) -> str | None:
    if isinstance(value, str):
        return "one-type"
    return "several-types" if isinstance(value, list) else None


Types = Annotated[
    Annotated[Text, Tag("one-type")]
    | Annotated[list[Text], Field(min_length=1), Tag("several-types")],
    branch(_type_form, "a machine type like ccx33, or a list of types"),
]


class Machine(Section):
    """What a pool's machines are; figures override the catalogue's."""

    type: Types | None = Field(
        None,
        description="The provider's own name of the type, or several of which any will do.",
    )
    cores: Cores | None = Field(None, description="Processor cores.")
    speed: Speed | None = Field(None, description=SPEED)
    memory: Mebibytes | None = Field(None, description="Main memory.")
    disk: Mebibytes | None = Field(None, description="Disk.")
    swap: Mebibytes | None = Field(
        None, description="Swap, made on the machine's disk beside `disk`."
    )
    price: PricePerHour | None = Field(None, description="Price of one machine, on demand.")
    market: Annotated[list[Market], Field(min_length=1)] = Field(
        ["on-demand"], description="Markets to buy on, the cheapest that has stock."
    )


class Workers(Section):
    """How many workers a pool may hold."""

    max: Count = Field(description="Never more than this.")
    min: Count = Field(0, description="Never fewer than this.")
    spare: Count = Field(0, description="Idle workers kept ready beyond what waits.")
    max_starting: Count | None = Field(
        None, description="Machines booting at the same time; left out: any number."
    )


class Boot(Section):
    """How long a machine takes from its creation to its worker."""

    expected: Seconds = Field(90, description="Usual time, for estimates.")
    deadline: Seconds = Field(600, description="After this it counts as failed.")


class Ready(Section):
    """When a machine at a cloud may be given to a ticket: its port answers."""

    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        22, description="TCP port that has to answer at the machine's address."
    )
    banner: Text | None = Field(
        None,
        description="What the port has to greet with, as in `SSH-`; left out: a connection is "
        "enough.",
    )
    within: Seconds = Field(
        300,
        description="So long after its creation it counts as failed to boot, in place of "
        "`boot.deadline`.",
    )


class Retire(Section):
    """When a worker is let go although nothing is wrong with it."""

    idle_after: Seconds = Field(900, description="Idle for this long.")
    at: Literal["paid-end", "once"] | None = Field(
        None,
        description="When a machine goes that may go: `paid-end`, in the last run before its next "
        "step of time is billed, or `once`; left out: `paid-end`.",
    )
    max_age: Seconds | None = Field(
        None,
        description="Its machine is older than this: replaced as `replace` says; left out: never.",
    )
    max_uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None,
        description="It has finished this many requests: replaced as `replace` says; left out: "
        "never.",
    )


class Reuse(Section):
    """How long a machine that a ticket has released may get another of the same sandbox."""

    opportunity: Seconds = Field(
        description="So long it is kept for one after its release, and while its hour is paid for."
    )
    max_uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="It has had this many tickets; left out: any number."
    )
    max_age: Seconds | None = Field(3600, description="It had its first ticket this long ago.")


class PoolBudget(Section):
    """Money as a hard limit of one pool."""

    per_hour: Amount | None = Field(None, description="Money per hour.")
    per_day: Amount | None = Field(None, description="Money per calendar day.")
    per_month: Amount | None = Field(None, description="Money per calendar month.")


class Replace(Section):
    """How workers are replaced that are outdated or worn out, never before their work ends."""

    at_a_time: Percent = Field(
        10,
        description="At most this share of the pool at once, rounded up to a whole worker; `0%`: "
        "none at all.",
    )
    windows: list[Window] = Field(
        [],
        description='Only in these windows, as in "mon-fri 07:00-17:00 Europe/Berlin"; without a '
        "zone in `money.time_zone`, over midnight where the end is not after the start; left out: "
        "at any time.",
    )


def _machine_form(value: object) -> str | None:
    if isinstance(value, str):
        return "machine-type"
    return "machine-figures" if isinstance(value, dict | Machine) else None


TypeOrMachine = Annotated[
    Annotated[Text, Tag("machine-type")] | Annotated[Machine, Tag("machine-figures")],
    branch(_machine_form, "a machine type like ccx33, or a mapping like {type: ccx33}"),
]

Mode = Literal["apply", "observe", "drain", "pause"]


class Pool(Section):
    """Machines of one kind."""

    provider: Name = Field(description="Where its machines are made; a name of `providers`.")
    machine: TypeOrMachine = Field(description="A machine type, or its figures.")
    image: Name = Field(description="What its machines boot; a name of `images`.")
    serves: list[Name] | None = Field(
        None, description="Names of `queues`; left out: every queue."
    )
    provides: list[WorkerTag] = Field(
        [], description="Tags added to what image and machine provide."
    )
    requires: list[WorkerTag] = Field([], description="Tags a request must bring to run here.")
    workers: Workers = Field(description="How many workers it may hold.")
    boot: Boot = Field(
        default_factory=Boot.model_construct,
        description="How long a machine takes until its worker registers.",
    )
    ready: Ready | None = Field(
        None,
        description="Of machines at hcloud and aws that tickets are given: the port that has to "
        "answer first; left out: ready when the provider says that it runs and has an address.",
    )
    retire: Retire = Field(
        default_factory=Retire.model_construct,
        description="When a worker is let go although nothing is wrong with it.",
    )
    reuse: Reuse | None = Field(
        None,
        description="Of machines that tickets are given: how far one may be used again in the "
        "same sandbox; left out: a machine is for one ticket.",
    )
    priorities: dict[WorkerTag, Annotated[int, Field(ge=-100_000, le=100_000)]] = Field(
        {},
        description="Of machines that tickets are given: tag to how much this pool is preferred "
        "for it; of the tags that a ticket asks for they add up. Which of the machines that are "
        "free a ticket gets, and where one is made (`queues.NAME.prefer`), is decided by it. "
        "(Resalloc: priority of a tag)",
    )
    target_wait: Seconds | None = Field(
        None, description="How long work may wait; left out: one machine per waiting request."
    )
    budget: PoolBudget | None = Field(None, description="Money as a hard limit of this pool.")
    replace: Replace = Field(
        default_factory=Replace.model_construct,
        description="How workers are replaced that are outdated or worn out.",
    )
    mode: Mode = Field(
        "apply",
        description="`observe`: plan only; `drain`: let go of every worker; `pause`: leave alone.",
    )
    previously: PoolName | None = Field(None, description="The name this pool had before.")


class HooksPool(Pool):
    """Machines that commands of the pool itself make, list and delete."""

    provider: Literal["hooks"] = Field(description="The word `hooks`.")
    hooks: Hooks = Field(description="The commands, as of a provider of kind `hooks`.")
    image: Name | Literal[""] = Field(
        "", description="What its machines boot; left out: what its commands know."
    )
    workers: Workers = Field(
        default_factory=lambda: Workers(max=1),
        description="How many workers it may hold; left out: one.",
    )


class StaticPool(Section):
    """Machines that exist already: counted as capacity, never touched."""

    static: Annotated[list[Text], Field(min_length=1)] = Field(description="Names of the workers.")
    provides: list[WorkerTag] = Field([], description="Tags its workers provide.")
    serves: list[Name] | None = Field(
        None, description="Names of `queues`; left out: every queue."
    )


def _pool_form(value: object) -> str | None:
    match value:
        case StaticPool() | {"static": _}:
            return "pool-static"
        case HooksPool() | {"hooks": _}:
            return "pool-hooks"
        case Pool() | dict():
            return "pool-dynamic"
        case _:
            return None


AnyPool = Annotated[
    Annotated[Pool, Tag("pool-dynamic")]
    | Annotated[StaticPool, Tag("pool-static")]
    | Annotated[HooksPool, Tag("pool-hooks")],
    branch(_pool_form, "a pool: a mapping with provider, machine, image and workers, or static"),
]
