"""`fleet import debusine`: what a real 0.16.2 lists, and what only the server knows."""

import pytest

from fleet.migrate.from_debusine import import_debusine
from fleet.migrate.reading import Imported
from tests.migrate.reading import wrong


def of_text(specifications: str, limits: str = "{}") -> Imported:
    text = (
        f"- {{name: p, provider_account: a, limits: {limits}, specifications: {specifications}}}"
    )
    return import_debusine("pools.yaml", text.encode(), "demo")


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (import_debusine("p", b"{}", "demo"), "p:1:1: wrong-type"),
        (import_debusine("p", b"", "demo"), "p:1:1: wrong-type"),
        (import_debusine("p", b"- 1", "demo"), "p:1:3: wrong-type"),
        (import_debusine("p", b"\xff", "demo"), "p:1:1: not-text"),
        (of_text("{provider_type: gcp}"), "pools.yaml:1:78: wrong-value"),
        (
            of_text("{provider_type: hetzner}"),
            "pools.yaml:1:62: missing-key",
        ),
        (of_text("{provider_type: aws}"), "pools.yaml:1:62: missing-key"),
        (
            of_text("{provider_type: dummy}", "{max_active_instances: many}"),
            "pools.yaml:1:65: wrong-type",
        ),
    ],
)
def test_yaml_that_is_not_a_listing_is_refused(found: Imported, finding: str) -> None:
    assert wrong(found)[0].startswith(finding)
