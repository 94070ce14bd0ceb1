"""This module says what a recipe of fleet.yaml means: variables of the Ansible role, a digest."""

from fleet.canonical import digest
from fleet.schema.pools import ImageRecipe

PREFIX = "debusine_worker_"
"""What every variable of the role begins with."""

_BESIDE = {"provides", "rebuild", "publish", "promote", "version"}
"""Keys that say when an image is baked, where it goes and what it offers, not what is in it."""
_API = "/api"


def role_variables(recipe: ImageRecipe) -> dict[str, object]:
    """Return what the role debusine_worker is given for the root of this image.

    Every variable that fleet.yaml can set is named, also where it has the role's default.
    """
    variables: dict[str, object] = {
        "source": (recipe.source or "").strip(),
        "enable_backends": sorted(set(recipe.enable_backends)),
        "enable_tasks": sorted(set(recipe.enable_tasks)),
        "extra_packages": sorted(set(recipe.packages)),
        "version": recipe.worker_version or "",
        "swap_mebibytes": recipe.swap or 0,
        "api_url": _api_url(recipe.api_url),
        "start": False,
    }
    return {PREFIX + name: value for name, value in variables.items()}


def recipe_digest(recipe: ImageRecipe) -> str:
    """Return the digest of all that goes into the image; neither order nor defaults count.

    A key that says nothing leaves no trace, so that keys yet to come change no digest.
    """
    written = recipe.model_dump(mode="json", exclude=_BESIDE)
    written |= {"api_url": _api_url(recipe.api_url), "source": (recipe.source or "").strip()}
    kept = {key: value for key, value in written.items() if value not in (None, "", [], {}, False)}
    return digest({key: _unordered(value) for key, value in kept.items()})


def _unordered(value: object) -> object:
    return sorted(set(value)) if isinstance(value, list) else value


def _api_url(server: str | None) -> str:
    """Return the root of a server's API; people name it as well as the server itself."""
    return f"{server.rstrip('/').removesuffix(_API)}{_API}" if server else ""
