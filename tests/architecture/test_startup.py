"""What a quick command may load: nothing that only another command needs."""

import sys
from pathlib import Path

import pytest

from tests.rigs.process import ROOT, RunFleet, clean_environment, run_process
from tests.rigs.trial import Trial

EXAMPLE = ROOT / "examples/tutorial"
"""A fleet.yaml without a pattern to match."""
HEAVY = {
    "aiohttp",
    "ansible",
    "boto3",
    "botocore",
    "hcloud",
    "highspy",
    "httpx",
    "jinja2",
    "pulumi",
    "pulumi_aws",
    "pulumi_hcloud",
    "re2",
    "sqlalchemy",
}
PROBE = """
import os, sys
from fleet.__main__ import main
try:
    main()
except SystemExit:
    pass
loaded = {name.partition(".")[0] for name in sys.modules}
print("LOADED", *loaded, *(["a thread"] if len(os.listdir("/proc/self/task")) > 1 else []))
"""


def loaded_by(folder: Path, *arguments: str) -> set[str]:
    probed = run_process(
        *(sys.executable, "-c", PROBE), *arguments, cwd=folder, env=clean_environment(folder)
    )
    words = probed.stdout.splitlines()[-1].split()
    assert words[0] == "LOADED", probed.stderr
    return set(words[1:])


def test_help_loads_no_library(tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "--help")

    assert loaded & (HEAVY | {"pydantic", "yaml", "shtab"}) == set()


@pytest.mark.parametrize("arguments", [["validate"], ["schema"]])
def test_validate_loads_no_heavy_module(arguments: list[str]) -> None:
    loaded = loaded_by(EXAMPLE, *arguments)

    assert "pydantic" in loaded
    assert loaded & HEAVY == set()


def test_patterns_are_loaded_only_for_an_allow_list(tmp_path: Path) -> None:
    text = "fleet: demo\npowerful: [{match: a, ask: [b]}]\n"
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")

    assert "re2" in loaded_by(tmp_path, "validate")


@pytest.mark.parametrize("arguments", [["plan"], ["explain", "request", "--all"]])
def test_plan_of_a_recording_needs_no_database_and_no_thread(arguments: list[str]) -> None:
    loaded = loaded_by(EXAMPLE, *arguments, "--world", "world.json")

    assert "pydantic" in loaded
    assert loaded & HEAVY <= {"highspy"}
    assert "thread" not in loaded


@pytest.mark.slow
def test_plugin_of_simulated_provider_loads_no_planner(tmp_path: Path) -> None:
    module = "fleet.clouds.sim.plugin"
    program = f"import sys, {module}; print(*(m for m in sys.modules if m.startswith('fleet.')))"
    command = (sys.executable, "-c", program)

    loaded = run_process(*command, cwd=tmp_path, env=clean_environment(tmp_path)).stdout.split()

    assert module in loaded
    assert set(loaded) & {"fleet.reconcile", "fleet.guard", "fleet.explain"} == set()


@pytest.mark.slow
def test_read_of_a_stack_loads_no_engine(tmp_path: Path) -> None:
    read = "from fleet.engines.projects import load_project; load_project('aws')"
    command = (sys.executable, "-c", f"import sys; {read}; print(*sys.modules)")

    loaded = run_process(*command, cwd=tmp_path, env=clean_environment(tmp_path)).stdout.split()

    assert "fleet.engines.projects" in loaded
    assert set(loaded) & {"pulumi", "pulumi_aws"} == set()


@pytest.mark.slow
def test_ticket_service_loads_modules_before_first_call(tmp_path: Path) -> None:
    program = """
import sys
from fleet.program import main
from fleet.tickets.serve import load_ahead
from fleet.schema.load import load
from fleet.state.files import LocalFiles
load_ahead(load("fleet.yaml", LocalFiles()).fleet)
ahead = set(sys.modules)
main(["apply"])
print("later:", *{name.partition(".")[0] for name in set(sys.modules) - ahead})
"""
    trial = Trial(tmp_path)
    trial.init()
    trial.wait_for("one")

    said = run_process(
        sys.executable, "-c", program, cwd=tmp_path, env=clean_environment(tmp_path)
    )

    assert "+ created 1: trial-builders-0001" in said.stdout
    later = said.stdout.partition("later:")[2].split()
    # A service has opened its store before it loads ahead.
    assert set(later) & {*HEAVY, "grpc", "numpy", "google"} <= {"sqlalchemy"}


@pytest.mark.slow
def test_store_loads_only_its_database_driver(tmp_path: Path) -> None:
    opening = "from fleet.state.store import Store as S; S('sqlite:///s', 'd').init()"
    command = (sys.executable, "-c", f"import sys; {opening}; print(*sys.modules)")

    loaded = run_process(*command, cwd=tmp_path, env=clean_environment(tmp_path)).stdout.split()

    assert "sqlalchemy.dialects.sqlite" in loaded
    assert "sqlalchemy.dialects.postgresql" not in loaded


def test_help_names_every_exit_code(run_fleet: RunFleet) -> None:
    printed = run_fleet("--help")

    assert printed.returncode == 0
    codes = printed.stdout.partition("exit codes:")[2]
    assert [line.split()[0] for line in codes.strip().splitlines()] == [
        *("0", "1", "2", "3", "4", "5", "130")
    ]
