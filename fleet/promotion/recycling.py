"""This module foresees which machines are replaced when versions of an image move."""

from collections.abc import Iterable, Iterator

from pydantic import Field

from fleet.facts import World
from fleet.facts.values import Value
from fleet.facts.versions import Move, State
from fleet.making.image_choice import images_by_pool
from fleet.plan import Plan, PoolVerdict
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool


class MovedVersion(Value):
    """A version that comes into another state."""

    version: str
    was: State | None = Field(description="None: nobody knew of it before.")
    now: State
    share: int = Field(0, description="As a candidate, of each pool's workers, in percent.")


class Recycled(Value):
    """What a promotion means for one pool."""

    pool: str
    boots: str = Field(description="Version of its next machines; empty where it is not known.")
    replaced: tuple[str, ...] = Field((), description="Workers that are replaced because of it.")
    held: int = Field(description="Machines that it has.")
    at_a_time: int = Field(description="At most this share of the pool at once, in percent.")
    windows: tuple[str, ...] = ()


class Promotion(Value):
    """What moves, and what comes of it."""

    image: str
    moves: tuple[MovedVersion, ...]
    pools: tuple[Recycled, ...]
    unknown: tuple[str, ...] = Field((), description="What could not be read, and what it stops.")
    done: bool = Field(description="False: it was only looked at.")


def foresee(fleet: Fleet, world: World, moves: Iterable[Move], *, done: bool) -> Promotion:
    """Return what moves, and the machines that the next plans replace because of it."""
    moved = {(move.now.image, move.now.version): move.now.fact for move in moves}
    versions = {(each.image, each.version): each for each in world.versions} | moved
    later = world.model_copy(update={"images": tuple(versions.values())})
    before, after = reconcile(fleet, world), reconcile(fleet, later)
    (image,) = {move.now.image for move in moves}
    return Promotion(
        image=image,
        moves=tuple(
            MovedVersion(
                version=move.now.version,
                was=move.was.state if move.was else None,
                now=move.now.state,
                share=move.now.share,
            )
            for move in moves
        ),
        pools=tuple(_recycled(fleet, later, image, before, after)),
        unknown=after.unknown,
        done=done,
    )


def _recycled(
    fleet: Fleet, world: World, image: str, before: Plan, after: Plan
) -> Iterator[Recycled]:
    boots = images_by_pool(fleet, world)
    held = {verdict.pool: _held(verdict) for verdict in after.pools}
    outdated = [
        {worker.worker for worker in plan.workers if worker.outdated} for plan in (before, after)
    ]
    for name, pool in sorted(fleet.pools.items()):
        if isinstance(pool, Pool) and pool.image == image:
            workers = [worker.worker for worker in after.workers if worker.pool == name]
            chosen = boots[name][:1]
            yield Recycled(
                pool=name,
                boots=chosen[0].version if chosen else "",
                replaced=tuple(sorted({*workers} & outdated[1] - outdated[0])),
                held=held.get(name, 0),
                at_a_time=pool.replace.at_a_time,
                windows=tuple(pool.replace.windows),
            )


def _held(verdict: PoolVerdict) -> int:
    return verdict.busy + verdict.idle + verdict.starting + verdict.other
