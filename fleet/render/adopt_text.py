"""This module renders what `fleet adopt` takes into a pool."""

from collections.abc import Iterator

from fleet.adoption import Adopted, Adoption
from fleet.render.terminal import Line, Span, Style, line, lines_to_text
from fleet.render.words import many


def adoption_to_text(adoption: Adoption, *, applies: bool, colour: bool) -> str:
    """Return the machines that are taken, how they differ, and what becomes of them next."""
    return lines_to_text(list(_lines(adoption, applies=applies)), colour=colour)


def _lines(adoption: Adoption, *, applies: bool) -> Iterator[Line]:
    count = many(len(adoption.machines), "machine")
    what = f"{'Adopting' if applies else 'Would adopt'} {count} of {adoption.provider}"
    headline = f"{what} into pool {adoption.pool}" if adoption.machines else "Nothing to adopt"
    yield line(Span(headline, Style.BOLD))
    for each in adoption.machines:
        yield from _machine(each)
    if adoption.already:
        yield line(f"  in the pool already: {', '.join(adoption.already)}")


def _machine(adopted: Adopted) -> Iterator[Line]:
    machine = adopted.machine
    yield line(
        "  ",
        Span("+ adopt", Style.GREEN),
        f"  {machine.name}  {machine.type}, image {machine.image}, id {machine.id}",
    )
    for difference in adopted.differs:
        yield line("      ", Span(f"! outdated: {difference}", Style.YELLOW))
    yield line(f"      next apply: {adopted.next}")
