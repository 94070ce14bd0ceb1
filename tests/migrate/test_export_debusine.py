"""`fleet export debusine`: entries that a real 0.16.2 server took, and what they cannot say."""

import json
from datetime import date
from typing import Any

import jsonschema
import pytest
import yaml

from fleet.schema.findings import Finding
from fleet.schema.load import load
from fleet.schema.model import Fleet
from fleet.state.files import LocalFiles
from fleet.tagrules.export import export_debusine
from tests.builders import a_fleet, a_pool
from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet

TODAY = date(2026, 11, 21)
RECORDED = ROOT / "tests/fixtures/debusine-0.16.2/task-configuration"
TAG = "worker:class:powerful"


def a_fleet_asking(match: str, **overrides: object) -> Fleet:
    rule = {"match": match, "ask": overrides.pop("ask", [TAG])}
    return a_fleet(**{"powerful": [rule]} | overrides)


def entries_of(fleet: Fleet) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(export_debusine(fleet, "0" * 64, TODAY).text)
    return found


def findings_of(fleet: Fleet) -> list[Finding]:
    return list(export_debusine(fleet, "0" * 64, TODAY).findings)


def conditions(fleet: Fleet) -> list[tuple[list[str], list[str]]]:
    found = entries_of(fleet)
    return [(each.get("tags_provided", []), each.get("tags_required", [])) for each in found]


