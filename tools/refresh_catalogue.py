"""Write the price catalogue, fleet/model/{aws,hcloud}.csv, from public sources.

AWS: resources of machine types from moto, prices of the first region from Karpenter's Go module,
and prices of the other regions from the Python package apache-libcloud. Both copied AWS's price
list on a date that they state. Hetzner: its API, if HCLOUD_TOKEN is set; otherwise the file stays
unchanged.
"""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import moto

from fleet.clouds.hcloud.machines import HcloudPrices
from fleet.model.prices import locations_of
from fleet.schema.model import HcloudProvider
from fleet.schema.units import EnvSecret

TABLES = Path(__file__).parents[1] / "fleet" / "model"
KARPENTER = "github.com/aws/karpenter-provider-aws"
KARPENTER_FILE = "pkg/providers/pricing/zz_generated.pricing_aws.go"
FIRST = "us-east-1"
REGIONS = ("eu-central-1", "eu-west-1", "eu-north-1", "us-east-2", "us-west-2")
FAMILIES = re.compile(r"[cmr](6a|6i|6g|7a|7i|7i-flex|7g|8a|8i|8i-flex|8g)")
NEAR = Decimal("0.003")
"""Tolerance for equal prices per core of a family; dedicated machines cost 6 to 10 % more."""

Prices = dict[str, dict[str, Decimal]]
"""Region to machine type to price per hour."""


def main() -> int:
    """Write both tables, and print the number of written machine types."""
    with tempfile.TemporaryDirectory(prefix="fleet-catalogue-") as folder:
        aws(Path(folder))
    token = os.environ.get("HCLOUD_TOKEN")
    if token:
        hcloud(token)
    else:
        print("hcloud.csv: kept; set HCLOUD_TOKEN to read Hetzner's price list", file=sys.stderr)
    return 0


def aws(folder: Path) -> None:
    """Write EC2's machine types and their on-demand prices for Linux, per region."""
    types = {name: each for name, each in instance_types().items() if is_wanted(name, each)}
    first, first_source = karpenter(folder)
    others, others_source = libcloud(folder, types)
    prices = {FIRST: first, **others}
    rows = [
        [
            name,
            each["VCpuInfo"]["DefaultVCpus"],
            each["MemoryInfo"]["SizeInMiB"],
            0,
            "arm64" if "arm64" in each["ProcessorInfo"]["SupportedArchitectures"] else "amd64",
            name.partition(".")[0],
            *(prices[region].get(name, "") for region in (FIRST, *REGIONS)),
        ]
        for name, each in sorted(types.items(), key=lambda pair: order(*pair))
    ]
    sources = {FIRST: first_source, **dict.fromkeys(REGIONS, others_source)}
    figures = f"moto {moto.__version__} (DescribeInstanceTypes)"
    write("aws.csv", "USD", f"types: {figures}", sources, rows)


def instance_types() -> dict[str, Any]:
    """Return EC2's machine types from moto, which contains recorded responses of EC2."""
    packed = Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz"
    answers: dict[str, Any] = json.loads(gzip.decompress(packed.read_bytes()))
    return answers


def is_wanted(name: str, figures: Mapping[str, Any]) -> bool:
    """Return whether a type is a virtual machine of a current general-purpose family."""
    family = name.partition(".")[0]
    return bool(FAMILIES.fullmatch(family)) and not figures.get("BareMetal")


def order(name: str, figures: Mapping[str, Any]) -> tuple[str, int]:
    """Return the sort key of a row: the family, then the memory."""
    return name.partition(".")[0], figures["MemoryInfo"]["SizeInMiB"]


def karpenter(folder: Path) -> tuple[dict[str, Decimal], str]:
    """Return the prices of the first region, and their date and source as text."""
    # It fails where the module needs a newer Go; its archive is there all the same.
    command = ["go", "mod", "download", "-json", f"{KARPENTER}@latest"]
    asked = subprocess.run(command, cwd=folder, check=False, text=True, stdout=subprocess.PIPE)
    module = json.loads(asked.stdout)
    with zipfile.ZipFile(module["Zip"]) as packed:
        inside = f"{KARPENTER}@{module['Version']}/{KARPENTER_FILE}"
        text = packed.read(inside).decode()
    dated = re.search(r"generated at (\d{4}-\d{2}-\d{2})\S* for " + FIRST, text)
    if dated is None:
        raise SystemExit(f"{KARPENTER_FILE} does not say when it was made")
    prices = re.findall(r'"([a-z0-9-]+\.[a-z0-9]+)": (\d+\.\d+)', text)
    named = f"{dated[1]} {KARPENTER} {module['Version']} {KARPENTER_FILE}"
    return {name: trimmed(price) for name, price in prices}, named


