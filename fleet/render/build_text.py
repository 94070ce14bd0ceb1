"""This module renders a build of an image: what it is doing, and what came of it."""

from collections.abc import Iterator

from fleet.facts.manifest import BuildStep, Manifest
from fleet.facts.values import Value
from fleet.render.words import many


class BuildResult(Value):
    """What a build gave."""

    folder: str
    manifest: Manifest
    same_base: bool | None = None
    """Whether a second base was the same to the last bit; None: none was made."""
    differences: tuple[tuple[str, str, str], ...] = ()
    """Path, what differs, why."""


def step_to_text(step: BuildStep) -> str:
    """Return what a build is doing, and since when it runs."""
    minutes, seconds = divmod(int(step.seconds), 60)
    doing = f"{step.phase} · {step.task}" if step.task else step.phase
    return f"{minutes}:{seconds:02} {doing}"


def built_to_text(result: BuildResult) -> str:
    """Return what was built, where it lies and what it took."""
    return "\n".join(_lines(result))


def _lines(result: BuildResult) -> Iterator[str]:
    manifest = result.manifest
    took = sum(manifest.seconds.values())
    yield f"built {manifest.image} {manifest.version} in {took:.0f} s: {result.folder}"
    yield f"  digest    {manifest.digest}"
    yield f"  packages  {len(manifest.packages)}"
    for name, file in manifest.files.items():
        yield f"  {name:16}  {file.size / 1_000_000:8.1f} MB  sha256 {file.sha256}"
    phases = (f"{name} {seconds:.1f} s" for name, seconds in manifest.seconds.items())
    yield f"  phases    {', '.join(phases)}"
    if result.same_base is not None:
        same = "is the same to the last bit" if result.same_base else "DIFFERS"
        yield f"built twice: the base root file system {same}"
        count = len(result.differences)
        yield f"in the finished one {many(count, 'file')} {'differs' if count == 1 else 'differ'}"
        for path, what, why in result.differences:
            yield f"  {path}  ({what}): {why}"
    if manifest.tests:
        yield "its machine was looked into: no problem; it is tested"
    verb = "publish" if manifest.tests else "test"
    yield f"next: fleet image {verb} {manifest.image} {manifest.version}"
