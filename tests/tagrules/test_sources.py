"""What a pool's workers offer: by machine, image, pool and their own report, and what differs."""

import re
from decimal import Decimal

import pytest

from fleet.model.images import ImageVersion
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.offers import find_doubts, offer_of_pool, offer_of_worker
from fleet.tagrules.sources import figures_of, pool_sources
from fleet.tagrules.vocabulary import Vocabulary
from tests.builders import a_fleet, a_pool, a_worker

ARCH = "worker:build-arch:"
FIGURES = {name: {"kind": "number"} for name in ("cores", "memory_gib", "disk_gib", "swap_gib")}


def a_fleet_of(pool: Pool, **overrides: object) -> Fleet:
    return a_fleet(pools={"builders": pool}, **overrides)


def arm(machine: object) -> Fleet:
    image = {"trixie": {"suite": "trixie", "architecture": "arm64"}}
    return a_fleet_of(a_pool(machine=machine), images=image)


def classes(fleet: Fleet) -> set[str]:
    provides = offer_of_pool(fleet, "builders", ()).provides
    return {tag.removeprefix("worker:class:") for tag in provides if "worker:class:" in tag}


def architectures(fleet: Fleet, *images: ImageVersion) -> set[str]:
    provides = offer_of_pool(fleet, "builders", images).provides
    return {tag.removeprefix(ARCH) for tag in provides if tag.startswith(ARCH)}


@pytest.mark.parametrize(
    ("machine", "reached"),
    [
        ("ccx13", {"small"}),
        ("ccx33", {"small", "medium"}),
        ("ccx53", {"small", "medium", "big"}),
        ({"cores": 32, "memory": "62000MiB", "disk": "280GiB"}, {"small", "medium"}),
        ({"cores": 32, "memory": "63000MiB", "disk": "280GiB"}, {"small", "medium", "big"}),
        ({"cores": 32, "memory": "64GiB"}, set()),
    ],
)
def test_machine_provides_classes_within_tolerance(machine: object, reached: set[str]) -> None:
    assert classes(a_fleet_of(a_pool(machine=machine))) == reached


def test_class_with_swap_requires_machine_with_swap() -> None:
    sizes = {"swappy": {"cores": 2, "memory": "4GiB", "disk": "40GiB", "swap": "64GiB"}}
    plain = a_fleet_of(a_pool(machine="ccx33"), sizes=sizes)
    swapping = a_fleet_of(a_pool(machine={"type": "ccx33", "swap": "64GiB"}), sizes=sizes)

    assert (classes(plain), classes(swapping)) == (set(), {"swappy"})


def test_declared_numbers_are_from_catalogue() -> None:
    pool = a_pool(machine={"type": "ccx53", "swap": "64GiB"})

    offer = offer_of_pool(a_fleet_of(pool, tags=FIGURES), "builders", ())

    assert dict(offer.numbers) == {
        "cores": Decimal(32),
        "memory_gib": Decimal(128),
        "disk_gib": Decimal(600),
        "swap_gib": Decimal(64),
    }
    assert offer_of_pool(a_fleet_of(pool), "builders", ()).numbers == ()


def test_unstated_figure_is_omitted() -> None:
    pool = a_pool(machine={"cores": 8, "memory": "16GiB"})

    assert set(figures_of(a_fleet_of(pool), pool)) == {"cores", "memory_gib"}


def test_machine_has_architectures_of_real_workers() -> None:
    assert architectures(a_fleet()) == {"amd64", "i386"}
    assert architectures(arm("cax31")) == {"arm64", "armhf"}


def test_machine_outside_catalogue_has_architecture_of_image() -> None:
    assert architectures(arm({"cores": 8, "memory": "16GiB"})) == {"arm64"}


def test_image_with_fewer_architectures_narrows_machine() -> None:
    booted = ImageVersion(
        image="trixie", version="1", ids={"hetzner": "1"}, provides=(f"{ARCH}amd64",)
    )

    assert architectures(a_fleet(), booted) == {"amd64"}


def test_image_of_other_architecture_serves_no_request() -> None:
    fleet = a_fleet_of(a_pool(machine="cax31"))

    assert architectures(fleet) == set()


def test_boot_test_tag_contradicting_machine_does_not_count() -> None:
    booted = ImageVersion(
        image="trixie", version="1", ids={"hetzner": "1"}, provides=(f"{ARCH}s390x", "x")
    )

    doubts = find_doubts(a_fleet(), "builders", [booted])

    assert [(doubt.kind, doubt.tag) for doubt in doubts] == [("contradiction", f"{ARCH}s390x")]
    assert "x" in offer_of_pool(a_fleet(), "builders", [booted]).provides


