"""The work for a long list grows with its length, not with its square."""

from datetime import date
from pathlib import Path

import pytest

from fleet.apply.config import check_file
from fleet.report.findings import to_text
from fleet.schema import secrets, source
from fleet.schema.findings import nearest
from fleet.tagrules import sources
from fleet.tagrules.vocabulary import tag_name
from tests.builders import a_fleet

HEAD = "fleet: demo\n"


@pytest.mark.parametrize("item", ['"*.yaml"', "/etc/x", "no.yml", '"a b"'])
def test_long_line_is_masked_once_for_all_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{HEAD}include: [{', '.join([item] * 300)}]\n", encoding="utf-8")
    masked: list[str] = []

    def counting(line: str) -> str:
        masked.append(line)
        return secrets.masked(line)

    monkeypatch.setattr(source, "masked", counting)

    found = check_file(str(file), date(2026, 11, 21))
    text = to_text(found.findings, found.document)

    assert text.count("repeated pattern") == 299
    assert len(masked) < 5


def test_long_known_list_is_compared_in_part() -> None:
    known = [f"builder-{number:05}" for number in range(5_000)]

    assert nearest("builder-02345x", known) == "builder-02345"
    assert nearest("no-such", known) == ""


def test_pools_of_tags_are_found_without_quadratic_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []

    def counting(tag: str) -> str:
        counted.append(tag)
        return tag_name(tag)

    monkeypatch.setattr(sources, "tag_name", counting)
    many = {f"x{number}": {"exclusive": True} for number in range(400)}
    fleet = a_fleet(tags={**many, "y*": {"exclusive": True}})
    own = [*many, "yes"]
    pools = {name: pool.model_copy(update={"provides": own}) for name, pool in fleet.pools.items()}
    fleet = fleet.model_copy(update={"pools": pools})

    found = sources.pools_providing(fleet)

    assert all(found[tag] == tuple(sorted(fleet.pools)) for tag in ("x0", "x399", "y*"))
    assert len(counted) < 20 * 400
