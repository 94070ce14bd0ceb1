"""Checks of providers, what their machines share, machine types, and recipes of images."""

import base64
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from ipaddress import ip_network

from fleet.model.apt_sources import archives, problems
from fleet.model.images import EXECUTORS, executors_of, is_judged, is_old_worker, job_of_tag
from fleet.model.prices import (
    OLD_AFTER,
    MachineType,
    find_types,
    known_types,
    locations_of,
    markets_of,
    own_list,
    shipped_types,
    source_of,
    table_of,
    type_names,
)
from fleet.schema.findings import Finding, Path, did_you_mean, nearest, unwise, wrong
from fleet.schema.model import (
    Fleet,
    HcloudProvider,
    ImageRecipe,
    MachineSettings,
    Pool,
    Provider,
    debusine_queues,
    money_in,
)
from fleet.schema.sources import FirewallRule, HcloudNetwork


def unknown_machine_type(fleet: Fleet) -> Iterator[Finding]:
    """Require that the price list has a pool's machine type, or that the pool states sizes."""
    for name, pool in fleet.dynamic_pools.items():
        provider = fleet.providers.get(pool.provider)
        if provider is None:
            continue
        known = {each.name for each in find_types(fleet, pool)}
        path: Path = ("pools", name, "machine")
        wanted = type_names(pool)
        if not wanted and not known:
            sold = _families(known_types(fleet, pool.provider))
            hint = f"add type: one of {sold}" if sold else "state cores and memory"
            message = "machine has neither a type nor cores and memory"
            yield wrong(message, path, hint=hint)
        for number, each in enumerate(wanted):
            if each not in known:
                several = not isinstance(pool.machine, str) and isinstance(pool.machine.type, list)
                at = ("type", number) if several else ("type",)
                place = path if isinstance(pool.machine, str) else (*path, *at)
                yield _finding(fleet, pool, each, place)
    yield from _check_durations(fleet)


def _check_durations(fleet: Fleet) -> Iterator[Finding]:
    """Require cores for each machine type of `durations` that no provider sells."""
    sold = sorted({each for name in fleet.providers for each in known_types(fleet, name)})
    for task, stated in fleet.durations.items():
        for number, each in enumerate(stated if isinstance(stated, list) else ()):
            if each.machine is not None and each.machine not in sold and each.cores is None:
                close = nearest(each.machine, sold)
                yield wrong(
                    f"no provider sells machine type '{each.machine}', so its speed is unknown",
                    ("durations", task, number, "machine"),
                    hint=f"did you mean '{close}'?" if close else "state its cores",
                )


def _finding(fleet: Fleet, pool: Pool, wanted: str, path: Path) -> Finding:
    sold = known_types(fleet, pool.provider)
    close = _most_similar(wanted, shipped_types(fleet, pool.provider)) or nearest(wanted, sold)
    known = f"known: {_families(sold)}; or state" if sold else "state"
    message = f"the catalogue has no machine type '{wanted}' for provider '{pool.provider}'"
    # A provider's own price list may have types that the shipped table does not have yet.
    may_be_new = re.fullmatch(fleet.providers[pool.provider].listed_types, wanted)
    return (unwise if may_be_new else wrong)(
        f"{message}; the pool creates none unless the provider's price list has it"
        if may_be_new
        else message,
        path,
        hint=f"did you mean '{close}'?" if close else f"{known} cores, memory, disk and price",
    )


_MAX_SHOWN_TYPES = 40


def _families(sold: Sequence[str]) -> str:
    """Return machine types as text; only their families if there are many, as at EC2."""
    shown = (
        {re.sub(r"\..*", ".*", each) for each in sold} if len(sold) > _MAX_SHOWN_TYPES else sold
    )
    return ", ".join(sorted(shown))


_NAME = re.compile(r"(?P<line>[a-z]+)(?P<number>\d+)(?P<kind>[a-z-]*)(?:\.(?P<size>[a-z0-9]+))?")


