"""No new machine has a name that anybody remembers, or that is the beginning of another's."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from fleet.planner.machine_inputs import Names, worker_names
from fleet.schema.model import Fleet, beginning_of
from tests.builders import a_fleet, a_pool

POOLS = ("a", "a-0001", "a-0001-b", "b", "hv_x86_64_01", "hv_x86_64_01_f0001")
HOOKS = {
    "provider": "hooks",
    "hooks": {"interface": "resalloc", "new": ["n"], "delete": ["d"], "list": ["l"]},
    "machine": {"cores": 1, "memory": "1GiB", "price": "0.01 EUR/h"},
    "workers": {"max": 4},
}
FLEET: Fleet = a_fleet(
    pools={name: HOOKS if "_" in name else a_pool() for name in POOLS},
)
BEGINS = st.sampled_from(
    [f"debian-ci-{pool}-" for pool in POOLS] + [f"{pool}_f" for pool in POOLS] + ["hv_x86_64_01_"]
)
ENDS = st.one_of(
    st.integers(1, 30).map(str),
    st.integers(0, 30).map("{:04}".format),
    st.integers(1000, 10001).map(str),
    st.sampled_from(["00010001_20261122_181715", "f0001-old"]),
)
STEMS = tuple(beginning_of(FLEET, pool) for pool in POOLS)
# A pool that is called like a machine that is there already makes none that is called otherwise.
NAMES = st.builds("{}{}".format, BEGINS, ENDS).filter(
    lambda name: not any(stem.startswith(name) for stem in STEMS)
)
KNOWN = st.frozensets(NAMES, max_size=40)


@given(present=KNOWN, past=KNOWN, taken=KNOWN)
def test_new_name_is_unique_and_no_prefix_of_another(
    present: frozenset[str], past: frozenset[str], taken: frozenset[str]
) -> None:
    known = Names(present, past, taken)
    new = [name for pool in POOLS for name in islice(worker_names(FLEET, pool, known), 12)]

    assert len(set(new)) == len(new)
    for name in new:
        others = (present | past | taken | set(new)) - {name}
        assert name not in present | past | taken
        assert not [each for each in others if each.startswith(name) or name.startswith(each)]


@given(present=KNOWN, past=KNOWN)
def test_worker_names_are_deterministic(present: frozenset[str], past: frozenset[str]) -> None:
    first, second = (
        [*islice(worker_names(FLEET, "a", Names(present, past)), 5)] for _ in range(2)
    )

    assert first == second


def test_taken_names_are_skipped_with_growing_steps() -> None:
    def after(*numbers: int) -> str:
        taken = frozenset(f"debian-ci-b-{number:04}" for number in numbers)
        return next(worker_names(FLEET, "b", Names(frozenset(), frozenset(), taken)))[-4:]

    assert [after(), after(1), after(1, 2), after(1, 2, 4)] == ["0001", "0002", "0004", "0008"]
    assert after(9999) == "0001"


def test_past_names_are_reused_when_all_are_taken() -> None:
    every = frozenset(f"debian-ci-b-{number:04}" for number in range(1, 10_000))
    past = frozenset({"debian-ci-b-0007"})

    names = worker_names(FLEET, "b", Names(every - past, past))

    assert [*islice(names, 2)] == ["debian-ci-b-0007", "debian-ci-b-10000"]
