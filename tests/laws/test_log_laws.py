"""Whatever one thing is done to the log, the chain shows it; trimming it does not."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.log import Chain, Link, Mark, count_expired, find_breaks, has_mark, linked
from tests.builders import NOW
from tests.builders.log import an_entry


def a_chain(length: int) -> list[Link]:
    links: list[Link] = []
    for number in range(length):
        before = links[-1].mark if links else Mark()
        links.append(linked(before, an_entry(machine=f"m-{number}")))
    return links


@given(length=st.integers(1, 8), data=st.data())
def test_log_chain_is_valid_after_removal_of_oldest_entries(
    length: int, data: st.DataObject
) -> None:
    links = a_chain(length)
    cut = data.draw(st.integers(0, length))
    anchor = links[cut - 1].mark if cut else Mark()
    chain = Chain(anchor, tuple(links[cut:]), links[-1].mark)

    assert list(find_breaks(chain)) == []
    for link in links:
        assert has_mark(chain, link.mark) is (None if link.number < anchor.number else True)


@given(length=st.integers(2, 8), data=st.data())
def test_edited_removed_moved_or_repeated_entry_is_found(length: int, data: st.DataObject) -> None:
    links = a_chain(length)
    head = links[-1].mark
    at = data.draw(st.integers(0, length - 1))
    match data.draw(st.sampled_from(["remove", "edit", "move", "repeat", "cut"])):
        case "remove":
            del links[at]
        case "edit":
            number, *texts = links[at]
            texts[data.draw(st.integers(0, 2))] = "x"
            links[at] = Link(number, *map(str, texts))
        case "move":
            links.insert((at + data.draw(st.integers(1, length - 1))) % length, links.pop(at))
        case "repeat":
            links.insert(at, links[at])
        case _:
            del links[at:]

    assert list(find_breaks(Chain(Mark(), tuple(links), head))) != []


@given(length=st.integers(2, 6), data=st.data())
def test_rewritten_log_chain_does_not_contain_the_noted_mark(
    length: int, data: st.DataObject
) -> None:
    noted = a_chain(length)[-1].mark
    gone = data.draw(st.integers(0, length - 1))
    anew: list[Link] = []
    for number in [each for each in range(length) if each != gone]:
        before = anew[-1].mark if anew else Mark()
        anew.append(linked(before, an_entry(machine=f"m-{number}")))
    chain = Chain(Mark(), tuple(anew), anew[-1].mark)

    assert list(find_breaks(chain)) == []  # it cannot show that by itself
    assert has_mark(chain, noted) is False


@given(days=st.lists(st.integers(0, 400), max_size=8))
def test_expired_entries_exclude_the_last_two(days: list[int]) -> None:
    times = [NOW + timedelta(days=each) for each in days]

    assert count_expired(times) <= max(0, len(times) - 2)
