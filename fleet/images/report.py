"""Render images, their versions and their builds as text, and due steps as GitLab jobs.

GitLab refuses a pipeline without jobs: if no step is due, the pipeline has one job that says this.
"""

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime

import yaml

from fleet.images.promote import ImageList, ListedImage, PromotionResult
from fleet.images.prune import Pruning
from fleet.images.records import BuildStep, Publishing, VersionTests
from fleet.model.images import DueReport, Manifest, Transfer, Version, describe_old_worker
from fleet.model.values import Value
from fleet.report.document import (
    BLANK,
    Block,
    Column,
    ColumnKind,
    Line,
    Lines,
    Style,
    StyledText,
    Table,
    bold,
    line,
    row,
)
from fleet.words.figures import many, named, since, time
from fleet.words.images import describe_waiting
from fleet.words.runs import add_code

_MB = 1_000_000
_STYLES = {"current": Style.GREEN, "candidate": Style.CYAN, "failed": Style.RED}
_NOT_DECLARED = {"no": "not in fleet.yaml", "existing": "baked elsewhere", "recipe": ""}


def list_blocks(listed: ImageList, now: datetime) -> Iterator[Block]:
    """Yield a table with a row per version, and with a row per image without versions."""
    columns = [
        *map(Column, ("IMAGE", "VERSION", "STATE", "AGE", "AT")),
        Column("FAILURES", ColumnKind.PROSE, style=Style.RED),
    ]
    rows = []
    for image in listed.images:
        failures = Lines([f"pool {pool}: {said}" for pool, said in image.troubles.items()])
        if not image.versions:
            without = _NOT_DECLARED[image.declared] or "no version"
            without += ", failed" if image.troubles else ""
            rows.append(row(image.image, "-", without, "", "", failures))
        for nth, version in enumerate(image.versions):
            style = _STYLES.get(version.state, Style.PLAIN)
            places = ", ".join(sorted(version.publications)) or "-"
            state = line(StyledText(state_of(image, version), style))
            age, failed = since(version.built_at, now), "" if nth else failures
            rows.append(row(image.image, version.version, state, age, places, failed))
    yield Table(columns, rows)


def image_blocks(image: ListedImage) -> Iterator[Block]:
    """Yield a block for each version of an image."""
    said = [_NOT_DECLARED[image.declared], named("pool", image.pools) if image.pools else ""]
    about = "; ".join(filter(None, said))
    yield (*bold(f"image {image.image}"), StyledText(f": {about}" if about else ""))
    for version in image.versions:
        yield from (BLANK, *_block(image, version))
    if not image.versions:
        yield line("no version yet")
    if image.waiting:
        yield line(f"{describe_waiting(image.waiting)}; {image.waiting.command}")
    troubles = image.troubles.items()
    yield from (line(StyledText(f"pool {p}", Style.RED), f": {said}") for p, said in troubles)


def state_of(image: ListedImage, version: Version) -> str:
    """Return the state of a version, with the share of a candidate and a note if pinned."""
    share = f" {version.share}%" if version.state == "candidate" else ""
    return f"{version.state}{share}{', pinned' if image.pinned == version.version else ''}"


def _block(image: ListedImage, version: Version) -> Iterator[Block]:
    """Yield the details of a version, one per line."""
    style = _STYLES.get(version.state, Style.PLAIN)
    yield line(
        StyledText(version.version, Style.BOLD), "  ", StyledText(state_of(image, version), style)
    )
    by = f"{time(version.built_at)}, by {version.built_by}"
    commit = f", from commit {version.commit}" if version.commit else ""
    pairs = [
        ("since", time(version.since)),
        ("built", by + commit),
        ("because", version.why),
        ("digest", version.digest),
        ("recipe", version.recipe_digest),
        ("role", version.role_digest),
        ("worker", version.worker),
        ("provides", ", ".join(version.provides)),
        ("unproven", ", ".join(version.unproven or ())),
    ]
    pairs += [
        (
            "published" if upload.verified else "uploading",
            f"{place}: {upload.id}, {time(upload.at)}",
        )
        for place, upload in sorted(version.publications.items())
    ]
    rows = [row(f"  {key}", text) for key, text in pairs if text]
    yield Table((Column("What", style=Style.DIM), Column("Value")), rows, is_list=True)