def _most_similar(wanted: str, types: Mapping[str, MachineType]) -> str:
    """Return the sold type that is most similar to an unknown type; empty without a similar one.

    A similar type has the same line (cx and ccx at Hetzner, c and m at EC2) and architecture. The
    same size is preferred, then the nearest number.
    """
    asked = _NAME.fullmatch(wanted.lower())
    if asked is None:
        return ""
    near = []
    for name, known in types.items():
        other = _NAME.fullmatch(name)
        # At EC2, a g after the number marks machines with ARM processors.
        arm = "g" in asked["kind"] if asked["size"] else known.architecture == "arm64"
        if other is None or other["line"] != asked["line"]:
            continue
        if (known.architecture == "arm64") == arm:
            apart = abs(int(other["number"]) - int(asked["number"]))
            unlike = (
                other["size"] != asked["size"],
                known.price is None,
                other["kind"] != asked["kind"],
            )
            near.append((*unlike, apart, name))
    return min(near)[-1] if near else ""


def missing_price(fleet: Fleet) -> Iterator[Finding]:
    """Require a price for each machine type of a pool, in the price list or in the pool."""
    for name, pool in fleet.dynamic_pools.items():
        provider = fleet.providers.get(pool.provider)
        if provider is None or "on-demand" not in markets_of(pool) or pool.mode == "observe":
            continue
        types = find_types(fleet, pool)
        unpriced = [each for each in types if each.price is None]
        if unpriced:
            alone = len(unpriced) == len(types)
            # A cloud has a price for each type that it sells.
            known = table_of(provider).types
            listed = bool(provider.listed_types and type_names(pool))
            sold = listed or all(each.name in known for each in unpriced)
            message = _describe_unpriced(provider, unpriced, named=bool(type_names(pool)))
            yield (wrong if alone and not sold else unwise)(
                f"{message}; " + (_NO_MACHINES if alone else "fleet buys none"),
                ("pools", name, "machine"),
                hint=_hint(pool.provider, provider),
            )


def _hint(name: str, provider: Provider) -> str:
    priced = "add the full hourly price to machine, for example `price: 0.25 EUR/h`"
    known, location = locations_of(provider.kind), provider.price_location
    if not known or location in known:
        return priced
    return f"providers.{name}.location: {did_you_mean(location, known)}"


_NO_MACHINES = "the pool creates no machines"


def _describe_unpriced(provider: Provider, unpriced: list[MachineType], *, named: bool) -> str:
    if not named:
        return "machine has cores and memory but no price"
    types = ", ".join(each.name for each in unpriced)
    where = f" at {provider.price_location}" if source_of(provider.kind) else ""
    as_of = table_of(provider).as_of
    dated = f" of {as_of}" if as_of else ""
    return f"the catalogue{dated} has no price for {types}{where}"


