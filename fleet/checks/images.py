"""What is wrong or unwise in recipes of images."""

from collections.abc import Iterator

from fleet.model.apt_sources import problems
from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import Fleet, ImageRecipe, StaticPool


def unknown_image(fleet: Fleet) -> Iterator[Finding]:
    """Require that the image of a pool is declared under `images`."""
    for name, pool in fleet.pools.items():
        if isinstance(pool, StaticPool) or pool.image in fleet.images:
            continue
        yield Finding(
            "unknown-image",
            f"there is no image '{pool.image}'",
            ("pools", name, "image"),
            hint=did_you_mean(pool.image, fleet.images)
            or f"declare it: images: {{{pool.image}: …}}",
        )


SUITES = ("bookworm", "trixie", "sid")
"""The releases of Debian that the role was run on."""

_OTHER_NAMES = {"oldstable": "bookworm", "stable": "trixie", "unstable": "sid"}


def unknown_suite(fleet: Fleet) -> Iterator[Finding]:
    """Require that fleet knows the suite of an image, by its code name."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.suite not in SUITES:
            meant = _OTHER_NAMES.get(image.suite)
            yield Finding(
                "unknown-suite",
                f"fleet cannot build images of suite '{image.suite}'",
                ("images", name, "suite"),
                hint=f"did you mean '{meant}'?" if meant else did_you_mean(image.suite, SUITES),
            )


_WITHOUT = {"bookworm": "bookworm-backports"}


def worker_not_in_suite(fleet: Fleet) -> Iterator[Finding]:
    """Require a source of an image whose suite holds no worker."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.source is None and image.suite in _WITHOUT:
            yield Finding(
                "worker-not-in-suite",
                f"{image.suite} has no debusine-worker",
                ("images", name, "suite"),
                hint=f"add a source that has it, for example {_WITHOUT[image.suite]}",
            )


def source_without_key(fleet: Fleet) -> Iterator[Finding]:
    """Require that every source names the public key that signs it."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.source is not None:
            for problem in problems(image.source):
                if problem.keyless:
                    path = ("images", name, "source")
                    yield Finding(
                        "source-without-key",
                        problem.message,
                        path,
                        hint=problem.hint,
                        part=problem.part,
                    )


def wrong_source(fleet: Fleet) -> Iterator[Finding]:
    """Require that every source is one in deb822 form, with all that apt needs of it."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.source is not None:
            for problem in problems(image.source):
                if not problem.keyless:
                    path = ("images", name, "source")
                    yield Finding(
                        "wrong-source", problem.message, path, hint=problem.hint, part=problem.part
                    )
