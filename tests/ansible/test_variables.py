"""What the role makes of its options: which sources it takes, which packages it installs.

All cases are asked in one play, for each takes Ansible seconds to begin.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.model.apt_sources import problems
from tests.ansible.test_debusine_worker import ROLE, play

pytestmark = pytest.mark.slow

HEAD = "Types: deb\nURIs: https://deb.example.org/debusine\nSuites: trixie\nComponents: main\n"
BLOCK = "PGP PUBLIC KEY BLOCK-----\n"
KEY = f"-----BEGIN {BLOCK} .\n mDMEZ0u9fxYJ\n -----END {BLOCK}"
INLINE = f"Signed-By:\n {KEY}"

TAKEN = {
    "an inline key": HEAD + INLINE,
    "an inline key on the line of its field": HEAD + f"Signed-By: {KEY}",
    "several sources": f"# one\n\n{HEAD}{INLINE}\n# two\n{HEAD}{INLINE}# the end\n",
    "a keyring that is there": HEAD + "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg",
    "field names in any case": (HEAD + INLINE).replace("Signed-By", "signed-by") + "trusted: no",
}
REFUSED = {
    "no key": HEAD,
    "an empty key": HEAD.replace("Types", "Signed-By:\nTypes"),
    "one source of two": f"{HEAD}{INLINE}\n{HEAD}",
    "trust instead": f"{HEAD}{INLINE}Trusted: yes\n",
    "insecurity instead": f"{HEAD}{INLINE}Allow-Insecure: yes\n",
    "a commented key": HEAD + INLINE.replace("Signed-By", "#Signed-By"),
}
GARBLED = {
    "the one-line style": "deb https://deb.example.org/debusine trixie main",
    "one of two sources": f"{HEAD}{INLINE}\nTypes: deb\n{INLINE}",
    "comments alone": "# none\n",
}


@dataclass(frozen=True)
class Case:
    """An image, in the words of the role."""

    backends: tuple[str, ...] = ("unshare",)
    tasks: tuple[str, ...] = ()
    architecture: str = "x86_64"
    release: str = "trixie"
    version: str = ""
    more: tuple[str, ...] = ()

    def variables(self) -> dict[str, object]:
        return {
            "enable_backends": self.backends,
            "enable_tasks": self.tasks,
            "architecture": self.architecture,
            "release": self.release,
            "version": self.version,
            "extra_packages": self.more,
        }


UNSHARE = ["arch-test", "iproute2", "mmdebstrap", "uidmap", "xz-utils"]
INCUS_VM = [
    *("debusine-worker", "autopkgtest", "dnsmasq-base", "incus", "iproute2", "ovmf", "qemu-utils"),
]
INCUS_BOTH = [
    *("autopkgtest", "dnsmasq-base", "incus", "incus-base", "iproute2", "ovmf", "qemu-utils"),
]
INSTALLED = {
    Case(): ["debusine-worker", *UNSHARE],
    Case(backends=(), version="0.16.2"): ["debusine-worker=0.16.2"],
    Case(backends=(), more=("zsh", "sbuild", "zsh"), tasks=("sbuild",)): [
        *("debusine-worker", "iproute2", "sbuild", "uidmap", "zsh")
    ],
    Case(backends=(), tasks=("autopkgtest",)): ["debusine-worker", "autodep8", "autopkgtest"],
    Case(backends=("qemu",), architecture="aarch64"): [
        *("debusine-worker", "autopkgtest", "qemu-efi-aarch64", "qemu-system-arm", "qemu-utils")
    ],
    Case(backends=("qemu",), architecture="s390x"): [
        *("debusine-worker", "autopkgtest", "qemu-system-s390x", "qemu-utils")
    ],
    Case(backends=("qemu",)): [
        *("debusine-worker", "autopkgtest", "ovmf", "qemu-system-x86", "qemu-utils")
    ],
    Case(backends=("incus",)): INCUS_VM,
    Case(backends=("incus-vm",)): INCUS_VM,
    Case(backends=("incus-lxc", "incus-vm", "incus")): ["debusine-worker", *INCUS_BOTH],
    Case(backends=("incus-lxc",)): [
        *("debusine-worker", "autopkgtest", "dnsmasq-base", "incus-base", "iproute2")
    ],
    Case(backends=("incus-vm",), architecture="aarch64"): [
        *("debusine-worker", "autopkgtest", "dnsmasq-base", "incus", "iproute2"),
        "qemu-efi-aarch64",
        "qemu-utils",
    ],
    Case(backends=(), tasks=("simplesystemimagebuild", "mmdebstrap")): [
        *("debusine-worker", "arch-test", "debvm", "dosfstools", "e2fsprogs", "fdisk"),
        *("mmdebstrap", "mtools", "qemu-utils", "systemd-ukify", "uidmap"),
    ],
    Case(backends=(), tasks=("simplesystemimagebuild",), release="bookworm"): [
        *("debusine-worker", "arch-test", "binutils", "debvm", "dosfstools", "e2fsprogs"),
        *("fdisk", "mmdebstrap", "mtools", "qemu-utils", "uidmap"),
    ],
}
PLAY = """
- hosts: all
  gather_facts: false
  vars_files: [ROLE/defaults/main.yml, ROLE/vars/main.yml]
  vars: {judged: [], lists: []}
  tasks:
    - ansible.builtin.set_fact:
        judged: "{{ judged + [[debusine_worker_is_deb822, debusine_worker_is_vouched_for]] }}"
      vars: {debusine_worker_source: "{{ item }}"}
      loop: "{{ sources }}"
    - ansible.builtin.set_fact:
        lists: "{{ lists + [debusine_worker_packages] }}"
      vars:
        debusine_worker_enable_backends: "{{ item.enable_backends }}"
        debusine_worker_enable_tasks: "{{ item.enable_tasks }}"
        debusine_worker_architecture: "{{ item.architecture }}"
        debusine_worker_release: "{{ item.release }}"
        debusine_worker_version: "{{ item.version }}"
        debusine_worker_extra_packages: "{{ item.extra_packages }}"
      loop: "{{ cases }}"
    - ansible.builtin.copy:
        content: "{{ {'judged': judged, 'lists': lists} | to_json }}"
        dest: "{{ answers }}"
        mode: "0644"
