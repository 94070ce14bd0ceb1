"""The fault tables tell what tests saw: a row whose test is gone would stay for ever."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.faults import seen, test_aws, test_hetzner, test_own_side

TRIED: dict[str, Iterable[str]] = {"Hetzner": test_hetzner.CASES, "Aws": test_aws.CASES}


def faults_told(cloud: str) -> list[str]:
    return [seen.without_moments(entry) for entry in seen.table_of(cloud)[1]]


@pytest.mark.parametrize("cloud", TRIED)
def test_each_row_of_fault_table_has_a_tested_fault(cloud: str) -> None:
    folder = Path(seen.__file__).parent
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in (*folder.glob("test_*.py"), Path(seen.__file__))
    ]
    named = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert [fault for fault in faults_told(cloud) if fault not in named] == []


@pytest.mark.parametrize("cloud", TRIED)
def test_each_tested_fault_has_one_row(cloud: str) -> None:
    told = faults_told(cloud)

    assert len(told) == len(set(told))
    assert set(TRIED[cloud]) <= set(told)


def test_each_tested_own_fault_has_a_row_per_cloud() -> None:
    clouds = {"at_aws": "Aws"}

    tried = {(fault, clouds.get(beginning, "Hetzner")) for fault, beginning in test_own_side.TRIED}

    assert tried <= {(fault, cloud) for cloud in TRIED for fault in faults_told(cloud)}
