"""`fleet observe`: record all inputs of a plan, with personal data but without secrets."""

import argparse
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from fleet.apply.config import Config, load_config
from fleet.apply.plan import observe_with_progress
from fleet.apply.wire import wire
from fleet.cli.arguments import FILE, SPAN, exclusive, flag, moment_of, option
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, WrongUsage
from fleet.model.facts import World, pseudonymise
from fleet.ports import Console
from fleet.queues.recorded import world_of
from fleet.report.json import value_to_json
from fleet.schema.model import Askers, Fleet
from fleet.state import history
from fleet.state.files import LocalFiles
from fleet.state.store import store_of

ARGUMENTS = (
    FILE,
    exclusive(
        option("--out", "FILE", "write to FILE instead of standard output"),
        option(
            "--append",
            "FILE",
            "append to this compressed history, for example history.jsonl.zst",
        ),
    ),
    flag(
        "--kept",
        "write observations of earlier runs from the store: the latest one, or with --append "
        "all that are newer than FILE",
    ),
    *SPAN,
    flag(
        "--pseudonyms",
        "replace the names of requesters, group members and sandboxes, which are personal data, "
        "by pseudonyms",
    ),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the world as JSON to a file, a history or standard output."""
    if (args.since or args.until) and not args.kept:
        raise WrongUsage("--since and --until select observations in the store; add --kept")
    config = load_config(args, console)
    worlds = _worlds(config, args, console)
    if args.pseudonyms:
        key, known = secrets.token_bytes(32), _find_named_users(config.fleet)
        worlds = (pseudonymise(world, key, known) for world in worlds)
    if args.append:
        _append(args.append, worlds, console)
        return 0
    *_, world = deque(worlds, 1) or [None]
    if world is None:
        raise FileUnreadable(
            "the store has no observation of that time: `fleet apply` adds one per run and keeps "
            "it for `history.keep`"
        )
    text = value_to_json(world)
    if args.out:
        LocalFiles().write_text(args.out, text)
        console.note(f"recorded in {args.out}; replay it with --world {args.out}")
    else:
        console.out(text)
    return 0


def _find_named_users(fleet: Fleet) -> set[str]:
    """Return the users that fleet.yaml names; these names get no pseudonym."""
    askers = [asker for rule in fleet.tags.values() for asker in rule.asked_by or ()]
    named = {user for asker in askers if isinstance(asker, Askers) for user in asker.users}
    return named.union(*(team.users for team in fleet.teams.values()))


def _worlds(config: Config, args: argparse.Namespace, console: Console) -> Iterator[World]:
    """Yield the requested recordings, oldest first: a new one, or those in the store."""
    if not args.kept:
        yield observe_with_progress(config, wire(config.fleet, args.file), console)
        return
    now = utc_now()
    since = moment_of(args.since, now) or datetime.min.replace(tzinfo=UTC)
    if args.append and (last := history.last_moment(args.append)):
        since = max(since, last + timedelta(seconds=1))
    store = store_of(config.fleet, args.file)
    for content in store.moments(since, moment_of(args.until, now) or now):
        yield world_of("the store", content)


def _append(name: str, worlds: Iterable[World], console: Console) -> None:
    added, done, world = 0, None, None
    for world in worlds:
        done = history.append(name, world.model_dump_json() + "\n", world.time)
        added += done.added
        if done.torn:
            console.note(f"fleet: warning: {name}: {history.torn_message(done)}")
    if done is None or world is None:
        console.note(f"{name} unchanged: the store has no newer observation")
        return
    console.note(
        f"added {added:,} bytes to {name}, {done.size:,} in all; replay this moment with "
        f"--world {name}@{world.time:%Y-%m-%dT%H:%M:%SZ}"
    )
