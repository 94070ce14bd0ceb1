"""A real Prometheus checks the rules and the dashboard's queries, and scrapes fleet."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from tests.cli.test_serve import Heard, counter, served
from tests.contrib.test_alerts import FOLDER, GOLDEN, NAMES, queries
from tests.rigs.local_machines import until
from tests.rigs.loopback import free_ports
from tests.rigs.resalloc_client import OldClient
from tests.rigs.ticket_service import TOKENS
from tests.rigs.trial import Trial

pytestmark = pytest.mark.metrics
__all__ = ("counter",)


def promtool(*args: str, given: str = "") -> str:
    """Run promtool, which has to find nothing, and return what it said."""
    done = subprocess.run(
        ["promtool", *args], input=given, capture_output=True, text=True, check=False, cwd=FOLDER
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_alert_rules_are_valid_and_pass_their_unit_tests() -> None:
    promtool("check", "rules", "fleet.rules.yml")
    promtool("test", "rules", "fleet.rules.test.yml")


def test_metrics_have_format_of_prometheus() -> None:
    assert promtool("check", "metrics", given=GOLDEN.read_text("utf-8")) == ""


def test_every_dashboard_query_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$fleet", ".*").replace("$pool", ".*")}
        for number, query in enumerate(queries(), 1)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")

    said = promtool("check", "rules", str(file))

    assert f"{len(rules)} rules found" in said


class Prometheus:
    """One that runs, asked over its API."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return its answer; None while it gives none."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}"
        with suppress(OSError, HTTPException), urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
        return None

    def query(self, query: str) -> list[dict[str, Any]]:
        """Return the series that a query finds."""
        found = self.ask(f"query?query={quote(query)}")
        return found["result"] if found else []

    def rules(self) -> list[dict[str, Any]]:
        """Return its alerts."""
        found = self.ask("rules")
        return [rule for group in found["groups"] for rule in group["rules"]] if found else []

    def health(self) -> set[str]:
        """Return how evaluating the alerts went."""
        return {rule["health"] for rule in self.rules()}


@contextmanager
def prometheus(folder: Path, url: str) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a fleet as its client, by the shipped rules."""
    (port,) = free_ports(1)
    (folder / "password").write_text(TOKENS["copr"], "utf-8")
    scrape = {
        "job_name": "fleet",
        "scrape_interval": "1s",
        "basic_auth": {"username": "copr", "password_file": str(folder / "password")},
        "static_configs": [{"targets": [url.removeprefix("http://")]}],
    }
    config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "fleet.rules.yml")],
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    promtool("check", "config", str(folder / "prometheus.yml"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={folder / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(20)


def test_prometheus_scrapes_the_service_and_evaluates_the_rules(
    counter: Trial, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"copr {TOKENS['copr']}\n", "utf-8")
    tokens.chmod(0o600)
    seen: dict[str, Any] = {}

    def look(_: OldClient, console: Heard) -> None:
        url = console.hear("listening at").split()[2]
        with prometheus(tmp_path, url) as running:
            until(lambda: running.query("fleet_last_run_success"), 30)
            until(lambda: running.health() == {"ok"}, 30)
            seen["targets"] = running.ask("targets")["activeTargets"]
            seen["rules"] = running.rules()
            seen["machines"] = running.query("sum by (fleet, pool) (fleet_pool_machines_max)")
            seen["metadata"] = running.ask("metadata?metric=fleet_last_run_timestamp_seconds")

    code, console = served(counter, look, "--tokens", str(tokens))

    assert code == 0, console.said
    assert [(each["health"], each["lastError"]) for each in seen["targets"]] == [("up", "")]
    assert [rule["name"] for rule in seen["rules"]] == NAMES
    # Before the first scrape one was about to say that there is nothing.
    assert {rule["state"] for rule in seen["rules"]} <= {"inactive", "pending"}
    (most,) = seen["machines"]
    assert most["metric"] == {"fleet": "trial", "pool": "powerful"}
    assert most["value"][1] == "4"
    ((told,),) = seen["metadata"].values()
    assert (told["type"], told["unit"]) == ("gauge", "seconds")
