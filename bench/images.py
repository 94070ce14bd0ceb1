"""Measure baking: from nothing to a compressed disk, and again on an unchanged base.

It bakes the recipe of the example fleet.yaml, from the archive that this machine's apt installs
from, in a folder of its own: minutes, with root or subordinate ids.
"""

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.report import Report
from fleet.images.disk import DiskBuilder
from fleet.images.folder import version_at
from fleet.images.records import BuildOrder
from fleet.model.images import Manifest
from fleet.schema.pools import ImageRecipe
from tests.images.mirrors import mirror_options

RECIPE = ImageRecipe(suite="trixie", architecture="amd64")


def measure() -> Report:
    """Return seconds per phase of a first and a second build, and how they compare."""
    options = mirror_options()
    mirror = options[options.index("--mirror") + 1] if "--mirror" in options else None
    # Not /tmp, which may be memory: a root takes gigabytes.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        builder = DiskBuilder(
            images=Path(folder, "images"),
            cache=Path(folder, "cache"),
            mirror=mirror,
            snapshot="--snapshot" in options,
        )
        first, first_seconds = bake(builder, 1)
        second, second_seconds = bake(builder, 2)
    return Report(
        name="images",
        figures={
            "first_s": first_seconds,
            "second_s": second_seconds,
            **{f"first_{phase}_s": seconds for phase, seconds in first.seconds.items()},
            **{f"second_{phase}_s": seconds for phase, seconds in second.seconds.items()},
            "disk_mb": first.files["disk.qcow2"].size / 1_000_000,
        },
        ratios={"first_over_second_build": first_seconds / second_seconds},
        floors={"first_over_second_build": 3},
    )


def bake(builder: DiskBuilder, number: int) -> tuple[Manifest, float]:
    """Return what a build gave, and the seconds it took."""
    now = datetime.now(UTC).replace(second=number)
    order = BuildOrder(
        image="trixie-amd64",
        version=version_at(now),
        recipe=RECIPE,
        built_at=now,
        built_by="bench",
    )
    began = time.monotonic()
    manifest, _ = builder.build(order, lambda _: None)
    return manifest, time.monotonic() - began
