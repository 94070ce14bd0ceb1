"""This module says which images a change of fleet.yaml makes due, and what follows from that."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fleet.facts import World
from fleet.facts.recipes import recipe_digest
from fleet.facts.values import Value
from fleet.making.rebuilds import describe_rebuild
from fleet.plan import Plan, Replaced
from fleet.schema.model import Fleet, ImageRecipe, Pool
from fleet.schema.pools import Promote
from fleet.schema.units import write_duration


class ImageChange(Value):
    """An image that is due because of the change: no machine boots it as it is written now."""

    image: str
    change: Literal["added", "recipe changed"]
    build: str = Field(
        description="What a build took last, where, and what it cost, as far as that is known."
    )
    promotion: str = Field(description="How the new version reaches machines.")
    replaces: tuple[Replaced, ...] = Field((), description="The machines that it replaces then.")


def find_image_changes(
    base: Fleet, head: Fleet, world: World, plan: Plan
) -> tuple[ImageChange, ...]:
    """Return the images that `fleet image due` names because of the change; `plan` is its own."""
    return tuple(_find(base, head, world, plan))


def _find(base: Fleet, head: Fleet, world: World, plan: Plan) -> Iterator[ImageChange]:
    for name, recipe in sorted(head.images.items()):
        before = base.images.get(name)
        if not isinstance(recipe, ImageRecipe):
            continue
        old = recipe_digest(before) if isinstance(before, ImageRecipe) else ""
        if old == recipe_digest(recipe):
            continue
        yield ImageChange(
            image=name,
            change="recipe changed" if old else "added",
            build=describe_rebuild(head, world.versions, name),
            promotion=_promotion(name, recipe),
            replaces=tuple(_replaced(head, plan, name)),
        )


def _promotion(name: str, recipe: ImageRecipe) -> str:
    rule = recipe.promotion
    if recipe.version is not None:
        return f"no machine boots it: images.{name}.version pins {recipe.version}"
    if isinstance(rule, Promote):
        after = write_duration(rule.after)
        return f"first on {rule.candidate}% of each pool's workers, after {after} everywhere"
    return "at once" if rule == "tested" else f"by hand: fleet image promote {name}"


def _replaced(fleet: Fleet, plan: Plan, image: str) -> Iterator[Replaced]:
    for verdict in plan.pools:
        pool = fleet.pools.get(verdict.pool)
        machines = verdict.busy + verdict.idle + verdict.starting + verdict.other
        if isinstance(pool, Pool) and pool.image == image and machines:
            yield Replaced(
                pool=verdict.pool,
                machines=machines,
                at_a_time=pool.replace.at_a_time,
                windows=tuple(pool.replace.windows),
            )