def test_export_equals_entries_accepted_by_server(run_fleet: RunFleet) -> None:
    exported = run_fleet("export", "debusine", "--file", RECORDED / "fleet.yaml")

    assert exported.returncode == 0
    pushed = yaml.safe_load((RECORDED / "pushed.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(exported.stdout) == pushed


def test_every_entry_matches_schema_of_server() -> None:
    schema = json.loads((RECORDED / "schema.json").read_text(encoding="utf-8"))

    for entry in yaml.safe_load((RECORDED / "pushed.yaml").read_text(encoding="utf-8")):
        jsonschema.validate(entry, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(entry | {"require_tag": ["x"]}, schema)


def test_server_adds_tags_of_delivered_rules() -> None:
    fleet = load(str(RECORDED / "fleet.yaml"), LocalFiles()).fleet
    assert fleet is not None
    answers = json.loads((RECORDED / "answers.json").read_text(encoding="utf-8"))
    entries = entries_of(fleet)

    for answer in answers:
        matching = [
            entry
            for entry in entries
            if {*entry.get("tags_provided", [])} <= {*answer["tags_provided"]}
            and {*entry.get("tags_required", [])} <= {*answer["tags_required"]}
        ]
        for key in ("require_tags", "provide_tags"):
            ours = sorted({tag for entry in matching for tag in entry.get(key, [])})
            assert ours == answer[key], answer


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (
            "debian/.*/amd64/chromium",
            [
                (
                    ["task:scope:debian", "task:source-package:chromium"],
                    ["worker:build-arch:amd64"],
                )
            ],
        ),
        ("debian/builds/.*", [(["task:workspace:debian:builds"], [])]),
        ("debian/.*", [(["task:scope:debian"], [])]),
        (".*/builds/[^/]+/.*", [(["task:workspace:debian:builds"], [])]),
        (".*/.*/.*/.*", [([], [])]),
        (
            "(?:debian/.*/.*/a|debian/.*/.*/libb\\+\\+)",
            [
                (["task:scope:debian", "task:source-package:a"], []),
                (["task:scope:debian", "task:source-package:libb++"], []),
            ],
        ),
        (
            "debian/.*/.*/lib[ab]c?",
            [
                (["task:scope:debian", f"task:source-package:{name}"], [])
                for name in ("liba", "libac", "libb", "libbc")
            ],
        ),
    ],
)
def test_rule_becomes_an_entry_per_combination_of_words(
    match: str, expected: list[tuple[list[str], list[str]]]
) -> None:
    assert conditions(a_fleet_asking(match)) == expected


@pytest.mark.parametrize(
    ("match", "word"),
    [
        ("debian/.*/amd64/linux-.*", "words"),
        ("debian/.*/amd64/l[^a]nux", "words"),
        ("debian/.*/amd64/a{3}", "words"),
        ("debian/.*/amd64/ab??", "words"),
        ("debian/.*/amd64/(?i:a)", "words"),
        ("debian/.*/amd64/" + "[abc]" * 9, "words"),
        ("debian/.*/amd64/" + "(" * 30 + "a" + ")" * 30, "words"),
        ("debian/.*/(a|b|c|d|e)/[abcdefghij][abc]", "100 entries"),
        ("debian/chromium", "workspace"),
        ("debian/.*/source/chromium", "architecture source"),
    ],
)
def test_export_warns_of_a_rule_without_entries(match: str, word: str) -> None:
    exported = export_debusine(a_fleet_asking(match), "0" * 64, TODAY)

    (finding,) = exported.findings
    assert (finding.rule, finding.severity, finding.path) == (
        "not-exported",
        "warning",
        ("powerful", 0, "match"),
    )
    assert word in finding.message
    assert tells(exported.text, "powerful[0]", finding.message)
    assert yaml.safe_load(exported.text) == []


def test_export_warns_of_a_workspace_without_scope() -> None:
    queues = {"trial": {"kind": "world", "path": "world.json"}}

    (finding,) = findings_of(a_fleet_asking(".*/builds/.*", queues=queues))
    assert finding.path == ("powerful", 0, "match")
    assert "scope" in finding.message


def test_minimum_becomes_its_class_in_required_and_provided_tags() -> None:
    fleet = a_fleet_asking(
        "debian/.*/.*/gcc-15",
        ask=["bandwidth>=48"],
        tags={"bandwidth": {"kind": "number"}},
        pools={"builders": a_pool(provides=["bandwidth=50"])},
    )

    text = export_debusine(fleet, "0" * 64, TODAY).text

    assert [entry["require_tags"] for entry in yaml.safe_load(text)] == [
        ["worker:class:bandwidth-48"]
    ]
    (metadata,) = [line for line in text.splitlines() if line.startswith("#   builders: ")]
    assert "worker:class:bandwidth-48'" in metadata
    assert "worker:class:bandwidth-64'" not in metadata


def test_entry_provides_tags_required_by_workers_of_its_tag() -> None:
    requires = ["task:fleet:powerful", "task:scope:debian"]
    pools = {"powerful": a_pool(provides=[TAG], requires=requires)}

    (entry,) = entries_of(a_fleet_asking("debian/.*/amd64/chromium", pools=pools))

    assert (entry["require_tags"], entry["provide_tags"]) == ([TAG], ["task:fleet:powerful"])


def test_derived_tag_that_is_constant_for_a_task_becomes_an_entry() -> None:
    derive: list[dict[str, object]] = [
        {"task": "autopkgtest", "ask": "worker:class:big"},
        {"task": "sbuild", "from": "host_architecture", "ask": "worker:build-arch:{value}"},
        {"task": "sbuild", "source_build": True, "ask": "source"},
        {"ask": "any"},
    ]
    fleet = a_fleet(derive=derive)

    assert entries_of(fleet) == [
        {
            "task_type": "Worker",
            "task_name": "autopkgtest",
            "require_tags": ["worker:class:big"],
            "comment": "fleet debian-ci, derive[0]",
        }
    ]
    found = findings_of(fleet)
    assert [finding.path for finding in found] == [("derive", index) for index in (1, 2, 3)]
    for finding, word in zip(found, ("task data", "source build", "task"), strict=True):
        assert word in finding.message


@pytest.mark.parametrize("match", ["@copr/copr-pull-requests/.*/copr-cli", "kali/builds/.*/x"])
def test_rule_for_other_queue_is_not_exported(match: str) -> None:
    fleet = a_fleet_asking(match)
    expired = {"match": "debian/.*", "ask": [TAG], "expires": "2026-11-20"}

    assert entries_of(fleet) == entries_of(a_fleet(powerful=[expired])) == []
    (finding,) = findings_of(fleet)
    assert match.partition("/")[0] in finding.message
