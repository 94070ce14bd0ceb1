"""The role debusine_worker: its options, its defaults, what it refuses before its first task."""

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from fleet.schema import pools
from tests.process import ROOT, Completed, clean_environment, run_process

ROLE = ROOT / "ansible" / "roles" / "debusine_worker"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")


def read(name: str) -> Any:  # noqa: ANN401 - any YAML
    return yaml.safe_load((ROLE / name).read_text(encoding="utf-8"))


def options() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read("meta/argument_specs.yml")["argument_specs"]["main"][
        "options"
    ]
    return found


def play(tmp_path: Path, *arguments: str) -> Completed:
    environment = clean_environment(
        tmp_path,
        {
            "ANSIBLE_HOME": str(tmp_path / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "PATH": f"{PLAYBOOK.parent}:/usr/bin:/bin:/usr/sbin:/sbin",
            # ansible's own warnings are not ours to turn into errors
            "PYTHONWARNINGS": "ignore",
        },
    )
    return run_process(
        PLAYBOOK,
        *("--inventory", "localhost,", "--connection", "local"),
        *arguments,
        ROOT / "ansible" / "worker.yml",
        cwd=ROOT,
        env=environment,
    )


def test_the_play_is_valid_ansible(tmp_path: Path) -> None:
    checked = play(tmp_path, "--syntax-check")

    assert (checked.returncode, checked.stderr) == (0, "")


def test_every_default_is_the_documented_one() -> None:
    documented = {name: option["default"] for name, option in options().items()}

    assert read("defaults/main.yml") == documented


def test_the_options_that_images_were_promised_keep_their_words_and_defaults() -> None:
    assert options()["debusine_worker_source"]["type"] == "str"
    assert options()["debusine_worker_enable_backends"]["default"] == ["unshare"]
    assert options()["debusine_worker_enable_tasks"]["default"] == ["autopkgtest", "sbuild"]


def test_the_role_knows_exactly_the_executors_and_tasks_of_fleet_yaml() -> None:
    packages = read("vars/main.yml")

    backends = list(get_args(pools.Backend))
    tasks = list(get_args(pools.Task))

    assert options()["debusine_worker_enable_backends"]["choices"] == backends
    assert options()["debusine_worker_enable_tasks"]["choices"] == tasks
    assert list(packages["debusine_worker_packages_of_backend"]) == backends
    assert list(packages["debusine_worker_packages_of_task"]) == tasks


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("enable_backends", ["docker"], "value of debusine_worker_enable_backends must be one"),
        ("enable_tasks", ["lintian"], "value of debusine_worker_enable_tasks must be one"),
        ("swap_mebibytes", "plenty", "argument 'debusine_worker_swap_mebibytes' is of type"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_touched(
    tmp_path: Path, name: str, value: object, message: str
) -> None:
    extra = json.dumps({f"debusine_worker_{name}": value, "ansible_become": False})

    played = play(tmp_path, "--check", "--extra-vars", extra)

    assert played.returncode == 2
    assert message in played.stdout
    assert "changed=0" in played.stdout


def test_a_source_that_is_not_deb822_is_refused(tmp_path: Path) -> None:
    extra = json.dumps(
        {
            "debusine_worker_source": "deb https://deb.example.org/debusine trixie main",
            "ansible_become": False,
        }
    )

    played = play(tmp_path, "--check", "--extra-vars", extra)

    assert played.returncode == 2
    assert "debusine_worker_source is not a deb822 APT source" in played.stdout
    assert "changed=0" in played.stdout
