"""What to run for a missing extra is what installed fleet."""

import sys

import pytest

from fleet import errors
from fleet.errors import add_extra


@pytest.mark.parametrize(
    ("prefix", "pip", "run"),
    [
        (
            "/home/a/.local/share/pipx/venvs/fleet-reconciler",
            object(),
            "pipx runpip fleet-reconciler",
        ),
        ("/home/a/my fleet", object(), "'/home/a/my fleet/bin/python' -m pip"),
        ("/home/a/pipx-less/env", object(), "/home/a/pipx-less/env/bin/python -m pip"),
        (
            "/home/a/.local/share/uv/tools/fleet-reconciler",
            None,
            "uv pip install --python /home/a/.local/share/uv/tools/fleet-reconciler/bin/python",
        ),
    ],
)
def test_hint_adds_extra_with_the_installer_in_use(
    prefix: str, pip: object, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "executable", f"{prefix}/bin/python")
    monkeypatch.setattr(errors, "find_spec", lambda _: pip)

    said = add_extra("aws,s3")

    assert said.startswith(f"run `{run}")
    assert said.endswith(" 'fleet-reconciler[aws,s3]'`")
