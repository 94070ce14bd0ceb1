"""The role debusine_worker: its options, its defaults, what it refuses before its first task."""

import json
import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from fleet.schema import pools
from tests.rigs.process import ROOT, Completed, clean_environment, run_process

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
    tmp_path: Path,
    *arguments: str,
    inventory: str = "localhost,",
    book: Path = ROOT / "ansible" / "worker.yml",
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
        *("--inventory", inventory, "--connection", "local"),
        *arguments,
        book,
        cwd=ROOT,
        env=environment,
    )


def test_options_are_documented_with_defaults_of_earlier_images() -> None:
    readme = (ROLE / "README.md").read_text(encoding="utf-8")
    found = options()

    assert read("defaults/main.yml") == {name: each["default"] for name, each in found.items()}
    assert [name for name in found if f"| `{name}` |" not in readme] == []
    assert found["debusine_worker_source"]["type"] == "str"
    assert found["debusine_worker_enable_backends"]["default"] == ["unshare"]
    assert found["debusine_worker_enable_tasks"]["default"] == ["autopkgtest", "sbuild"]


def test_role_has_exactly_executors_and_tasks_of_fleet_yaml() -> None:
    packages = read("vars/main.yml")

    backends = list(get_args(pools.Backend))
    tasks = list(get_args(pools.Task))

    assert options()["debusine_worker_enable_backends"]["choices"] == backends
    assert options()["debusine_worker_enable_tasks"]["choices"] == tasks
    assert list(packages["debusine_worker_packages_of_backend"]) == backends
    assert list(packages["debusine_worker_packages_of_task"]) == tasks


SOURCE = "Types: deb\nURIs: https://deb.example.org/debusine\nSuites: trixie\nComponents: main\n"


WRONG: dict[str, dict[str, object]] = {
    "backends": {"enable_backends": ["docker"]},
    "keyless": {"source": SOURCE},
    "unheld": {"source": f"{SOURCE}Signed-By: /nowhere/debusine.gpg"},
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each target of a play says, of which each has something wrong."""
    folder = tmp_path_factory.mktemp("wrong")
    inventory = folder / "targets.json"
    targets = {
        target: {f"debusine_worker_{name}": value for name, value in wrong.items()}
        for target, wrong in WRONG.items()
    }
    everywhere = {"ansible_become": False}
    inventory.write_text(json.dumps({"all": {"hosts": targets, "vars": everywhere}}))

    played = play(folder, "--check", inventory=str(inventory))

    assert played.returncode == 2, played.stderr
    lines = played.stdout.splitlines()
    return {
        target: "\n".join(line for line in lines if re.search(rf"^{target} |\[{target}\]", line))
        for target in WRONG
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("backends", "value of debusine_worker_enable_backends must be one"),
        ("keyless", "debusine_worker_source names no key"),
        ("unheld", "signed by /nowhere/debusine.gpg, which the target does not hold"),
    ],
)
def test_wrong_option_is_refused_before_any_change(
    refused: dict[str, str], target: str, message: str
) -> None:
    assert message in refused[target]
    assert re.search(r"changed=0 .* failed=1 ", refused[target])
