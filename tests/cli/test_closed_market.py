"""A closed market in "time and money" of `fleet explain`: no start before its next retry."""

import json
from datetime import datetime
from pathlib import Path

from tests.rigs.trial import Trial, fleet_yaml

TYPES = (
    "types: {m8: {cores: 8, memory: 32GiB, disk: 200GiB, price: 1 EUR/h, spot: 0.3 EUR/h,"
    " spot_stock: 0}}"
)
POOL = (
    "{provider: desk, machine: {type: m8, market: [spot, on-demand]}, image: trixie,"
    " workers: {max: 1}}"
)


def test_place_starts_after_retry_when_its_market_is_out_of_stock(project: Path) -> None:
    trial = Trial(project)
    trial.write(fleet_yaml(pools={"small": POOL}, desk=TYPES, more="durations: {any: 1h}\n"))
    trial.init()
    trial.wait_for("1", "2")
    trial.do("apply")

    said = trial.told("explain", "request", "work/2", "--json")
    answer = json.loads(said[said.index("{") :])
    places = {each["market"]: each for each in answer["places"]}
    times = [datetime.fromisoformat(each["start"]) for each in places.values()]
    retry = datetime.fromisoformat(places["spot"]["closed_until"])

    assert [bool(places[market]["closed"]) for market in ("spot", "on-demand")] == [True, False]
    assert min(times) < retry <= datetime.fromisoformat(places["spot"]["start"])
    assert places["spot"]["closed"] in trial.told("explain", "request", "work/2").replace(
        "\n    ", " "
    )
