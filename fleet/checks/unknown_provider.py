"""This module finds names of providers that nothing declares."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, Path, did_you_mean
from fleet.schema.model import Fleet, ImageRecipe, Pool


def unknown_provider(fleet: Fleet) -> Iterator[Finding]:
    """Require that a provider named by a pool or an image is declared under `providers`."""
    for path, name, at_key in _named(fleet):
        if name not in fleet.providers:
            yield Finding(
                "unknown-provider",
                f"there is no provider '{name}'",
                path,
                at="key" if at_key else "value",
                hint=did_you_mean(name, fleet.providers)
                or f"declare it: providers: {{{name}: …}}",
            )


def _named(fleet: Fleet) -> Iterator[tuple[Path, str, bool]]:
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe):
            for number, place in enumerate(image.publish):
                if "://" not in place:
                    yield ("images", name, "publish", number), place, False
        else:
            for provider in image.existing:
                yield ("images", name, "existing", provider), provider, True
    for name, pool in fleet.pools.items():
        if isinstance(pool, Pool):
            yield ("pools", name, "provider"), pool.provider, False