def due_to_lines(report: DueReport) -> Iterator[Line]:
    """Yield each image with its due steps, the reasons, and the commands to run."""
    for image in report.images:
        style, state = Style.YELLOW if image.is_due else Style.GREEN, "due"
        if not image.steps:
            state = "nothing is due"
        elif image.waits:
            until = f"; retried from {time(image.waits_until)}" if image.waits_until else ""
            state = f"due, but {image.waits}{until}"
        yield line(f"image {image.image}: ", StyledText(state, style))
        yield from (line("  ", add_code(each.because, each.reason)) for each in image.causes)
        if image.rebuild:
            yield line(f"  {image.rebuild}")
        if image.unknown:
            yield line("  ", StyledText("unknown", Style.YELLOW), f": {image.unknown}")
        if image.steps and image.serving:
            yield line(f"  machines boot {image.serving} meanwhile")
        if image.waiting:
            yield line(f"  {describe_waiting(image.waiting)}; {image.waiting.command}")
        if image.is_due:
            yield from (line(f"  $ {command}") for command in image.commands)
    if not report.images:
        yield line("fleet.yaml has no image that fleet bakes")


def to_child_pipeline(
    report: DueReport, builds: str, *, file: str, job: Mapping[str, object]
) -> str:
    """Return the pipeline as YAML; `builds` is the folder of builds relative to the checkout.

    `job` has the GitLab keys that every job gets, such as its image; empty keys are left out.
    """
    due = [image for image in report.images if image.is_due]
    jobs = {
        f"image {image.image}": {
            "stage": "images",
            "resource_group": f"image-{image.image}",
            "interruptible": False,
            "timeout": "3 hours",
            # Tokens that may publish are scoped to this environment.
            "environment": {"name": "fleet", "action": "access"},
            "script": [f"{command} --file {shlex.quote(file)}" for command in image.commands],
            "artifacts": {
                "when": "always",
                "expire_in": "30 days",
                "access": "developer",
                "paths": [
                    f"{builds}/{image.image}/*/{name}"
                    for name in ("build.log", "manifest.json", "sbom.spdx.json")
                ],
            },
        }
        for image in due
    }
    nothing = {"nothing is due": {"stage": "images", "script": ["echo no image is due"]}}
    pipeline: dict[str, object] = {"stages": ["images"]}
    given = {key: value for key, value in job.items() if value}
    for name, own in (jobs or nothing).items():
        pipeline[name] = {**own, **given, "script": own["script"]}
    return yaml.safe_dump(pipeline, sort_keys=False, allow_unicode=True, width=1000)


class BuildResult(Value):
    """The result of an image build."""

    folder: str
    manifest: Manifest
    same_base: bool | None = None
    """True if a second build was bit-identical before the role ran; None without one."""
    differences: tuple[tuple[str, str, str], ...] = ()
    """(Path, difference, reason) of each differing file."""


def step_to_text(step: BuildStep) -> str:
    """Return the current step of a build, with the time since the build started."""
    minutes, seconds = divmod(int(step.seconds), 60)
    doing = f"{step.phase} · {step.task}" if step.task else step.phase
    return f"{minutes}:{seconds:02} {doing}"


def built_to_lines(result: BuildResult) -> Iterator[Line]:
    """Yield the result of a build: version, folder, duration, files and the next command."""
    manifest = result.manifest
    took = sum(manifest.seconds.values())
    yield line(f"built {manifest.image} {manifest.version} in {took:.0f} s: {result.folder}")
    yield line(f"  digest    {manifest.digest}")
    yield line(f"  packages  {len(manifest.packages)}")
    for name, file in manifest.files.items():
        yield line(f"  {name:16}  {file.size / _MB:8.1f} MB  sha256 {file.sha256}")
    phases = (f"{name} {seconds:.1f} s" for name, seconds in manifest.seconds.items())
    yield line(f"  phases    {', '.join(phases)}")
    if result.same_base is not None:
        same = "is the same to the last bit" if result.same_base else "DIFFERS"
        yield line(f"built twice: the base root file system {same}")
        count = len(result.differences)
        differ = "differs" if count == 1 else "differ"
        yield line(f"in the finished one {many(count, 'file')} {differ}")
        for path, what, why in result.differences:
            yield line(f"  {path}  ({what}): {why}")
    if old := describe_old_worker(manifest.image, manifest.worker):
        yield line(f"warning: {old}; no rule promotes this version")
    if manifest.tests:
        yield line("no problem found in its machine; it is tested")
    verb = "publish" if manifest.tests else "test"
    yield line(f"next: fleet image {verb} {manifest.image} {manifest.version}")


