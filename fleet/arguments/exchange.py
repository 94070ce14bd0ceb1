"""This module is the part of the command line that deals with other systems; it imports none."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fleet.arguments.usage import Parser, add_json, add_verb, add_world

if TYPE_CHECKING:
    from fleet.arguments.usage import Verbs

_PORTS = 1 << 16


def add_exchange(verbs: Verbs) -> None:
    """Add what is written for other systems, read from them, and simulated of them."""
    _export(verbs)
    _import(verbs)
    _debusine(verbs)
    _sim(verbs)


def _export(verbs: Verbs) -> None:
    parser = add_verb(verbs, "export", "write rules for the queue that assigns work", config=False)
    targets = parser.add_subparsers(dest="target", metavar="QUEUE", required=True)
    debusine = add_verb(targets, "debusine", "write Debusine task-configuration entries")
    debusine.add_argument(
        "--task",
        action="append",
        metavar="NAME",
        help="the Debusine task that `powerful` is about (default: sbuild); may be repeated",
    )
    copr = add_verb(targets, "copr", "write the option EXTRA_BUILDCHROOT_TAGS of Copr's frontend")
    how = debusine.add_mutually_exclusive_group()
    how.add_argument(
        "--diff",
        action="store_true",
        help="show what --apply would change at the servers; exit 3 where they differ",
    )
    how.add_argument(
        "--apply", action="store_true", help="write the entries to the servers (queues.NAME.rules)"
    )
    debusine.add_argument(
        "--delete-up-to",
        type=int,
        default=0,
        metavar="N",
        help="with --apply: let so many deletions pass at each place",
    )
    copr.add_argument(
        "--patch",
        metavar="FILE",
        help="write a unified diff that puts the list into FILE, Copr's configuration",
    )
    for target in (debusine, copr):
        target.add_argument("--out", metavar="FILE", help="write it to FILE instead")


def _import(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "import", "write a fleet.yaml from what another system has", config=False
    )
    # `import` is no name that a Python module can have.
    parser.set_defaults(command="import_")
    sources = parser.add_subparsers(dest="source", metavar="SYSTEM", required=True)
    for name, what, help_text in (
        ("resalloc", "POOLS.YAML", "read the pools of a Resalloc server"),
        ("copr", "CONF", "read the allow-list in the configuration of Copr's frontend"),
        ("debusine", "POOLS.YAML", "read the worker pools of a Debusine server"),
    ):
        source = add_verb(sources, name, help_text, config=False)
        live = name == "debusine"
        source.add_argument(
            "path", nargs="?" if live else None, metavar=what, help="the file to read"
        )
        source.add_argument(
            "--fleet",
            default="imported",
            metavar="NAME",
            help="the name of the fleet (default: imported)",
        )
        source.add_argument("--out", metavar="FILE", help="write fleet.yaml to FILE instead")
        source.add_argument(
            "--json", metavar="FILE", help="also write every change of meaning as JSON to FILE"
        )
        if name == "copr":
            add_world(source)
        if name == "debusine":
            _server(source)


def _server(source: Parser) -> None:
    source.add_argument(
        "--dsn-env",
        metavar="VARIABLE",
        help="ask the server's database in place of a file: this environment variable holds the "
        "DSN of a read-only PostgreSQL role",
    )
    source.add_argument(
        "--admin",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="ask the server in place of a file: the command that runs debusine-admin there, as "
        "in --admin ssh HOST debusine-admin; everything after it belongs to it",
    )


def _debusine(verbs: Verbs) -> None:
    parser = add_verb(verbs, "debusine", "prepare a Debusine server for fleet", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    grants = add_verb(
        actions,
        "grants",
        "print the SQL for a role that reads demand and workers; changes nothing",
    )
    grants.add_argument(
        "--admin", action="store_true", help="for the role that also changes workers (admin.dsn)"
    )
    grants.add_argument("--role", metavar="NAME", help="its name (default: fleet_ro or fleet_rw)")
    grants.add_argument(
        "--check",
        action="store_true",
        help="ask the database that fleet.yaml names what its role lacks or has too much",
    )
    grants.add_argument("--queue", metavar="NAME", help="with --check: only this queue")
    add_json(grants)


def _sim(verbs: Verbs) -> None:
    parser = add_verb(verbs, "sim", "simulate a cloud's API on this computer", config=False)
    clouds = parser.add_subparsers(dest="cloud", metavar="CLOUD", required=True)
    help_text = "serve Hetzner Cloud's API for trials without an account; Ctrl-C ends it"
    hcloud = add_verb(clouds, "hcloud", help_text, config=False)
    hcloud.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="N",
        help="where to listen, on this computer only (default: any port that is free)",
    )
    hcloud.add_argument(
        "--state", metavar="FILE", help="keep what exists in FILE, and begin with what it holds"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) >= _PORTS:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to {_PORTS - 1}")
    return int(text)
