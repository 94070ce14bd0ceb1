"""A request has a link to its page at the queue's server."""

import pytest

from fleet.site.pages import queue_page
from tests.builders import a_fleet, a_request

FLEET = a_fleet(
    queues={
        "debian": {"kind": "debusine", "url": "https://debusine.example/", "scopes": ["debian"]},
        "copr": {"kind": "copr", "url": "https://copr.example"},
        "old": {"kind": "world", "path": "world.json"},
    }
)


@pytest.mark.parametrize(
    ("key", "page"),
    [
        ("debian/12", "https://debusine.example/debian/b%20c/work-request/12/"),
        ("debian/12#2", ""),
        ("copr/12-fedora-rawhide-x86_64", "https://copr.example/coprs/build/12/"),
        ("old/12", ""),
        ("gone/12", ""),
    ],
)
def test_request_links_to_its_page_at_the_queue(key: str, page: str) -> None:
    name = key.partition("/")[2].partition("#")[0]
    request = a_request(id=name, scope="debian", workspace="b c")

    assert queue_page(FLEET, key, request) == page


def test_request_without_a_workspace_has_no_link() -> None:
    request = a_request(id="12", scope="debian", workspace=None)

    assert queue_page(FLEET, "debian/12", request) == ""