def old_prices(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn about providers whose prices in use are more than 90 days old."""
    for name, provider in fleet.providers.items():
        as_of = table_of(provider).as_of
        if not source_of(provider.kind) or not as_of:
            continue
        if today - date.fromisoformat(as_of) > OLD_AFTER and _counts_with_table(fleet, name):
            of = "its own list" if own_list(provider) else "the catalogue"
            yield unwise(
                f"prices of provider '{name}' are of {as_of} ({of}), more than "
                f"{OLD_AFTER.days} days ago",
                ("providers", name),
                hint="run `fleet prices check`, or install a newer fleet",
            )


def _counts_with_table(fleet: Fleet, provider: str) -> bool:
    """Return whether the price of a pool's machine type is from the price list in fleet."""
    return any(
        pool.provider == provider
        and pool.mode != "observe"
        and (isinstance(pool.machine, str) or pool.machine.price is None)
        and any(shipped_types(fleet, provider).get(each) for each in type_names(pool))
        for pool in fleet.dynamic_pools.values()
    )


def market_not_sold(fleet: Fleet) -> Iterator[Finding]:
    """Require that the provider sells a pool's machine types on each of the pool's markets."""
    for name, pool in fleet.dynamic_pools.items():
        if "spot" not in markets_of(pool):
            continue
        unsold = [known.name for known in find_types(fleet, pool) if known.spot is None]
        if unsold:
            yield _unsold(fleet, name, pool, unsold)


def _unsold(fleet: Fleet, name: str, pool: Pool, unsold: list[str]) -> Finding:
    provider = fleet.providers.get(pool.provider)
    if provider and not provider.has_spot:
        message = f"provider '{pool.provider}' has no spot market"
    else:
        message = f"provider '{pool.provider}' has no spot price for {', '.join(unsold)}"
    number = markets_of(pool).index("spot")
    # If the prices come from the shipped table, a later table may have a spot price.
    stays = provider is not None and not (provider.has_spot and source_of(provider.kind))
    alone = len(markets_of(pool)) == 1 and len(unsold) == len(find_types(fleet, pool))
    return (wrong if alone and stays else unwise)(
        f"{message}; " + (_NO_MACHINES if alone else "fleet buys none there"),
        ("pools", name, "machine", "market", number),
        hint="write market: [on-demand]",
    )


def disk_above_type(fleet: Fleet) -> Iterator[Finding]:
    """Require that a machine type's disk has space for the pool's disk and swap."""
    for name, pool in fleet.dynamic_pools.items():
        if not isinstance(pool.machine, MachineSettings):
            continue
        machine, provider = pool.machine, fleet.providers.get(pool.provider)
        needed = (machine.disk or 0) + pool.swap
        if provider is None or not provider.has_fixed_disks or not needed:
            continue
        sold = [shipped_types(fleet, pool.provider).get(each) for each in type_names(pool)]
        small = [each for each in sold if each is not None and each.disk < needed]
        if small:
            disks = ", ".join(f"{each.name} has {_gib(each.disk)}" for each in small)
            key = "disk" if machine.disk else "swap"
            yield wrong(
                f"disk and swap need {_gib(needed)}, but {disks} (fixed by the provider)",
                ("pools", name, "machine", key),
                hint="choose a larger type, or reduce disk and swap",
            )


def _gib(mebibytes: int) -> str:
    return f"{mebibytes / 1024:g}GiB"


def unknown_currency(fleet: Fleet) -> Iterator[Finding]:
    """Require an exchange rate for each currency other than the main currency of the file."""
    for path, currency in _currencies(fleet):
        if currency != fleet.money.currency and currency not in fleet.money.exchange:
            yield wrong(
                f"there is no exchange rate from {currency} to {fleet.money.currency}",
                path,
                hint=f"add money: {{exchange: {{{currency}: {{rate: …, as_of: …}}}}}}",
            )


def _currencies(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    for path, money in money_in(fleet):
        # The check of machine types below includes the price of a pool's machine.
        if path[:1] != ("pools",) or path[2:3] != ("machine",):
            yield path, money.currency
    for name, pool in fleet.dynamic_pools.items():
        priced = [each for each in find_types(fleet, pool) if each.price is not None]
        for currency in dict.fromkeys(each.currency for each in priced):
            yield ("pools", name, "machine"), currency


def unknown_image(fleet: Fleet) -> Iterator[Finding]:
    """Require that `images` declares the image of each pool."""
    for name, pool in fleet.dynamic_pools.items():
        if pool.image in fleet.images:
            continue
        yield wrong(
            f"there is no image '{pool.image}'",
            ("pools", name, "image"),
            hint=did_you_mean(pool.image, fleet.images)
            or f"declare it: images: {{{pool.image}: …}}",
        )


SUITES = ("bookworm", "trixie", "sid")
"""Debian releases on which the Ansible role is tested."""

_OTHER_NAMES = {"oldstable": "bookworm", "stable": "trixie", "unstable": "sid"}


def unknown_suite(fleet: Fleet) -> Iterator[Finding]:
    """Require that an image's suite is the code name of a release that fleet supports."""
    for name, image in fleet.recipes.items():
        if image.suite not in SUITES:
            meant = _OTHER_NAMES.get(image.suite)
            yield wrong(
                f"fleet cannot build images of suite '{image.suite}'",
                ("images", name, "suite"),
                hint=f"did you mean '{meant}'?" if meant else did_you_mean(image.suite, SUITES),
            )


BOOTABLE_ARCHITECTURES = ("amd64", "arm64", "riscv64")
"""Debian architectures of the disks that fleet builds: all of them boot by UEFI."""


def unknown_architecture(fleet: Fleet) -> Iterator[Finding]:
    """Require that fleet can build a disk of the architecture of each image that it publishes.

    Other recipes only describe workers whose images are built elsewhere.
    """
    for name, image in fleet.recipes.items():
        is_built = bool(image.publish or image.rebuild)
        if is_built and image.architecture not in BOOTABLE_ARCHITECTURES:
            yield wrong(
                f"fleet cannot build images for {image.architecture}",
                ("images", name, "architecture"),
                hint=did_you_mean(image.architecture, BOOTABLE_ARCHITECTURES),
            )


_WITHOUT = {"bookworm": "bookworm-backports"}


def worker_not_in_suite(fleet: Fleet) -> Iterator[Finding]:
    """Require an APT source for an image if its suite has no package of Debusine's worker."""
    for name, image in fleet.recipes.items():
        if image.source is None and image.suite in _WITHOUT:
            yield wrong(
                f"{image.suite} has no debusine-worker",
                ("images", name, "suite"),
                hint=f"add a source that has it, for example {_WITHOUT[image.suite]}",
            )


_WORKERS = {"bookworm": "0.11.3", "trixie": "0.11.3"}
"""The version that apt installs from a release or its backports if the image names no version.

apt installs a package from backports only if the release itself has no such package.
"""


def worker_too_old(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a worker for Debusine that is too old to report its tags."""
    for name, image in fleet.recipes.items():
        version = image.worker_version or _find_installed_worker(image)
        queue = min(debusine_queues(fleet, name), default="")
        if not (queue and is_old_worker(version)):
            continue
        key = "worker_version" if image.worker_version else "suite"
        yield unwise(
            f"image {name} gets debusine-worker {version}, which reports no tags: Debusine 0.16 "
            f"gives it no work from queue {queue}",
            ("images", name, key),
            hint=f"set images.{name}.worker_version to a version of 0.16 or newer, and a source "
            "that has it",
        )


def _find_installed_worker(image: ImageRecipe) -> str:
    """Return the worker's version that apt installs; empty if another archive may have it."""
    suites = {suite for _, suite in archives(image.source)} if image.source else set()
    unknown = [suite for suite in suites if suite != f"{image.suite}-backports"]
    return "" if unknown else _WORKERS.get(image.suite, "")


def claimed_tag_not_enabled(fleet: Fleet) -> Iterator[Finding]:
    """Warn if `provides` of a recipe has a tag whose executor or task is not enabled."""
    for name, image in fleet.recipes.items():
        enabled = {f"executor:{each}" for each in executors_of(image.enable_backends)}
        enabled |= {f"task:{each}" for each in image.enable_tasks}
        for number, tag in enumerate(image.provides):
            jobs = job_of_tag(tag) if is_judged(tag) else None
            if jobs is not None and enabled.isdisjoint(jobs):
                kind, _, what = jobs[0].partition(":")
                message, hint = f"does not enable {what}", f"add {what} to enable_tasks"
                if kind == "executor":
                    hint = f"add {what} to enable_backends"
                    if what not in EXECUTORS:
                        message = f"Debusine has no executor {what}"
                        hint = f"write one of {', '.join(EXECUTORS)}"
                yield unwise(
                    f"image {name} claims {tag}, and {message}",
                    ("images", name, "provides", number),
                    hint=f"{hint}, or remove the tag",
                )


def source_without_key(fleet: Fleet) -> Iterator[Finding]:
    """Require that each APT source names the public key that signs it."""
    return _source_problems(fleet, keyless=True)


def wrong_source(fleet: Fleet) -> Iterator[Finding]:
    """Require that each APT source is in deb822 form and has all mandatory fields."""
    return _source_problems(fleet, keyless=False)


def _source_problems(fleet: Fleet, *, keyless: bool) -> Iterator[Finding]:
    for name, image in fleet.recipes.items():
        for each in problems(image.source) if image.source is not None else ():
            if each.keyless == keyless:
                path = ("images", name, "source")
                yield wrong(each.message, path, hint=each.hint, part=each.part)


_ZONES = {
    "fsn1": "eu-central",
    "nbg1": "eu-central",
    "hel1": "eu-central",
    "ash": "us-east",
    "hil": "us-west",
    "sin": "ap-southeast",
}
"""Location of Hetzner to its network zone."""
_LAST_PORT = 65535
_MAX_SPREAD = 10
"""Maximum number of servers in a placement group of Hetzner."""


def unusable_shared_part(fleet: Fleet) -> Iterator[Finding]:
    """Require that Hetzner accepts the networks, firewall rules and SSH keys."""
    for name, provider in fleet.providers.items():
        if isinstance(provider, HcloudProvider):
            path: Path = ("providers", name)
            if provider.network is not None:
                yield from _check_network(provider.network, provider.location, (*path, "network"))
            for number, rule in enumerate(provider.firewall or ()):
                yield from _check_rule(rule, (*path, "firewall", number))
            for who, text in provider.ssh_keys.items():
                if _parse_key(text) is None:
                    # The message omits the text, because it may be a private key.
                    yield wrong(
                        "this is no public key of ssh",
                        (*path, "ssh_keys", who),
                        hint='write the line of its .pub file, as "ssh-ed25519 AAAA… ana"',
                    )
            if provider.placement_group is not None:
                pools = (each for each in fleet.dynamic_pools.values() if each.provider == name)
                most = sum(pool.workers.max for pool in pools)
                if most > _MAX_SPREAD:
                    yield unwise(
                        f"its pools may have {most} servers, and a placement group takes "
                        f"{_MAX_SPREAD}: Hetzner refuses more",
                        ("providers", name, "placement_group"),
                        hint="remove it, or lower workers.max",
                    )
    yield from _check_keys_once(fleet)


def _check_network(network: HcloudNetwork, location: str, path: Path) -> Iterator[Finding]:
    yield from _check_range(network.ip_range, (*path, "ip_range"), strict=False)
    zone = _ZONES.get(location, network.zone)
    if network.zone != zone:
        yield wrong(
            f"servers at {location} are in zone {zone} and cannot join a network of "
            f"'{network.zone}'",
            (*path, "zone"),
            hint=f"write {zone}",
        )


def _check_rule(rule: FirewallRule, path: Path) -> Iterator[Finding]:
    has_ports = rule.protocol in {"tcp", "udp"}
    if has_ports and rule.port is None:
        yield wrong(
            f"a rule for {rule.protocol} needs a port",
            path,
            hint='add port: "22", a range such as 8000-9000, or any',
        )
    if not has_ports and rule.port is not None:
        yield wrong(f"{rule.protocol} has no ports", (*path, "port"), hint="remove port")
    if rule.port not in {None, "any"}:
        first, _, last = str(rule.port).partition("-")
        if not 1 <= int(first) <= int(last or first) <= _LAST_PORT:
            yield wrong(
                f"'{rule.port}' is no port and no range of ports",
                (*path, "port"),
                hint=f"ports go from 1 to {_LAST_PORT}, and a range from its lower to its higher",
            )
    for number, each in enumerate(rule.ips):
        yield from _check_range(each, (*path, "ips", number), strict=True)


def _check_range(text: str, path: Path, *, strict: bool) -> Iterator[Finding]:
    """Require a valid address range; with `strict`, it must start at its first address."""
    try:
        begins = ip_network(text, strict=False)
    except ValueError:
        yield wrong(f"'{text}' is no range of addresses", path, hint="for example 10.20.0.0/16")
        return
    try:
        ip_network(text, strict=strict)
    except ValueError:
        yield wrong(
            f"'{text}' does not begin at the first address of its range",
            path,
            hint=f"write {begins}, or for one address {text.partition('/')[0]}/"
            f"{begins.max_prefixlen}",
        )


def _check_keys_once(fleet: Fleet) -> Iterator[Finding]:
    """Yield a finding for an SSH key that its project already has, which Hetzner refuses."""
    seen: dict[tuple[str, bytes], tuple[str, str]] = {}
    given = (
        (name, who, str(provider.token), _parse_key(text))
        for name, provider in fleet.providers.items()
        if isinstance(provider, HcloudProvider)
        for who, text in provider.ssh_keys.items()
    )
    for name, who, project, key in given:
        if key is not None:
            other, before = seen.setdefault((project, key), (name, who))
            path: Path = ("providers", name, "ssh_keys", who)
            if other != name:
                yield unwise(
                    f"this is the key '{before}' of provider '{other}', whose token is the same: "
                    "a project of Hetzner takes each key once, so no machine is created here",
                    path,
                    hint="use another key, or remove it",
                )
            elif before != who:
                yield wrong(
                    f"this is the key '{before}' once more: Hetzner takes each key once",
                    path,
                    hint="remove one of the two",
                )


def _parse_key(text: str) -> bytes | None:
    """Return the bytes of the key in a line of a .pub file; None if the line has no key."""
    kind, _, rest = text.strip().partition(" ")
    try:
        name, key = kind.encode(), base64.b64decode(rest.split()[0], validate=True)
    except (IndexError, ValueError):
        return None
    return key if key.startswith(struct.pack(">I", len(name)) + name) else None
