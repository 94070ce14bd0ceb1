"""What of the Compose file can be seen without containers: it starts what Debian's packages start.

Not seen are the two images of PostgreSQL and Redis, and the building of Debusine's own.
"""

import shlex
from typing import Any

import pytest
import yaml

from tests.live.debusine import Server
from tests.rigs.process import ROOT

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests/live/server/compose.yaml").read_text(encoding="utf-8")
)["services"]
UNITS = {
    "migrate": "debusine-server-migrate",
    "server": "debusine-server",
    "celery": "debusine-server-celery",
    "scheduler": "debusine-server-scheduler",
    "beat": "debusine-server-periodic-tasks",
}


@pytest.mark.parametrize("service", UNITS)
def test_service_runs_the_command_of_its_unit_as_its_user(server: Server, service: str) -> None:
    folder = server.inside.root / "usr/lib/systemd/system"
    unit = (folder / f"{UNITS[service]}.service").read_text(encoding="utf-8")
    keys = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)

    started = shlex.split(keys["ExecStart"].replace("/usr/bin/", "").replace("%%", "%"))

    assert SERVICES[service]["command"] == [part for part in started if part not in ("-l", "INFO")]
    assert SERVICES[service]["user"] == keys["User"]


def test_compose_environment_matches_settings_of_server(server: Server) -> None:
    told = SERVICES["server"]["environment"]
    settings = server.inside.root / "etc/debusine/server"
    text = "".join((settings / f).read_text() for f in ("local.py", "gunicorn.conf.local.py"))

    assert [name for name in told if name.startswith("LIVE_") and name not in text] == []
    assert SERVICES["server"]["working_dir"] == server.inside.run(
        "debusine-server", "sh", "-c", 'cd ~debusine-server && printf %s "$PWD"'
    )


@pytest.mark.parametrize(
    ("service", "port"),
    [("server", "http_port"), ("database", "sql_port"), ("redis", "redis_port")],
)
def test_service_that_runs_is_healthy(server: Server, service: str, port: str) -> None:
    _, *check = SERVICES[service]["healthcheck"]["test"]
    here = str(getattr(server, port))
    more = {"server": (), "database": ("-h", "127.0.0.1", "-p", here), "redis": ("-p", here)}

    server.inside.run(
        "debusine-server",
        *(check[0], *more[service]),
        *(part.replace(":8000", f":{here}") for part in check[1:]),
    )