def libcloud(folder: Path, types: Mapping[str, Any]) -> tuple[Prices, str]:
    """Return the prices of the other regions, and their date and source as text."""
    options = ("--quiet", "--no-deps", "--dest", str(folder))
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "apache-libcloud"], check=True
    )
    (wheel,) = folder.glob("apache_libcloud-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        table = json.loads(packed.read("libcloud/data/pricing.json"), parse_float=Decimal)
    dated = datetime.fromtimestamp(int(table["updated"]), UTC).date()
    prices: Prices = {region: {} for region in REGIONS}
    for region in REGIONS:
        told = {
            name: (each[region], types[name]["VCpuInfo"]["DefaultVCpus"])
            for name, each in table["compute"]["ec2_linux"].items()
            if name in types and region in each
        }
        prices[region] = on_demand(told)
    version = wheel.name.split("-")[1]
    return prices, f"{dated} apache-libcloud {version} libcloud/data/pricing.json ec2_linux"


def on_demand(told: Mapping[str, tuple[Decimal, int]]) -> dict[str, Decimal]:
    """Return the prices of shared machines, without those of dedicated machines and zeros.

    The table has one price per type, and for some types that is the price of a dedicated machine.
    EC2's prices in a family are proportional to cores, so the lowest price per core of at least
    two types is correct.
    """
    families: dict[str, list[tuple[Decimal, str]]] = defaultdict(list)
    for name, (price, cores) in told.items():
        if price > 0:
            families[name.partition(".")[0]].append((price / cores, name))
    kept = (name for each in families.values() for name in alike(sorted(each)))
    return {name: trimmed(told[name][0]) for name in kept}


def alike(sorted_prices: list[tuple[Decimal, str]]) -> Iterator[str]:
    """Yield the types with the lowest price per core that at least two types share."""
    for price, _ in sorted_prices:
        near = [name for each, name in sorted_prices if price <= each <= price * (1 + NEAR)]
        if len(near) > 1:
            yield from near
            return


def hcloud(token: str) -> None:
    """Write Hetzner's server types and their current prices per zone from its API."""
    secret = EnvSecret(env="HCLOUD_TOKEN")
    now = datetime.now(UTC)
    tariffs = {
        at: HcloudPrices(HcloudProvider(kind="hcloud", location=at, token=secret), token).read(now)
        for at in dict.fromkeys(locations_of("hcloud").values())
    }
    sold = {name: quote for each in tariffs.values() for name, quote in each.quotes.items()}
    rows = [
        [
            *(name, each.cores, each.memory, each.disk, each.architecture),
            "dedicated" if name.startswith("ccx") else "shared",
            *(
                trimmed(quote.price) if (quote := tariff.quotes.get(name)) else ""
                for tariff in tariffs.values()
            ),
        ]
        for name, each in sorted(sold.items())
    ]
    said = f"{now.date()} Hetzner Cloud API, GET /v1/server_types"
    write("hcloud.csv", "EUR", "types: the same", dict.fromkeys(tariffs, said), rows)


def write(
    name: str,
    currency: str,
    types: str,
    sources: Mapping[str, str],
    rows: Iterable[Sequence[object]],
) -> None:
    """Write one table, with comments on its sources above the rows."""
    text = io.StringIO()
    text.write(f"# {currency} per hour, net, on demand; memory and disk in MiB.\n# {types}\n")
    for region, source in sources.items():
        text.write(f"# {region}: {source}\n")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["name", "cores", "memory", "disk", "architecture", "class", *sources])
    written = [*rows]
    lines.writerows(written)
    (TABLES / name).write_text(text.getvalue(), encoding="utf-8")
    print(f"{name}: {len(written)} machine types")


def trimmed(price: str | Decimal) -> Decimal:
    """Return a price without trailing zeros."""
    return Decimal(format(Decimal(price).normalize(), "f"))


if __name__ == "__main__":
    sys.exit(main())
