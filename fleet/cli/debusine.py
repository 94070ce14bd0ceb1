"""Print the SQL that grants fleet's rights in a Debusine database, or check a role's rights."""

import argparse
from collections.abc import Iterator

from fleet.apply.config import load_config
from fleet.cli.arguments import JSON, action, actions, flag, option
from fleet.cli.output import show_text
from fleet.errors import FleetError, WrongUsage
from fleet.ports import Console
from fleet.queues.debusine.checkup import GrantDifference, compare, rights, write_grants
from fleet.queues.debusine.connection import identify, reading
from fleet.schema.model import AdminDsn, DebusineQueue, Fleet, SecretRef
from fleet.state.secrets import HostSecrets

ARGUMENTS = (
    actions(
        action(
            "grants",
            "print the SQL for a role that reads demand and workers",
            None,
            flag("--admin", "print the SQL for the role that also changes workers (admin.dsn)"),
            option("--role", "NAME", "name of the role (default: fleet_ro or fleet_rw)"),
            flag(
                "--check",
                "list missing and excess rights of the role in the database of fleet.yaml",
            ),
            option("--queue", "NAME", "with --check: only this queue"),
            JSON,
        )
    ),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the SQL, or compare rights; return 1 if a role has missing or excess rights."""
    if not args.check:
        if args.queue:
            raise WrongUsage("--queue needs --check")
        role = args.role or ("fleet_rw" if args.admin else "fleet_ro")
        needed = [
            {"table": right.table, "privilege": right.privilege, "column": right.column}
            for right in rights(admin=args.admin)
        ]
        sql = write_grants(role, admin=args.admin)
        show_text(args, console, {"role": role, "sql": sql, "rights": needed}, sql)
        return 0
    if args.role:
        raise WrongUsage("--check uses the role of fleet.yaml; remove --role")
    standings = dict(_check(args, load_config(args, console).fleet))
    values = {
        queue: {"role": each.role, "missing": [*each.missing], "excess": [*each.excess]}
        for queue, each in standings.items()
    }
    texts = (_describe_grant(*each, admin=args.admin) for each in standings.items())
    show_text(args, console, values, "\n".join(texts))
    return int(any(standing.missing or standing.excess for standing in standings.values()))


def _check(args: argparse.Namespace, fleet: Fleet) -> Iterator[tuple[str, GrantDifference]]:
    secrets = HostSecrets.beside(args.file)
    servers = {n: q for n, q in fleet.queues.items() if isinstance(q, DebusineQueue)}
    if args.queue is not None and args.queue not in servers:
        known = ", ".join(sorted(servers)) or "none"
        raise WrongUsage(f"--queue {args.queue}: no such queue of kind debusine; known: {known}")
    key = "admin.dsn" if args.admin else "read"
    asked = servers if args.queue is None else {args.queue: servers[args.queue]}
    found = {name: _reference(queue, admin=args.admin) for name, queue in asked.items()}
    known_references = {name: ref for name, ref in found.items() if ref is not None}
    if not known_references:
        raise FleetError(
            f"{args.file}: no queue of kind debusine has `{key}`, so there is no role to check"
        )
    for name, reference in sorted(known_references.items()):
        with reading(secrets.read(reference)) as connection:
            identify(connection)
            yield name, compare(connection, admin=args.admin)


def _reference(queue: DebusineQueue, *, admin: bool) -> SecretRef | None:
    if not admin:
        return queue.read
    return queue.admin.dsn if isinstance(queue.admin, AdminDsn) else None


def _describe_grant(queue: str, standing: GrantDifference, *, admin: bool) -> str:
    if not (standing.missing or standing.excess):
        return f"queue {queue}: role {standing.role} has exactly the rights it needs"
    lines = [f"queue {queue}: role {standing.role}"]
    lines += [f"  lacks {each}" for each in standing.missing]
    lines += [f"  does not need: {each}" for each in standing.excess]
    option = " --admin" if admin else ""
    lines.append(
        f"  grant: fleet debusine grants{option} --role {standing.role}; revoke the rest with "
        "REVOKE"
    )
    return "\n".join(lines)
