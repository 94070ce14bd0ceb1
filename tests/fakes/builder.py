"""A fake of the port ImageBuilder: it writes the folder of a version."""

from collections.abc import Callable
from pathlib import Path

from fleet.errors import BuildFailed
from fleet.images import folder
from fleet.model.images import BuildOrder, BuildStep, Manifest


class FakeImageBuilder:
    """Bakes a disk of a few bytes, or fails as it is told."""

    def __init__(self, images: Path) -> None:
        self._images = images
        self.fails = ""

    def check_ready(self, order: BuildOrder) -> None:
        del order

    def build(self, order: BuildOrder, tell: Callable[[BuildStep], None]) -> tuple[Manifest, None]:
        with folder.drafting(self._images, order, tell) as draft:
            tell(BuildStep(phase="base", seconds=0))
            if self.fails:
                raise BuildFailed(self.fails)
            (draft.folder / folder.QCOW2).write_bytes(b"a disk")
            return folder.finish_build(draft.folder, _manifest(order))[1], None


def _manifest(order: BuildOrder) -> Manifest:
    return Manifest(
        image=order.image,
        version=order.version,
        way="disk",
        suite=order.debian.suite,
        architecture=order.debian.architecture,
        recipe_digest="r1",
        role_digest="a1",
        digest="d1",
        built_at=order.built_at,
        built_by=order.built_by,
        commit=order.commit,
        seconds={"base": 0},
    )
