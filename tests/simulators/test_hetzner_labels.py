"""Labels and label selectors mean at the simulated Hetzner what they mean at the real one."""

import pytest
from hcloud.helpers.labels import LabelValidator

from simulators.hetzner.labels import check_labels, read_selector
from simulators.hetzner.wire import Refused

LABELS = {"fleet": "demo", "pool": "builders", "empty": ""}


@pytest.mark.parametrize(
    ("selectors", "match"),
    [
        ("fleet=demo; fleet==demo; fleet == demo; fleet!=demo-two; fleet; !absent; empty=", True),
        ("absent!=anything; fleet in (demo,other); fleet notin (other, third)", True),
        ("absent notin (other); fleet==demo,pool in (builders,large),!absent", True),
        ("fleet=dem; fleet!=demo; absent; !fleet; absent=; fleet in (other)", False),
        ("fleet notin (demo); fleet==demo,pool==large", False),
    ],
)
def test_selector_matches_only_its_labels(selectors: str, *, match: bool) -> None:
    for selector in selectors.split("; "):
        assert read_selector(selector)(LABELS) is match, selector


@pytest.mark.parametrize(
    "selector",
    ["fleet=demo,", "fleet===demo", "fleet in demo", "fleet in (a b)", "a b", "fleet>1"],
)
def test_malformed_selector_is_refused(selector: str) -> None:
    with pytest.raises(Refused, match="is not well formed"):
        read_selector(selector)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fleet", "demo"),
        ("fleet", ""),
        ("example.org/fleet", "a.b-c_d"),
        ("k" * 63, "v" * 63),
        ("k" * 64, "v"),
        ("k", "v" * 64),
        ("-k", "v"),
        ("k", "v-"),
        ("", "v"),
        ("k", "two words"),
        ("k", "ü"),
        ("a/b/c", "v"),
        ("k\n", "v"),
    ],
)
def test_labels_are_validated_like_in_official_client(key: str, value: str) -> None:
    official = LabelValidator.validate({key: value}) and not key.endswith("\n")

    try:
        taken = check_labels({key: value}) == {key: value}
    except Refused:
        taken = False

    assert taken is official


@pytest.mark.parametrize("labels", [["fleet"], {"fleet": 1}])
def test_labels_must_map_names_to_strings(labels: object) -> None:
    with pytest.raises(Refused, match="invalid input in field 'labels'"):
        check_labels(labels)
