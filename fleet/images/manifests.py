"""This module writes the manifest of what was just built, whichever way it was."""

from collections.abc import Mapping
from typing import Literal

from fleet.canonical import digest
from fleet.facts.manifest import BuildOrder, Manifest, Package
from fleet.facts.recipes import recipe_digest
from fleet.images.role import role_digest


def manifest_of(
    order: BuildOrder,
    way: Literal["disk", "instance", "debusine"],
    packages: tuple[Package, ...],
    seconds: Mapping[str, float],
) -> Manifest:
    """Return the manifest of a build, before its files are known; `seconds` is by phase."""
    recipe, role = recipe_digest(order.recipe), role_digest()
    versions = [[each.name, each.version, each.architecture] for each in packages]
    return Manifest(
        image=order.image,
        version=order.version,
        way=way,
        suite=order.recipe.suite,
        architecture=order.recipe.architecture,
        recipe_digest=recipe,
        role_digest=role,
        digest=digest([recipe, role, versions]),
        built_at=order.built_at,
        built_by=order.built_by,
        commit=order.commit,
        seconds=dict(seconds),
        packages=packages,
    )
