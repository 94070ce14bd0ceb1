"""Versions of packages are ordered as Debian orders them."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from fleet.images.due import version_key
from tests.rigs.process import clean_environment, run_process

# From deb-version(7) and the tests of dpkg: each is older than the next.
ASCENDING = (
    "0~rc1",
    "0",
    "0.9",
    "0.10",
    "0.16.1-1~bpo12+1",
    "0.16.1-1",
    "0.16.1-1+b1",
    "0.16.1-1+deb13u1",
    "0.16.2~~",
    "0.16.2~",
    "0.16.2",
    "0.16.2-1",
    "0.16.2a",
    "0.16.2+dfsg",
    "0.16.2-1-1",
    "2026.9",
    "2026.10",
    "1:0.1",
    "10:0",
)


@pytest.mark.parametrize(("older", "newer"), tuple(pairwise(ASCENDING)))
def test_versions_are_ordered_as_debian_orders_them(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


@pytest.mark.parametrize(("one", "other"), [("0:1.0", "1.0"), ("1.01", "1.1"), ("1.0-0", "1.0")])
def test_what_only_looks_different_is_equal(one: str, other: str) -> None:
    assert version_key(one) == version_key(other)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="the order is NOT COMPARED with dpkg's")
def test_dpkg_orders_them_alike(tmp_path: Path) -> None:
    order = "&&".join(f"dpkg --compare-versions {a} lt {b}" for a, b in pairwise(ASCENDING))

    done = run_process("sh", "-c", order, cwd=tmp_path, env=clean_environment(tmp_path))

    assert done.returncode == 0