@pytest.mark.parametrize(
    ("said", "counts", "doubts"),
    [("31", 32, 0), ("33.5", 32, 0), ("30.4", 32, 0), ("16", 16, 1), ("64", 32, 1)],
)
def test_nominal_figure_counts_within_tolerance_or_else_the_lower(
    said: str, counts: int, doubts: int
) -> None:
    fleet = a_fleet_of(a_pool(provides=[f"memory_gib={said}"]), tags=FIGURES)

    offer = offer_of_pool(fleet, "builders", ())

    assert dict(offer.numbers)["memory_gib"] == counts
    assert len(find_doubts(fleet, "builders", ())) == doubts


def test_worker_has_figures_of_its_machine() -> None:
    worker = a_worker(provides=("x",))

    offer = offer_of_worker(a_fleet(tags=FIGURES), "builders", (), worker)

    assert dict(offer.numbers)["cores"] == 8
    assert offer.provides == {"x"}


def test_reported_foreign_architecture_does_not_count() -> None:
    worker = a_worker(provides=(f"{ARCH}amd64", f"{ARCH}s390x"))

    assert offer_of_worker(a_fleet(), "builders", (), worker).provides == {f"{ARCH}amd64"}
    assert len(find_doubts(a_fleet(), "builders", (), worker)) == 1


def test_tag_counts_only_from_permitted_source() -> None:
    tags = {"power": {"provided_by": ["pool"]}, f"{ARCH}*": {"provided_by": ["machine"]}}
    fleet = a_fleet_of(a_pool(provides=["power"]), tags=tags)
    other = a_fleet(tags=tags)
    worker = a_worker(provides=("power", f"{ARCH}amd64"))

    assert "power" in offer_of_pool(fleet, "builders", ()).provides
    assert offer_of_worker(other, "builders", (), worker).provides == {f"{ARCH}amd64"}
    assert [doubt.kind for doubt in find_doubts(other, "builders", (), worker)] == [
        "not-permitted"
    ]


def test_exact_tag_precedes_longest_prefix() -> None:
    tags = {
        "worker:*": {"asked_by": ["system"], "exclusive": True},
        "worker:class:*": {"asked_by": ["rules"]},
        "worker:class:big": {"on_demand": True},
    }
    vocabulary = Vocabulary(a_fleet(tags=tags))

    assert vocabulary.asked_by("worker:cap:sbuild")[0] == ["system"]
    assert vocabulary.asked_by("worker:class:small")[1] == ("tags", "worker:class:*", "asked_by")
    assert vocabulary.is_on_demand("worker:class:big")
    assert not vocabulary.is_on_demand("worker:class:small")
    assert vocabulary.is_exclusive("worker:class:big")
    assert vocabulary.asked_by("other") == (None, ())


def test_narrower_rule_inherits_askers_of_wider_one() -> None:
    tags = {"worker:*": {"asked_by": ["system"]}, "worker:class:big": {"on_demand": True}}

    assert Vocabulary(a_fleet(tags=tags)).asked_by("worker:class:big")[0] == ["system"]


TINY = {"tiny": {"cores": 1, "memory": "1GiB", "disk": "1GiB"}}
OF_MACHINE = ("pools", "builders", "machine")


def test_provided_tag_has_its_source_and_key() -> None:
    image = {"trixie": {"suite": "trixie", "architecture": "amd64", "provides": ["sbuild"]}}
    fleet = a_fleet_of(
        a_pool(provides=["x"]), tags={"cores": {"kind": "number"}}, images=image, sizes=TINY
    )

    told = pool_sources(fleet, "builders", ())

    assert [(each.tag, each.source, each.path) for each in told] == [
        ("worker:type:external", "machine", OF_MACHINE),
        ("worker:build-arch:amd64", "machine", OF_MACHINE),
        ("worker:build-arch:i386", "machine", OF_MACHINE),
        ("worker:class:tiny", "machine", OF_MACHINE),
        ("cores=8", "machine", OF_MACHINE),
        ("sbuild", "image", ("images", "trixie", "provides", 0)),
        ("x", "pool", ("pools", "builders", "provides", 0)),
    ]


def test_boot_test_tags_replace_configured_image_tags() -> None:
    image = {"trixie": {"suite": "trixie", "architecture": "amd64", "provides": ["sbuild"]}}
    booted = ImageVersion(image="trixie", version="1", ids={"hetzner": "1"}, provides=("lintian",))

    told = pool_sources(a_fleet(images=image), "builders", [booted])

    assert [(each.tag, each.path) for each in told if each.source == "image"] == [
        ("lintian", ("images", "trixie"))
    ]


def test_tag_of_one_permitted_source_counts_without_doubt() -> None:
    image = {"trixie": {"suite": "trixie", "architecture": "amd64", "provides": ["power"]}}
    tags = {"power": {"provided_by": ["pool"]}}
    fleet = a_fleet_of(a_pool(provides=["power"]), images=image, tags=tags)

    assert find_doubts(fleet, "builders", ()) == ()
    assert "power" in offer_of_pool(fleet, "builders", ()).provides


