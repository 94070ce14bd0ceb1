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


def play(
    tmp_path: Path, *arguments: str, book: Path = ROOT / "ansible" / "worker.yml"
) -> Completed:
    environment = clean_environment(
        tmp_path,
        {
            "ANSIBLE_HOME": str(tmp_path / "ansible"),
            "ANSIBLE_ROLES_PATH": str(ROLE.parent),
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
        book,
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


def test_every_option_is_named_where_people_look_first() -> None:
    readme = (ROLE / "README.md").read_text(encoding="utf-8")

    assert [name for name in options() if f"| `{name}` |" not in readme] == []


def test_the_role_knows_exactly_the_executors_and_tasks_of_fleet_yaml() -> None:
    packages = read("vars/main.yml")

    backends = list(get_args(pools.Backend))
    tasks = list(get_args(pools.Task))

    assert options()["debusine_worker_enable_backends"]["choices"] == backends
    assert options()["debusine_worker_enable_tasks"]["choices"] == tasks
    assert list(packages["debusine_worker_packages_of_backend"]) == backends
    assert list(packages["debusine_worker_packages_of_task"]) == tasks


SOURCE = "Types: deb\nURIs: https://deb.example.org/debusine\nSuites: trixie\nComponents: main\n"


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (
            "enable_backends",
            ["docker"],
            "value of debusine_worker_enable_backends must be one",
        ),
        ("source", SOURCE, "debusine_worker_source names no key"),
        (
            "source",
            f"{SOURCE}Signed-By: /nowhere/debusine.gpg",
            "signed by /nowhere/debusine.gpg, which the target does not hold",
        ),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_touched(
    tmp_path: Path, name: str, wrong: object, message: str
) -> None:
    extra = json.dumps({f"debusine_worker_{name}": wrong, "ansible_become": False})

    played = play(tmp_path, "--check", "--extra-vars", extra)

    assert played.returncode == 2
    assert message in " ".join(played.stdout.split())
    assert "changed=0" in played.stdout
