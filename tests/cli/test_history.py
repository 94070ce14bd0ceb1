"""The samples that runs of `fleet apply` store, for the status pages."""

import re
from datetime import datetime, timedelta

from fleet.model.history import NANO, MomentFigures, RunSample
from fleet.model.values import in_utc
from tests.builders.sentences import tells
from tests.rigs.trial import Trial, fleet_yaml

EPOCH, END = (in_utc(datetime.fromisoformat(f"{year}-01-01T00:00Z")) for year in (2000, 2199))
CCX33 = 77_700_000


def samples_of(trial: Trial) -> tuple[RunSample, ...]:
    return trial.store().samples(EPOCH, END)


def test_samples_have_state_before_and_after_creations(trial: Trial) -> None:
    trial.write(fleet_yaml(desk="boot: 1h"))
    trial.wait_for("1", big=["2"])

    trial.apply()
    trial.apply()

    empty = MomentFigures(busy=0, idle=0, starting=0, other=0, waiting=1, nanos=0)
    before, after, later = samples_of(trial)
    assert before.pools == {"big": empty._replace(waiting=2), "builders": empty}
    assert before.fleet == empty._replace(waiting=2)
    assert after.pools["builders"] == empty._replace(starting=1, nanos=CCX33)
    assert after.fleet.starting == 2
    assert (later.pools, later.fleet) == (after.pools, after.fleet)
    assert before.at < after.at < later.at


def test_samples_have_state_before_and_after_deletions(trial: Trial) -> None:
    trial.wait_for("1", "2")
    trial.apply()
    trial.age(hours=3)
    trial.wait_for()
    trial.told("apply")

    drained = samples_of(trial)[-1]
    trial.age(hours=3)
    trial.told("apply")

    *_, before, after = samples_of(trial)
    assert trial.machines() == []
    assert drained.fleet.nanos == before.fleet.nanos == 2 * CCX33
    assert (before.fleet.other, after.fleet.other) == (2, 0)
    assert (after.fleet.idle, after.fleet.nanos) == (0, 0)


def test_money_page_counts_machines_from_their_creation(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()
    store = trial.store()
    for sample in samples_of(trial):
        store.record_sample(sample.altered(at=sample.at - timedelta(minutes=2)))

    page = pages(trial)[MONEY]

    rates = re.findall(r'data-label="EUR/h"[^>]*>([^<]*)<', page)
    assert len(rates) == 1
    assert 0.9 * CCX33 / NANO < float(rates[0]) <= CCX33 / NANO


def test_read_only_commands_store_no_sample(trial: Trial) -> None:
    trial.do("plan")
    trial.do("status", "--site", "public")
    trial.do("explain", "pool", "builders")

    assert samples_of(trial) == ()


def test_apply_creates_history_table_in_older_store(trial: Trial) -> None:
    trial.sql("drop table fleet_samples")
    trial.sql("delete from fleet_about where key = 'columns'")
    trial.do("status")

    trial.apply()

    assert len(samples_of(trial)) == 1


# what the pages of status make of it

BUILDERS, MONEY, IMAGES = (
    f"-/status/{part}/index.html" for part in ("pools/builders", "money", "images")
)
PLOT = '<svg class="plot"'


def pages(trial: Trial, *options: str) -> dict[str, str]:
    trial.told("status", "--site", "public", *options)
    return {
        path: (trial.folder / "public" / path).read_text()
        for path in ("index.html", BUILDERS, MONEY, IMAGES)
    }


def test_status_pages_plot_samples(trial: Trial) -> None:
    trial.wait_for("1", "2")
    trial.apply()
    trial.apply()

    files = pages(trial)

    assert [files[path].count(PLOT) for path in files] == [3, 3, 1, 0]
    assert tells(files[BUILDERS], "<desc", "Machines", "between")
    assert tells(files[BUILDERS], "<desc", "requests", "between 2 and 2")


def test_pages_of_recorded_world_report_missing_history(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.do("observe", "--out", "seen.json")

    files = pages(trial, "--world", "seen.json")

    assert not any(PLOT in page for page in files.values())
    assert tells(files[BUILDERS], '<p><span class="red">', "history")
    assert ">builders</a>" in files[IMAGES]


def test_damaged_history_is_unknown_on_its_page_only(trial: Trial) -> None:
    trial.apply()
    trial.sql("update fleet_samples set sample = '{'")

    files = pages(trial)

    assert tells(files[BUILDERS], '<p><span class="red">', "fleet_samples")
    assert PLOT not in files["index.html"]
