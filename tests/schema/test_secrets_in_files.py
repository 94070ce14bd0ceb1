"""Secrets written in fleet.yaml: noticed wherever they stand, and never repeated anywhere."""

import pytest

from fleet.report.findings import to_gitlab, to_json, to_text
from fleet.schema.load import load
from tests.builders.sentences import tells
from tests.fakes.files import FakeFiles

HCLOUD = "fleet: x\nproviders:\n  h: {kind: hcloud, location: fsn1, token: "
DEBUSINE = "fleet: x\nqueues:\n  q: {kind: debusine, scopes: [a], url: "


def everything_said(text: str) -> tuple[set[str], str]:
    loaded = load("fleet.yaml", FakeFiles({"fleet.yaml": text}))
    said = to_text(loaded.findings, loaded.document)
    said += to_json(loaded.findings) + to_gitlab(loaded.findings)
    return {finding.rule for finding in loaded.findings}, said


@pytest.mark.parametrize(
    "text",
    [
        HCLOUD + "hunter2}\n",
        HCLOUD + "'hunter2'}\n",
        HCLOUD + "[hunter2]}\n",
        HCLOUD + "{value: hunter2}}\n",
        HCLOUD + '{env: "hunter2 is no name"}}\n',
        HCLOUD + "{command: hunter2, env: [hunter2]}}\n",
        HCLOUD + "|\n    hunter2\n    hunter2\n  }\n",
        DEBUSINE + '"https://u:hunter2@h.example.org"}\n',
        DEBUSINE + '"https://h.example.org", read: "host=h password=hunter2"}\n',
        DEBUSINE + '"https://h.example.org", read: "hunter2"}\n',
        DEBUSINE + '"https://h.example.org", admin: [ssh, --token=hunter2]}\n',
        "fleet: x\npassword: hunter2\n",
        "fleet: x\ndb-password: hunter2\n",
        "fleet: x\nprivate_key: |\n  hunter2\n  hunter2\nmoney: 3\n",
        "fleet: x\nstate: {store: 'postgresql://u:hunter2@h/db'}\n",
        "fleet: x\npools: {'postgres://u:hunter2@h/db': 3}\n",
        "fleet: x\n'postgres://u:hunter2@h/db': 3\n",
        "fleet: x\ncadence: postgres://u:hunter2@h/db\n",
        "fleet: postgres://u:hunter2@h/db\n",
        "fleet: x\npools: {a: {static: 'https://u:hunter2@h'}}\n",
        "fleet: x\ncadence: 1m\ntoken: {env: A}\ntoken: hunter2\n",
        HCLOUD + "{env: A}, token: hunter2}\n",
        "fleet: x\npools: {[1]: {password: hunter2}}\n",
        "fleet: x\npools: {1: {password: hunter2}}\n",
        "fleet: x\npools: {{password: hunter2}: 1}\n",
        "fleet: x\npools: {<<: {password: hunter2}}\n",
        "- {password: hunter2}\n",
        "fleet: x\nimages: {a: {existing: {aws: 'https://u:hunter2@h'}}}\nimages: {}\n",
    ],
)
def test_inline_secret_is_reported_and_masked(text: str) -> None:
    rules, said = everything_said(text)

    assert "hunter2" not in said
    assert rules & {"inline-secret", "invalid-yaml"}


@pytest.mark.parametrize(
    "text",
    [
        HCLOUD + "hunter2\n",
        HCLOUD + '"hunter2\n',
        "fleet: x\npassword: @hunter2\n",
        "fleet: x\npassword: *hunter2\n",
        "fleet: x\npassword: !hunter2 x\n",
        "fleet: x\npassword:\n  - a\n  @hunter2\n",
        "fleet: x\ntoken: |\n   hunter2\n  hunter2: [\n hunter2: ]\n",
        "fleet: x\nurl: https://u:hunter2@h ] : }\n",
        'fleet: x\n"secret": %hunter2\n',
        "fleet: x\ntoken:\n  hunter2: [\n",
        "fleet: x\ntoken: {env: A, url: 'https://u:hunter2@h', b: ]\n",
    ],
)
def test_unparseable_file_does_not_show_its_secrets(text: str) -> None:
    rules, said = everything_said(text)

    assert rules
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "text",
    [
        HCLOUD + "{env: HCLOUD_TOKEN}}\n",
        HCLOUD + "{file: /run/secrets/hcloud}}\n",
        HCLOUD + "{command: [pass, show, hcloud]}}\n",
        "fleet: x\nstate: {passphrase: {env: PASS}, store: 'postgresql://h/db'}\n",
        "fleet: x\nproviders: {token: {kind: sim}, secret: {kind: sim}}\n",
        "fleet: x\ntags: {'worker:token': {on_demand: true}}\n",
        "fleet: x\npools: {a: {static: [user@host, a=b, 'https://h/x?y=z']}}\n",
    ],
)
def test_secret_reference_or_plain_word_is_not_a_finding(text: str) -> None:
    rules, _ = everything_said(text)

    assert rules == set()


def test_misspelt_reference_is_a_wrong_key() -> None:
    rules, said = everything_said(HCLOUD + "{evn: HCLOUD_TOKEN}}\n")

    assert rules == {"unknown-key"}
    assert tells(said, "'env'")


@pytest.mark.parametrize(
    "text",
    [
        "pools: [\npassword: hunter2\n",
        "- {password: hunter2}\n",
        "state: {passphrase: hunter2}\n",
        "queues: {a: {kind: world, path: p, token: hunter2}}\n",
        "powerful: [{password: hunter2}]\n",
    ],
)
def test_included_file_does_not_show_its_secrets(text: str) -> None:
    main = "include: [d/*]\nfleet: x\npowerful: []\nqueues: {a: {kind: tickets}}\n"
    files = FakeFiles({"fleet.yaml": main, "d/a": text})

    loaded = load("fleet.yaml", files)

    assert loaded.findings
    assert "hunter2" not in to_text(loaded.findings, loaded.document) + to_json(loaded.findings)


def test_secret_in_one_file_masks_no_line_of_another() -> None:
    main = "include: [d/*]\npassword: hunter2\n"
    files = FakeFiles({"fleet.yaml": main, "d/a": "a:\nb: 12345678\n"})

    document = load("fleet.yaml", files).document

    assert document.line("fleet.yaml", 2) == "password: *******"
    assert document.line("d/a", 2) == "b: 12345678"


def test_masked_secret_keeps_its_length() -> None:
    loaded = load("fleet.yaml", FakeFiles({"fleet.yaml": HCLOUD + "hunter2, kind: x}\n"}))

    line = loaded.document.line("fleet.yaml", 3)

    assert line == "  h: {kind: hcloud, location: fsn1, token: *******, kind: x}"
