"""This module finds servers that are sent tokens over connections that anybody can read."""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from fleet.schema.findings import Finding, Path
from fleet.schema.model import DebusineQueue, Fleet, ImageRecipe

_IN_CLEAR = re.compile(r"http://(\[[^]]+\]|[^/:?#]+)")


def token_in_clear(fleet: Fleet) -> Iterator[Finding]:
    """Require https of a server that gets tokens of ours or of workers, but for this computer."""
    for path, url in _told_tokens(fleet):
        found = _IN_CLEAR.match(url)
        host = found[1].strip("[]") if found else ""
        if found and not _is_here(host):
            yield Finding(
                "token-in-clear",
                f"tokens for {host} would go over the network in clear",
                path,
                hint="write https://; a server of this computer, as localhost, may be http://",
            )


def _told_tokens(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    for name, queue in fleet.queues.items():
        if isinstance(queue, DebusineQueue) and (queue.token or queue.admin):
            yield ("queues", name, "url"), queue.url
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.api_url:
            yield ("images", name, "api_url"), image.api_url


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