_DID = {"offline": "checked", "boot": "booted", "jobs": "ran its jobs"}


def tested_to_lines(tested: VersionTests) -> Iterator[Line]:
    """Yield the state of the version, then the result of each test."""
    yield (*bold(f"image {tested.image} {tested.version}"), StyledText(f": {tested.state}"))
    for test in tested.tests:
        found = many(len(test.problems), "problem") if test.problems else "no problem"
        style = Style.RED if test.problems else Style.GREEN
        tags = f"; its worker provides {many(len(test.provides), 'tag')}" if test.provides else ""
        if not test.nothing_run:
            done = f"{_DID[test.kind]} in {test.seconds:.0f} s: "
            yield line(done, StyledText(found, style), tags)
        yield from (line(f"  - {problem}") for problem in test.problems)
        proven = (job for job in test.jobs if job.is_proven)
        yield from (line(f"  proven: {job.name}, {job.seconds:.0f} s") for job in proven)
    yield from (line(f"note: {note}") for note in tested.notes)


def promotion_to_lines(promotion: PromotionResult) -> Iterator[Line]:
    """Yield each version whose state changes, then each pool that boots the image."""
    yield bold(f"image {promotion.image}")
    for move in promotion.moves:
        share = f" ({move.share}% of each pool)" if move.share else ""
        state = StyledText(f"{move.now}{share}", Style.BOLD)
        yield line(f"  {move.version}  {move.was or 'new'} -> ", state)
    for pool in promotion.pools:
        held = many(pool.held, "machine")
        replaced = f"none of its {held} is replaced"
        if pool.replaced:
            at = f" ({', '.join(pool.windows)})" if pool.windows else ""
            count, verb = len(pool.replaced), "is" if len(pool.replaced) == 1 else "are"
            replaced = f"{count} of its {held} {verb} replaced, {pool.at_a_time}% at a time{at}"
        boots = pool.boots or "what fleet.yaml names"
        yield line(f"pool {pool.pool}: new machines boot {boots}; {replaced}")
    if not promotion.pools:
        yield line("no pool uses it")
    for unknown in promotion.unknown:
        yield line(StyledText(f"unknown: {unknown}", Style.YELLOW))
    if not promotion.done:
        yield line("nothing was changed (--dry-run)")


def pruning_to_lines(pruning: Pruning) -> Iterator[Line]:
    """Yield each version with the reason to keep it, or with the uploads that are deleted."""
    gone = [each for each in pruning.versions if not each.kept]
    verb = "Deleted" if pruning.done else "Would delete"
    yield line(StyledText(f"{verb} {many(len(gone), 'version')} of images", Style.BOLD))
    for each in pruning.versions:
        name = f"  {each.image} {each.version} ({each.state})"
        if each.kept:
            yield line(StyledText("  keep  ", Style.GREEN), name.strip(), f": {each.kept}")
        else:
            places = (f", {place} {upload}" for place, upload in sorted(each.places.items()))
            yield line(StyledText("- delete", Style.RED), name[1:], "".join(places))
    for found in pruning.forgotten:
        name = f" {found.image} {found.version} at {found.place}, {found.id}: no version"
        if found.kept:
            yield line(StyledText("? found", Style.YELLOW), f"{name} in the store; {found.kept}")
        else:
            yield line(StyledText("- delete", Style.RED), f"{name} in the store")
    for place, why in sorted(pruning.unlisted.items()):
        yield line(StyledText("? found", Style.YELLOW), f" contents of {place} unknown: {why}")


def publishing_to_lines(publishing: Publishing) -> Iterator[Line]:
    """Yield a line per provider or store, and a line per object removed there."""
    what = f"{publishing.image} {publishing.version}".rstrip()
    for each in publishing.places:
        yield from (line(f"{each.place}: removed {removed}") for removed in each.removed)
        if each.error:
            yield line(f"{each.place}: failed: {each.error}")
        elif each.id:
            yield line(f"{each.place}: {what} is published as {each.id}")
        elif not each.removed:
            yield line(f"{each.place}: no remains found")


def transfer_to_text(place: str, transfer: Transfer) -> str:
    """Return the progress of an upload."""
    done, total = f"{transfer.done / _MB:,.1f}", f"{transfer.total / _MB:,.1f}"
    return f"{place}: {transfer.phase}: {done} of {total} MB"
