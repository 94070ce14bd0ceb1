"""Play a Resalloc server: its passes over pools.yaml, with its own commands.

As its manager (Resalloc 6.3), a pass deletes what `cmd_list` prints and it does not know, looks
after what was given back and what does not work, makes machines up to `max` and `max_prealloc` or
as tickets on demand ask for, and gives them out: on demand first, then the oldest; each gets the
machine whose tags have the highest priorities, one of its sandbox before all.
"""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any
from xmlrpc.server import SimpleXMLRPCServer

import yaml

_OF_ITS_SANDBOX = 500
_PASS_SECONDS = 0.05


@dataclass
class Resource:
    """A machine of Resalloc's."""

    number: int
    pool: str
    name: str
    output: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    ticket: int | None = None
    sandbox: str = ""
    uses: int = 0
    taken_at: float = 0.0
    released_at: float = 0.0
    checked_at: float = field(default_factory=monotonic)
    failures: int = 0


@dataclass
class Asked:
    """A ticket of Resalloc's that is not closed."""

    tags: frozenset[str]
    sandbox: str
    failed: bool = False


class ResallocServer:
    """A Resalloc over a folder with a pools.yaml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resources: dict[int, Resource] = {}
        self.tickets: dict[int, Asked] = {}
        self._last = self._taken = 0
        self._read: tuple[str, dict[str, dict[str, Any]]] = ("", {})
        self._changed = threading.Condition()

    def take(self, *tags: str, sandbox: str = "") -> int:
        """Open a ticket."""
        with self._changed:
            self._taken += 1
            self.tickets[self._taken] = Asked(frozenset(tags), sandbox)
            return self._taken

    def machine_of(self, ticket: int) -> str:
        """Return the machine that a ticket has; nothing while it waits."""
        return next((r.name for r in self._all() if r.ticket == ticket), "")

    def close(self, number: int) -> bool:
        """Close a ticket; its machine goes, or waits for its sandbox, with the next pass."""
        with self._changed:
            del self.tickets[number]
        return True

    def delete_unused(self) -> None:
        """Do `resalloc-maint resource-delete --unused`."""
        for each in [r for r in self._all() if r.ticket is None]:
            self.delete(each)

    def names(self) -> list[str]:
        """Return the names of its machines."""
        return sorted(each.name for each in self._all())

    def resource_list(self) -> str:
        """Return what `resalloc-maint resource-list` prints."""
        pools = self._pools()
        return "".join(
            f"{each.number} - {each.name} pool={each.pool} "
            f"tags={','.join(pools[each.pool]['provides'])} status=UP releases={each.uses} "
            f"ticket={each.ticket or 'NULL'}\n"
            for each in self._all()
        )

    def ticket_list(self) -> str:
        """Return what `resalloc-maint ticket-list` prints."""
        lines = []
        for number, asked in self.tickets.items():
            machine = self.machine_of(number)
            more = f" resource={machine}" if machine else ""
            lines.append(f"{number} - state=OPEN tags={','.join(sorted(asked.tags))}{more}\n")
        return "".join(lines)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Make passes and answer clients; yield the address."""
        is_over = threading.Event()

        def passes() -> None:
            while not is_over.wait(_PASS_SECONDS):
                self.run()

        with _Server(("127.0.0.1", 0), allow_none=True, logRequests=False) as server:
            server.register_function(
                lambda tags, box="": self.take(*tags, sandbox=box), "takeTicket"
            )
            server.register_function(self._collect, "collectTicket")
            server.register_function(self._wait, "waitTicket")
            server.register_function(self.close, "closeTicket")  # type: ignore[arg-type]  # an int
            threads = [
                threading.Thread(target=passes),
                threading.Thread(target=server.serve_forever, args=(_PASS_SECONDS,)),
            ]
            for each in threads:
                each.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                is_over.set()
                server.shutdown()
                for each in threads:
                    each.join()

    def run(self) -> None:
        """Make one pass over every pool."""
        pools = self._pools()
        for name, pool in pools.items():
            self._clean(name, pool)
        for each in self._all():
            self._look_after(each, pools[each.pool])
        self._delete_unasked(pools)
        for name, pool in pools.items():
            own = [r for r in self._all() if r.pool == name]
            free = sum(r.ticket is None and not r.uses for r in own)
            least = 0 if "tags_on_demand" in pool else pool.get("max_prealloc", 1)
            for _ in range(min(pool["max"] - len(own), least - free)):
                self._make(name, pool)
        self._make_on_demand(pools)
        self._give(pools)

    def _collect(self, number: Any) -> dict[str, object]:  # noqa: ANN401 - as it was sent
        ticket = self.tickets.get(number)
        found = next((r.output for r in self._all() if r.ticket == number), None)
        failed = ticket is not None and ticket.failed
        return {"ready": bool(found), "output": found, "closed": ticket is None, "failed": failed}

    def _wait(self, number: Any) -> Any:  # noqa: ANN401 - as it was sent
        with self._changed:
            self._changed.wait_for(lambda: self._collect(number)["ready"], 60)
        return self._collect(number)["output"]

    def _all(self) -> list[Resource]:
        return [*self.resources.values()]

    def _pools(self) -> dict[str, dict[str, Any]]:
        """Return the pools: each with the priority of each tag, and those that are on demand."""
        text = (self.folder / "pools.yaml").read_text(encoding="utf-8")
        if text == self._read[0]:
            return self._read[1]
        pools: dict[str, dict[str, Any]] = yaml.safe_load(text)
        for pool in pools.values():
            on_demand = _priorities(pool.get("tags_on_demand", []))
            pool["called"] = {*on_demand}
            pool["provides"] = _priorities(pool.get("tags", [])) | on_demand
        self._read = text, pools
        return pools

    def _clean(self, name: str, pool: dict[str, Any]) -> None:
        known = set(self.names())
        if "cmd_list" in pool:
            for listed in self._do(pool["cmd_list"], name, "None").split():
                if listed not in known:
                    self._do(pool["cmd_delete"], name, listed)

    def _look_after(self, each: Resource, pool: dict[str, Any]) -> None:
        """Delete a machine that does not work or is used up; clean one that was given back."""
        if self._is_broken(each, pool):
            if each.ticket in self.tickets:
                self.tickets[each.ticket].failed = True
            self.delete(each)
            return
        now, kept = monotonic(), pool.get("reuse_opportunity_time", 0)
        if each.ticket is not None and each.ticket not in self.tickets:
            self._do(pool.get("cmd_release", ":"), each.pool, each.name)
            each.ticket, each.released_at = None, now
            each.uses += 1
        most = pool.get("reuse_max_count", 0)
        is_idle = bool(each.uses) and each.ticket is None
        if is_idle and (
            now - each.released_at >= kept
            or 0 < most < each.uses
            or now - each.taken_at >= pool.get("reuse_max_time", 3600)
        ):
            self.delete(each)

    def _is_broken(self, each: Resource, pool: dict[str, Any]) -> bool:
        due = each.checked_at + pool.get("livecheck_period", 600) <= monotonic()
        if due and "cmd_livecheck" in pool:
            works = self._do(f"{pool['cmd_livecheck']} && echo works", each.pool, each.name)
            each.failures = 0 if "works" in works else each.failures + 1
            each.checked_at = monotonic()
        return each.failures >= int(pool.get("livecheck_attempts", 3))

    def _delete_unasked(self, pools: Mapping[str, dict[str, Any]]) -> None:
        """Delete machines on demand that nobody asks for any more and nobody has had."""
        for each in self._all():
            pool = pools[each.pool]
            waits = any(asked.tags <= {*pool["provides"]} for _, asked in self._waiting())
            if "tags_on_demand" in pool and not each.uses and each.ticket is None and not waits:
                self.delete(each)

    def _make_on_demand(self, pools: Mapping[str, dict[str, Any]]) -> None:
        called = _called(pools)
        unclaimed = [r for r in self._all() if r.ticket is None]
        for _, asked in self._waiting():
            if not asked.tags & called:
                continue
            able = [name for name in sorted(pools) if asked.tags <= {*pools[name]["provides"]}]
            own = next((r for r in unclaimed if r.pool in able), None)
            if own:
                unclaimed.remove(own)
                continue
            left = [n for n in able if sum(r.pool == n for r in self._all()) < pools[n]["max"]]
            if left:
                best = max(left, key=lambda name: _score(pools[name], asked))
                self._make(best, pools[best])

    def _make(self, name: str, pool: dict[str, Any]) -> None:
        self._last += 1
        made = Resource(self._last, name, f"{name}_{self._last:08d}_20261122_181715")
        made.counters = {
            key: next(
                n for n in range(self._last) if all(r.counters.get(key) != n for r in self._all())
            )
            for key in pool.get("named_counters", [])
        }
        told = {f"RESALLOC_NAMED_COUNTER_{key}": str(n) for key, n in made.counters.items()}
        made.output = self._do(pool["cmd_new"], name, made.name, **told)
        self.resources[made.number] = made

    def delete(self, resource: Resource) -> None:
        """Do `resalloc-maint resource-delete NAME`."""
        pool = self._pools()[resource.pool]
        self._do(pool["cmd_delete"], resource.pool, resource.name)
        del self.resources[resource.number]

    def _waiting(self) -> list[tuple[int, Asked]]:
        held = {r.ticket for r in self._all()}
        return [(n, t) for n, t in [*self.tickets.items()] if n not in held and not t.failed]

    def _give(self, pools: Mapping[str, dict[str, Any]]) -> None:
        called = _called(pools)
        order = sorted(self._waiting(), key=lambda each: (not each[1].tags & called, each[0]))
        for number, asked in order:
            fit = [
                r
                for r in self._all()
                if r.ticket is None
                and not r.failures
                and r.sandbox in ("", asked.sandbox)
                and not (r.uses and not asked.sandbox)
                and asked.tags <= {*pools[r.pool]["provides"]}
            ]
            if not fit:
                continue
            found = max(
                fit, key=lambda r: _score(pools[r.pool], asked) + _OF_ITS_SANDBOX * bool(r.uses)
            )
            with self._changed:
                if number not in self.tickets:
                    continue
                found.ticket = number
                found.sandbox = asked.sandbox or f"only for {number}"
                found.taken_at = found.taken_at or monotonic()
                self._changed.notify_all()

    def _do(self, command: str, pool: str, name: str, **more: str) -> str:
        """Run a command as Resalloc does: its exit status is ignored."""
        told = {"RESALLOC_POOL_ID": pool, "RESALLOC_NAME": name, "RESALLOC_ID": "0", **more}
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **told},
            capture_output=True,
            text=True,
            check=False,
        ).stdout


def _score(pool: Mapping[str, Any], asked: Asked) -> int:
    return sum(pool["provides"][tag] for tag in asked.tags)


def _called(pools: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the tags for which machines are made on demand."""
    return {tag for pool in pools.values() for tag in pool["called"]}


def _priorities(tags: list[Any]) -> dict[str, int]:
    written = [tag if isinstance(tag, dict) else {"name": tag} for tag in tags]
    return {tag["name"]: tag.get("priority", 0) for tag in written}


class _Server(ThreadingMixIn, SimpleXMLRPCServer):
    daemon_threads = True
