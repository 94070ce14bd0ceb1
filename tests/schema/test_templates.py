"""Templates: named parts of pools, merged before fleet.yaml is checked."""

import pytest

from fleet.apply.config import Checked, check_file
from fleet.cli.validate import to_yaml
from fleet.state.files import LocalFiles
from tests.builders import NOW
from tests.fakes.files import FakeFiles
from tests.rigs.process import ROOT

HEAD = """\
fleet: demo
include: [d/*.yaml]
providers: {desk: {kind: sim}}
images: {trixie: {suite: trixie, architecture: amd64}}
"""
BASE = "  base: {provider: desk, machine: ccx33, image: trixie, workers: {max: 2, spare: 1}}\n"
FILES = sorted(str(path) for path in ROOT.glob("tests/plans/*/fleet.yaml"))


def checked(text: str, included: str = "") -> Checked:
    files = FakeFiles({"fleet.yaml": HEAD + text, "d/more.yaml": included})
    return check_file("fleet.yaml", NOW.date(), files)


def told(found: Checked) -> list[str]:
    return [f"{each.span}: {each.rule}: {each.message}" for each in found.findings]


def same(one: Checked, other: Checked) -> bool:
    assert one.fleet is not None, one.findings
    return one.fleet == other.fleet


@pytest.mark.parametrize(
    ("extending", "whole"),
    [
        (
            "{extends: [base]}",
            "machine: ccx33, workers: {max: 2, spare: 1}",
        ),
        (
            "{extends: [base], machine: ccx63, workers: {max: 3}}",
            "machine: ccx63, workers: {max: 3, spare: 1}",
        ),
        (
            "{extends: [base, a, b]}",
            "machine: ccx33, workers: {max: 2, spare: 1}, provides: [b], boot: {expected: 2m}",
        ),
        (
            "{extends: [base, b, a]}",
            "machine: ccx33, workers: {max: 2, spare: 1}, provides: [a], boot: {expected: 2m}",
        ),
        (
            "{extends: [c], boot: {deadline: 20m}}",
            "machine: {type: ccx53}, workers: {max: 2, spare: 1}, boot: {deadline: 20m}",
        ),
        (
            "{extends: [base, d], reuse: null}",
            "machine: ccx33, workers: {max: 2, spare: 1}, reuse: null",
        ),
    ],
)
def test_own_keys_precede_later_templates_and_mappings_merge(extending: str, whole: str) -> None:
    templates = "  a: {provides: [a]}\n  b: {provides: [b], boot: {expected: 2m}}\n"
    templates += (
        "  c: {extends: [base], machine: {type: ccx53}}\n  d: {reuse: {opportunity: 2m}}\n"
    )

    found = checked(f"pools: {{p: {extending}}}\n", f"templates:\n{BASE}{templates}")

    written = f"pools: {{p: {{provider: desk, image: trixie, {whole}}}}}\n"
    assert same(found, checked(written, "{}"))


@pytest.mark.parametrize("pools", ["  p: {extends: [base]}\n", "  p: {extends: [x]}\n"])
def test_template_error_has_its_place_and_pool(pools: str) -> None:
    template = BASE.replace("spare", "sapre")

    found = checked(f"pools:\n{pools}", f"templates:\n{template}  x: {{extends: [base]}}\n")

    (mistake,) = [each for each in told(found) if "unused-template" not in each]
    assert mistake.startswith("d/more.yaml:2:75: unknown-key: ")
    assert all(name in mistake for name in ("'sapre'", "'p'"))


def test_template_error_of_several_pools_is_reported_once() -> None:
    pools = "".join(f"  p{number}: {{extends: [base]}}\n" for number in range(9))

    found = checked(f"templates:\n{BASE.replace('trixie', 'trixy')}pools:\n{pools}", "{}")

    (only,) = told(found)
    assert ": unknown-image: " in only
    assert all(word in only for word in ("'trixy'", "'p0'", "8 more"))


@pytest.mark.parametrize(
    ("templates", "extends", "finding"),
    [
        (BASE, "[bse]", "fleet.yaml:8:17: unknown-template: "),
        (BASE, "base", "fleet.yaml:8:16: wrong-type: "),
        (BASE, "[3]", "fleet.yaml:8:16: wrong-type: "),
        ("  base: 3\n", "[base]", "fleet.yaml:6:3: wrong-type: "),
        ("  - base\n", "[]", "fleet.yaml:6:3: wrong-type: "),
        ("  a: {extends: [a]}\n", "[a]", "fleet.yaml:6:17: template-cycle: "),
        ("  Ab: {mode: pause}\n", "[Ab]", "fleet.yaml:6:3: wrong-value: "),
    ],
)
def test_wrong_template_is_one_finding(templates: str, extends: str, finding: str) -> None:
    found = checked(f"templates:\n{templates}pools:\n  p: {{extends: {extends}}}\n", "{}")

    errors = [each for each in told(found) if "unused-template" not in each]
    assert any(each.startswith(finding) for each in errors)
    assert len(errors) == 1 or "missing-key" in str(errors)


@pytest.mark.slow
def test_circular_templates_are_refused() -> None:
    chain = "".join(f"  t{number}: {{extends: [t{number + 1}]}}\n" for number in range(5000))

    found = checked(f"templates:\n{chain}  t5000: {{}}\npools:\n  p: {{extends: [t0]}}\n", "{}")

    assert [each for each in told(found) if "deep" in each]
    assert found.fleet is None


@pytest.mark.slow
def test_templates_have_bounded_expansion() -> None:
    large = f"  base: {{provides: [{', '.join(['a'] * 10_000)}]}}\n"
    pools = "".join(f"  p{number}: {{extends: [base]}}\n" for number in range(200))

    found = checked(f"templates:\n{large}pools:\n{pools}", "{}")

    assert [each.rule for each in found.findings] == ["too-complex"]


def test_secret_in_template_is_found_and_masked() -> None:
    template = "  t: {hooks: {new: [x], token: aVerySecretToken0123456789}}\n"

    found = checked(f"templates:\n{template}pools: {{}}\n", "{}")

    assert "inline-secret" in [each.rule for each in found.findings]
    assert "aVery" not in str(found.document.line("fleet.yaml", 6))


def test_name_that_is_a_secret_is_masked() -> None:
    secret = "glpat-" + "aB3dE5gH7jK9mN1pQ2rS"

    found = checked(f"pools: {{p: {{extends: [{secret}]}}}}\n", "{}")

    assert {"inline-secret", "unknown-template"} <= {each.rule for each in found.findings}
    assert secret not in str(found.findings)


def test_resolved_yaml_gives_the_same_fleet() -> None:
    for file in FILES:
        found = check_file(file, NOW.date(), LocalFiles())

        printed = FakeFiles({"fleet.yaml": to_yaml(found.document)})

        assert same(found, check_file("fleet.yaml", NOW.date(), printed)), file


def test_words_that_resemble_numbers_are_text_in_resolved_yaml() -> None:
    tags = ["1.5e3", "010", "+.nan", "on", "2027-01-01", "1", "0x1f", "~", "é", "=", "1_000", "-"]
    pool = f"pools: {{p: {{static: [a], provides: {tags}}}}}\n"
    found = checked(pool, "{}")

    printed = FakeFiles({"fleet.yaml": to_yaml(found.document)})

    value = check_file("fleet.yaml", NOW.date(), printed).document.value
    assert isinstance(found.document.value, dict)
    assert value == {
        key: found.document.value[key] for key in found.document.value if key != "include"
    }