@pytest.mark.parametrize(
    ("allowed", "may"), [([], "nothing"), (["image", "worker"], "image, worker")]
)
def test_tag_of_forbidden_source_names_permitted_ones(allowed: list[str], may: str) -> None:
    fleet = a_fleet_of(a_pool(provides=["power"]), tags={"power": {"provided_by": allowed}})

    (doubt,) = find_doubts(fleet, "builders", ())

    path = ("pools", "builders", "provides", 0)
    assert (doubt.kind, doubt.tag, doubt.path) == ("not-permitted", "power", path)
    assert "tags.power.provided_by" in doubt.because
    assert doubt.because.endswith(may)


def test_doubt_about_worker_tag_names_its_key() -> None:
    fleet = a_fleet(tags={"power": {"provided_by": ["pool"]}})

    (doubt,) = find_doubts(fleet, "builders", (), a_worker(provides=("power",)))

    assert doubt.path == ("tags", "power", "provided_by")


@pytest.mark.parametrize(
    ("machine", "tag", "names"),
    [
        ("ccx33", f"{ARCH}s390x", ["ccx33", "amd64 and i386"]),
        ({"type": ["ccx33", "cax31"]}, f"{ARCH}s390x", ["ccx33 or cax31"]),
        ("ccx33", "worker:class:big", ["ccx33", "medium, small"]),
        ({"cores": 1, "memory": "1GiB"}, "worker:class:big", ["none"]),
        ("ccx33", "worker:type:celery", ["worker:type:external"]),
    ],
)
def test_doubt_names_the_machine_when_a_worker_contradicts_it(
    machine: object, tag: str, names: list[str]
) -> None:
    fleet = a_fleet_of(a_pool(machine=machine))

    (doubt,) = find_doubts(fleet, "builders", (), a_worker(provides=(tag,)))

    assert (doubt.kind, doubt.tag, doubt.path) == ("contradiction", tag, ())
    assert all(name in doubt.because for name in (tag, *names))


def test_undefined_class_is_not_contradicted() -> None:
    worker = a_worker(provides=("worker:class:quiet", "big"))

    assert find_doubts(a_fleet(), "builders", (), worker) == ()


def test_unknown_machine_contradicts_no_tag() -> None:
    fleet = a_fleet(pools={"builders": a_pool(machine="nope"), "legacy": {"static": ["old"]}})
    worker = a_worker(provides=(f"{ARCH}s390x",))

    assert find_doubts(fleet, "builders", (), worker) == ()
    assert find_doubts(fleet, "legacy", (), worker) == ()


def test_pool_without_declared_image_has_machine_architectures() -> None:
    assert architectures(a_fleet(images={})) == {"amd64", "i386"}
    assert architectures(a_fleet_of(a_pool(machine="nope"), images={})) == set()


def test_contradicted_figure_is_a_doubt_with_both_values() -> None:
    fleet = a_fleet_of(a_pool(provides=["memory_gib=64"]), tags=FIGURES)

    (doubt,) = find_doubts(fleet, "builders", ())

    path = ("pools", "builders", "provides", 0)
    assert (doubt.kind, doubt.tag, doubt.path) == ("contradiction", "memory_gib=64", path)
    words = re.findall(r"memory_gib|pool|machine|\d+", doubt.because)
    assert " ".join(words) == "memory_gib 32 pool 64 machine 32"


def test_unstated_figures_are_compared_with_the_first() -> None:
    fleet = a_fleet(tags={"disks": {"kind": "number"}}, pools={"legacy": {"static": ["old"]}})
    worker = a_worker(provides=("disks=2", "disks=4"))

    (doubt,) = find_doubts(fleet, "legacy", (), worker)

    words = re.findall(r"disks|worker|\d+", doubt.because)
    assert " ".join(words) == "disks 2 worker 4 worker 2"


def test_static_pool_provides_configured_tags_only() -> None:
    fleet = a_fleet(pools={"legacy": {"static": ["old"], "provides": ["x"]}})

    offer = offer_of_pool(fleet, "legacy", ())

    assert (offer.provides, offer.requires) == (frozenset({"x"}), frozenset())


def test_pool_requires_configured_tags() -> None:
    fleet = a_fleet_of(a_pool(requires=["task:fleet:powerful"]))

    assert offer_of_pool(fleet, "builders", ()).requires == {"task:fleet:powerful"}


def test_image_narrows_architectures_provided_by_machine_only() -> None:
    fleet = a_fleet(tags={f"{ARCH}*": {"provided_by": ["machine"]}})
    booted = ImageVersion(
        image="trixie", version="1", ids={"hetzner": "1"}, provides=(f"{ARCH}amd64",)
    )

    assert architectures(fleet) == {"amd64", "i386"}
    assert architectures(fleet, booted) == {"amd64"}
