"""A stand-in for one pass of Resalloc's assignment, written from measured facts.

Its data model: tickets and resources, each with rows of tags, loaded one by one as its objects are
touched. Its pass: each waiting ticket in a transaction of its own, which reads all ready resources
again and the tags of each until one fits. The number of statements is what was counted of
Resalloc 6.3 for the same input, which a test holds it to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
)


class _Base(DeclarativeBase):
    pass


class _Ticket(_Base):
    __tablename__ = "tickets"
    id: Mapped[int] = mapped_column(primary_key=True)
    resource_id: Mapped[int | None] = mapped_column(sa.ForeignKey("resources.id"), index=True)
    state: Mapped[str] = mapped_column(index=True)
    sandbox: Mapped[str | None]
    tags: Mapped[list["_TicketTag"]] = relationship()


class _TicketTag(_Base):
    __tablename__ = "ticket_tags"
    id: Mapped[str] = mapped_column(primary_key=True)
    ticket_id: Mapped[int] = mapped_column(sa.ForeignKey("tickets.id"), primary_key=True)


class _Resource(_Base):
    __tablename__ = "resources"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    pool: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    check_failed_count: Mapped[int] = mapped_column(default=0)
    ticket_id: Mapped[int | None] = mapped_column(unique=True)
    sandbox: Mapped[str | None]
    releases_counter: Mapped[int] = mapped_column(default=0)
    tags: Mapped[list["_ResourceTag"]] = relationship()


class _ResourceTag(_Base):
    __tablename__ = "resource_tags"
    id: Mapped[str] = mapped_column(primary_key=True)
    resource_id: Mapped[int] = mapped_column(sa.ForeignKey("resources.id"), primary_key=True)
    priority: Mapped[int] = mapped_column(default=0)


_PREFER_SANDBOX = 500


@dataclass
class Done:
    """What a pass did."""

    assigned: int
    statements: int


@contextmanager
def filled(url: str, *, waiting: int, ready: int, fitting: bool) -> Iterator[sa.Engine]:
    """Yield a database with so many waiting tickets in 50 sandboxes, and ready resources."""
    engine = sa.create_engine(url)
    _Base.metadata.drop_all(engine)
    _Base.metadata.create_all(engine)
    arch = "arch_x86_64" if fitting else "arch_s390x"
    with Session(engine) as session, session.begin():
        session.add_all(
            _Resource(
                id=number,
                name=f"copr_builder_{number:08}",
                pool="pool",
                state="UP",
                tags=[_ResourceTag(id=tag) for tag in ("copr_builder", arch)],
            )
            for number in range(1, ready + 1)
        )
        session.add_all(
            _Ticket(
                id=number,
                state="OPEN",
                sandbox=f"owner/project-{number % 50}--submitter",
                tags=[_TicketTag(id=tag) for tag in ("copr_builder", "arch_x86_64")],
            )
            for number in range(1, waiting + 1)
        )
    try:
        yield engine
    finally:
        _Base.metadata.drop_all(engine)
        engine.dispose()


def assign_tickets(engine: sa.Engine) -> Done:
    """Carry out one pass."""
    statements = 0

    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    sa.event.listen(engine, "before_cursor_execute", count)
    try:
        with Session(engine) as session:
            queue = session.scalars(_waiting().with_only_columns(_Ticket.id)).all()
            seen = set(session.scalars(_ready().with_only_columns(_Resource.id)).all())
        assigned = sum(_assign_one(engine, number, seen) for number in queue)
    finally:
        sa.event.remove(engine, "before_cursor_execute", count)
    return Done(assigned, statements)


def _waiting() -> sa.Select[_Ticket]:
    is_waiting = (_Ticket.state == "OPEN", _Ticket.resource_id.is_(None))
    return sa.select(_Ticket).where(*is_waiting).order_by(_Ticket.id)


def _ready() -> sa.Select[_Resource]:
    is_ready = (
        _Resource.state == "UP",
        _Resource.ticket_id.is_(None),
        _Resource.check_failed_count == 0,
    )
    return sa.select(_Resource).where(*is_ready).order_by(_Resource.id)


def _assign_one(engine: sa.Engine, number: int, seen: set[int]) -> bool:
    with Session(engine) as session, session.begin():
        ticket = session.scalars(sa.select(_Ticket).where(_Ticket.id == number)).one()
        wanted = {tag.id for tag in ticket.tags}
        resources: list[_Resource] = list(session.scalars(_ready()))
        best: tuple[int, _Resource] | None = None
        for resource in resources:
            if resource.id not in seen or resource.sandbox not in (None, ticket.sandbox):
                continue
            provided = {tag.id: tag.priority for tag in resource.tags}
            if not wanted <= provided.keys():
                continue
            score = sum(provided[tag] for tag in wanted)
            score += _PREFER_SANDBOX if resource.sandbox else 0
            if best is None or score > best[0]:
                best = (score, resource)
        if best is None:
            if resources:
                session.scalars(
                    sa.select(_TicketTag.id).where(_TicketTag.ticket_id == number)
                ).all()
            return False
        resource = best[1]
        ticket.resource_id, resource.ticket_id = resource.id, ticket.id
        resource.sandbox = ticket.sandbox
        session.flush()
        session.scalars(sa.select(_Resource.name).where(_Resource.id == resource.id)).all()
        return True
