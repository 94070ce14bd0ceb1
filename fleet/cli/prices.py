"""Compare the prices that plans use with the providers' current prices."""

import argparse

from fleet.apply.config import load_config
from fleet.apply.observe import read_price_list
from fleet.cli.arguments import JSON, action, actions
from fleet.cli.output import show
from fleet.clock import SystemClock, utc_now
from fleet.clouds.cloud import AnyCloud
from fleet.clouds.kinds import clouds_of
from fleet.errors import FleetError
from fleet.model.price_lists import with_price_list
from fleet.model.prices import PriceTable, source_of, table_of
from fleet.ports import Console
from fleet.report.prices import (
    PriceCheck,
    PriceReport,
    age_in_days,
    compare_prices,
    prices_to_lines,
    used_types,
)
from fleet.schema.model import Fleet, Provider
from fleet.state.store import Store, store_of

ARGUMENTS = (
    actions(action("check", "compare the prices of plans with those of providers", None, JSON)),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print equal and different prices, and the providers that could not be compared."""
    fleet = load_config(args, console).fleet
    clouds = clouds_of(fleet, args.file, SystemClock())
    store = store_of(fleet, args.file)
    report = PriceReport(
        fleet=fleet.fleet,
        checks=tuple(_check(fleet, name, cloud, store) for name, cloud in sorted(clouds.items())),
    )
    show(args, console, report, prices_to_lines(report), piped=None)
    return report.exit_code


def _check(fleet: Fleet, name: str, cloud: AnyCloud, store: Store) -> PriceCheck:
    if not used_types(fleet, name):
        return _report_unchecked(fleet, name, "its pools use no machine type of the catalogue")
    try:
        reader = cloud.prices()
        if reader is not None:
            kept, told = read_price_list(name, reader, store, utc_now())
            counted = fleet if kept is None else with_price_list(fleet, name, kept)
            return compare_prices(counted, name, told, told.read_at.date())
        asker = cloud.todays_prices(used_types(fleet, name), used_types(fleet, name, "spot"))
        if asker is not None:
            told = asker.read(utc_now())
            return compare_prices(fleet, name, told, told.read_at.date())
    except FleetError as error:
        return _report_unchecked(fleet, name, str(error), failed=True)
    source = source_of(cloud.declared.kind)
    if not source:
        return _report_unchecked(fleet, name, _explain_unchecked(cloud.declared))
    return _report_unchecked(
        fleet,
        name,
        f"fleet cannot ask {cloud.declared.kind} for prices; compare by hand: {source}",
    )


def _explain_unchecked(declared: Provider) -> str:
    if declared.is_free:
        return "its machines cost nothing"
    own = "its prices are those of fleet.yaml"
    made_up = declared.price_location and not source_of(declared.kind)
    return f"{own}, others are made up, for trials" if made_up else own


def _report_unchecked(fleet: Fleet, name: str, reason: str, *, failed: bool = False) -> PriceCheck:
    declared = fleet.providers[name]
    shipped = table_of(declared) if source_of(declared.kind) else PriceTable()
    return PriceCheck(
        provider=name,
        kind=declared.kind,
        as_of=shipped.as_of,
        age=age_in_days(shipped.as_of, utc_now().date()),
        source=shipped.source,
        unchecked=reason,
        failed=failed,
    )
