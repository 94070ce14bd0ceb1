"""`nox -s lint` fails when the core or the satellites are larger than pyproject.toml permits."""

from pathlib import Path

import pytest

from tools.halves import Size, find_excess, measure, measure_halves


def test_size_counts_statements_without_comments() -> None:
    text = (
        '"""Text."""\n\n# comment\nif a:\n    b = 1  # one\nelse:\n    b = (\n        2\n    )\n'
    )

    assert measure(text) == Size(9, 4)


def test_each_module_belongs_to_its_nearest_path(tmp_path: Path) -> None:
    for name in ("run.py", "images/bake.py", "images/deep/disk.py", "cli/image.py", "cli/plan.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a = 1\n", encoding="utf-8")

    sizes = measure_halves(tmp_path, {"images": ["images", "cli/image.py"], "site": []})

    assert sizes == {"core": Size(2, 2), "images": Size(3, 3), "site": Size()}


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="images"):
        measure_halves(tmp_path, {"images": ["images"]})


@pytest.mark.parametrize(
    ("core", "satellites", "excess"),
    [
        (Size(10, 5), Size(4, 2), []),
        (Size(9, 5), Size(4, 2), ["core"]),
        (Size(10, 4), Size(4, 2), ["core"]),
        (Size(10, 5), Size(3, 9), ["satellites"]),
        (Size(0, 0), Size(0, 0), ["core", "satellites"]),
    ],
)
def test_excess_names_half_above_its_limit(
    core: Size, satellites: Size, excess: list[str]
) -> None:
    sizes = {"core": Size(10, 5), "images": Size(3, 1), "site": Size(1, 1)}

    found = find_excess(sizes, {"core": core, "satellites": satellites})

    assert [each.split()[0] for each in found] == excess
