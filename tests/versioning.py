"""This module builds image versions for tests: name only what matters to the sentence."""

from fleet.versions import Version
from tests.builders import ago


def a_version(**overrides: object) -> Version:
    """Return a tested version of `trixie` that was built two hours ago."""
    defaults = {
        "image": "trixie",
        "version": "20261121T060000Z",
        "state": "tested",
        "digest": "d1",
        "recipe_digest": "r1",
        "role_digest": "a1",
        "since": ago(hours=1),
        "built_at": ago(hours=2),
        "built_by": "ci",
    }
    return Version.model_validate(defaults | overrides)
