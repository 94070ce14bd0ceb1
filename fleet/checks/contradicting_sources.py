"""This module finds what is said of a machine that the machine itself contradicts."""

from collections.abc import Iterator

from fleet.catalogue import find_types
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.offers import find_doubts
from fleet.tagrules.sizes import native_architectures


def contradicting_sources(fleet: Fleet) -> Iterator[Finding]:
    """Require that image, pool and machine say the same of architecture, class and figures."""
    # Many pools are alike: what agrees in one need not be weighed again in the next.
    agreeing: set[object] = set()
    for name, pool in fleet.pools.items():
        alike = None
        if isinstance(pool, Pool):
            yield from _architecture(fleet, name, pool)
            if isinstance(pool.machine, str):
                alike = (pool.provider, pool.machine, pool.image, tuple(pool.provides))
        if alike in agreeing:
            continue
        doubts = find_doubts(fleet, name, ())
        if alike is not None and not doubts:
            agreeing.add(alike)
        for doubt in doubts:
            if doubt.kind == "contradiction":
                yield Finding(
                    "contradicting-sources",
                    doubt.because,
                    doubt.path,
                    hint="keep the one that is true",
                )


def _architecture(fleet: Fleet, name: str, pool: Pool) -> Iterator[Finding]:
    image = fleet.images.get(pool.image)
    for machine in find_types(fleet, pool) if image is not None else ():
        native = native_architectures((machine,))
        if image is None or image.architecture in native:
            continue
        yield Finding(
            "contradicting-sources",
            f"image {pool.image} is for {image.architecture}, but machine {machine.name} runs "
            f"{' and '.join(native)}",
            ("pools", name, "image"),
            hint="name an image of the machine's architecture, or another machine",
        )
