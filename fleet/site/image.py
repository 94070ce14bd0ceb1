"""The page of images: versions with places of publication and machines, and due steps."""

from collections.abc import Iterator
from datetime import datetime

from fleet.model.facts import Unknown
from fleet.model.images import DueImage
from fleet.report.document import (
    Block,
    Items,
    Line,
    Section,
    Style,
    StyledText,
    TableOf,
    Title,
    bold,
    line,
    red,
)
from fleet.schema.findings import some_of
from fleet.site.pages import IMAGES, Page, Shown, alarm, quiet
from fleet.site.versions import ImageStory, ShownVersion
from fleet.words import figures as words
from fleet.words.images import describe_waiting

_DECLARED = {"recipe": "", "no": " (not in fleet.yaml)", "existing": " (baked elsewhere)"}


def images(shown: Shown) -> Iterator[Page]:
    """Yield the page of images."""
    title = Title(line("Images"))
    if isinstance(shown.images, Unknown):
        yield Page(IMAGES, [title, alarm(f"Images: unknown. {shown.images.unknown}")])
        return
    sections = [
        Section(f"{each.image}{_DECLARED[each.declared]}", _image(shown, each), f"image-{nth}")
        for nth, each in enumerate(shown.images, 1)
    ]
    note = quiet("Newer packages in mirrors are not looked at here: `fleet image due` does.")
    content = [*sections, note] if sections else [line("No images are configured.")]
    yield Page(IMAGES, [title, *content])


def _image(shown: Shown, image: ImageStory) -> list[Block]:
    now, pools = shown.status.time, shown.addresses.of_pools(image.pools)
    versions = (
        TableOf(image.versions)
        .name("Version", lambda each: each.fact.version)
        .prose("State", _state)
        .text("For", lambda each: _write_age(each.fact.since, now), fold=1)
        .text(
            "Age",
            lambda each: _write_age(each.record.built_at if each.record else None, now),
            fold=1,
        )
        .figure("Machines", lambda each: str(each.machines))
        .text("Published at", lambda each: ", ".join(sorted(each.fact.ids)) or "-")
    )
    older = f"{words.many(image.hidden, 'older version')} not shown." if image.hidden else ""
    none = "" if image.versions or image.declared == "existing" else "No version yet."
    return [
        line("Booted by ", *pools) if pools else line("No pool uses it."),
        Items([*_due(image.due, image.commands)] if image.due else []),
        versions,
        quiet(older or none),
    ]


def _write_age(since: datetime | None, now: datetime) -> str:
    return words.since(since, now) if since else words.UNKNOWN


def _state(version: ShownVersion) -> Line:
    fact, record = version.fact, version.record
    share = f" {fact.share}%" if fact.share and fact.state == "candidate" else ""
    pinned = " (pinned)" if version.is_pinned else ""
    why = f": {record.why}" if record and record.why else ""
    return line(f"{fact.state}{share}{pinned}", red(why))


def _due(due: DueImage, commands: tuple[str, ...]) -> Iterator[Line]:
    """Yield the causes of the due steps, what they wait for, and the commands to run."""
    for cause in due.causes:
        code = StyledText(cause.reason.value, Style.CODE)
        yield (*bold("Due: "), *line(f"{cause.because} ", code))
    until = f"; retried from {words.time(due.waits_until)}" if due.waits_until else ""
    run = some_of([f"`{each}`" for each in commands], shown=len(commands))
    waiting = due.waiting
    texts = (
        "" if due.causes else "Nothing is due.",
        f"Not now: {due.waits}{until}" if due.causes and due.waits else "",
        due.rebuild if due.causes else "",
        f"Run {run}" if due.causes and run else "",
        f"{describe_waiting(waiting)}; `{waiting.command}`" if waiting else "",
    )
    yield from map(line, filter(None, texts))
