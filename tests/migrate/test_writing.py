"""What importers write reads back as the same data, whatever the names and texts are."""

from hypothesis import example, given
from hypothesis import strategies as st

from fleet.migrate.reading import YamlBlock, to_text
from fleet.schema.nodes import parse

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
keys = texts.filter(lambda text: text != "<<")  # the reader refuses it as a key
scalars = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | texts
values = st.recursive(
    scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(keys, below, max_size=3),
    max_leaves=8,
)


@given(value=values, comment=texts)
@example(value=["yes", "On", "null", "1.5e10", "0x10", "1:30", "2025-06-01", "~", ""], comment="")
@example(value={"*a": "<<", "#": "- b", "=": "a: b", "? x": "{}"}, comment="# x\n\u2028- y")
def test_written_values_round_trip(value: object, comment: str) -> None:
    item = YamlBlock(
        {"below": value, "after": YamlBlock({"x": value}, [comment])}, [comment], [comment]
    )

    written = to_text(
        YamlBlock({"flow": value, "list": YamlBlock([item, YamlBlock("x", [comment])])})
    )
    read = parse(written, "fleet.yaml")

    assert read.findings == ()
    assert read.root is not None
    listed = [{"below": value, "after": {"x": value}}, "x"]
    assert read.root.plain() == {"flow": value, "list": listed}


def test_comments_are_above_and_below_their_mapping() -> None:
    rules = YamlBlock([YamlBlock({"match": "a"}, ["of a"])], ["of all"], ["left out"])

    assert to_text(YamlBlock({"fleet": "x", "powerful": rules}, ["written"])).splitlines() == [
        "# written",
        "fleet: x",
        "",
        "# of all",
        "powerful:",
        "  # of a",
        "  - match: a",
        "  # left out",
    ]
