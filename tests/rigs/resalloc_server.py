"""This module plays a Resalloc server: its passes over pools.yaml, with its own commands.

As its manager (Resalloc 6.3), a pass deletes what `cmd_list` prints and it does not know, then
what was given back, makes machines up to `max` and `max_prealloc`, and gives them to tickets.
"""

import os
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rigs.resalloc_tables import Resalloc


@dataclass
class Resource:
    """A machine of Resalloc's."""

    number: int
    pool: str
    name: str
    ticket: int | None = None


class ResallocServer:
    """A Resalloc over a folder with a pools.yaml, and its database as far as fleet reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Resalloc(folder / "resalloc.db")
        self.resources: dict[int, Resource] = {}
        self.tickets: dict[int, frozenset[str]] = {}
        self._last = 0

    def take(self, *tags: str) -> int:
        """Open a ticket."""
        number = max(self.tickets, default=0) + 1
        self.tickets[number] = frozenset(tags)
        self.database.ticket(number, *tags)
        return number

    def machine_of(self, ticket: int) -> str:
        """Return the machine that a ticket has; nothing while it waits."""
        return next((r.name for r in self.resources.values() if r.ticket == ticket), "")

    def close(self, number: int) -> None:
        """Close a ticket; its machine goes with the next pass."""
        del self.tickets[number]
        self.database.close(number)

    def delete_unused(self) -> None:
        """Do `resalloc-maint resource-delete --unused`."""
        for each in [r for r in self.resources.values() if r.ticket is None]:
            self._delete(each)

    def names(self) -> list[str]:
        """Return what `resalloc-maint resource-list` lists."""
        return sorted(each.name for each in self.resources.values())

    def run(self) -> None:
        """Make one pass over every pool."""
        pools = yaml.safe_load((self.folder / "pools.yaml").read_text(encoding="utf-8"))
        for name, pool in pools.items():
            self._clean(name, pool)
        for each in [*self.resources.values()]:
            if each.ticket is not None and each.ticket not in self.tickets:
                self._delete(each)
        for name, pool in pools.items():
            own = [r for r in self.resources.values() if r.pool == name]
            free = sum(r.ticket is None for r in own)
            for _ in range(min(pool["max"] - len(own), pool.get("max_prealloc", 1) - free)):
                self._make(name, pool)
        self._give(pools)

    def _clean(self, name: str, pool: dict[str, Any]) -> None:
        known = set(self.names())
        if "cmd_list" in pool:
            for listed in self._do(pool["cmd_list"], name, "None").split():
                if listed not in known:
                    self._do(pool["cmd_delete"], name, listed)

    def _make(self, name: str, pool: dict[str, Any]) -> None:
        self._last += 1
        made = Resource(self._last, name, f"{name}_{self._last:08d}_20261122_181715")
        self._do(pool["cmd_new"], name, made.name)
        self.resources[made.number] = made
        self.database.machine(made.number, name)

    def _delete(self, resource: Resource) -> None:
        pools = yaml.safe_load((self.folder / "pools.yaml").read_text(encoding="utf-8"))
        self._do(pools[resource.pool]["cmd_delete"], resource.pool, resource.name)
        del self.resources[resource.number]
        self._sql("UPDATE resources SET state = 'ENDED' WHERE id = ?", resource.number)

    def _give(self, pools: dict[str, Any]) -> None:
        held = {r.ticket for r in self.resources.values()}
        for number, tags in self.tickets.items():
            fit = (
                r
                for r in self.resources.values()
                if r.ticket is None and tags <= set(pools[r.pool]["tags"])
            )
            if number not in held and (found := next(fit, None)):
                found.ticket = number
                self._sql("UPDATE resources SET ticket_id = ? WHERE id = ?", number, found.number)
                self._sql("UPDATE tickets SET resource_id = ? WHERE id = ?", found.number, number)

    def _do(self, command: str, pool: str, name: str) -> str:
        """Run a command as Resalloc does: its exit status is ignored."""
        told = {"RESALLOC_POOL_ID": pool, "RESALLOC_NAME": name, "RESALLOC_ID": "0"}
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **told},
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    def _sql(self, statement: str, *values: object) -> None:
        with sqlite3.connect(self.folder / "resalloc.db") as connection:
            connection.execute(statement, values)
        connection.close()