"""
SOURCES = {**TAKEN, **REFUSED, **GARBLED}


@dataclass(frozen=True)
class Answers:
    """What the role said: of each source whether it is one and vouched for, of each case what."""

    judged: dict[str, tuple[bool, bool]]
    installed: dict[Case, list[str]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("variables")
    (folder / "play.yml").write_text(PLAY.replace("ROLE", str(ROLE)), encoding="utf-8")
    cases = [case.variables() for case in INSTALLED]
    said = {"sources": list(SOURCES.values()), "cases": cases, "answers": str(folder / "out")}
    played = play(folder, "--extra-vars", json.dumps(said), book=folder / "play.yml")
    assert played.returncode == 0, played.stdout[-3000:]
    found = json.loads(Path(folder / "out").read_text(encoding="utf-8"))
    judged = [(deb822, vouched) for deb822, vouched in found["judged"]]
    return Answers(
        dict(zip(SOURCES, judged, strict=True)), dict(zip(INSTALLED, found["lists"], strict=True))
    )


@pytest.mark.parametrize("name", TAKEN)
def test_source_with_key_is_accepted_by_role_and_validate(answers: Answers, name: str) -> None:
    assert answers.judged[name] == (True, True)
    assert list(problems(TAKEN[name])) == []


@pytest.mark.parametrize("name", REFUSED)
def test_source_is_refused_by_role_and_validate_when_key_is_missing(
    answers: Answers, name: str
) -> None:
    assert answers.judged[name] == (True, False)
    assert {problem.keyless for problem in problems(REFUSED[name])} == {True}


@pytest.mark.parametrize("name", GARBLED)
def test_source_is_refused_by_role_and_validate_when_malformed(
    answers: Answers, name: str
) -> None:
    assert not answers.judged[name][0]
    assert {problem.keyless for problem in problems(GARBLED[name])} == {False}


@pytest.mark.parametrize("case", INSTALLED, ids=str)
def test_image_has_packages_of_its_executors_and_tasks(answers: Answers, case: Case) -> None:
    assert answers.installed[case] == INSTALLED[case]
