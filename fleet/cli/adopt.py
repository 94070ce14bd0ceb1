"""`fleet adopt`: add existing machines to a pool, by a change of only the machines' labels."""

import argparse

from fleet.apply.adopt import (
    Adoption,
    adopt_machines,
    adoption_to_lines,
    judge_adoption,
    pool_to_adopt,
)
from fleet.apply.config import Config, load_config
from fleet.apply.observe import Sources, stack_ref
from fleet.apply.plan import look
from fleet.apply.record import RunLog
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import Parser, add_file, add_json, flag
from fleet.clock import utc_now
from fleet.errors import SourceUnreachable, WrongUsage, refusal
from fleet.model.facts import FoundMachine, World
from fleet.model.outcome import Outcome
from fleet.ports import Adopter, Console
from fleet.report.json import value_to_json
from fleet.report.terminal import text_for
from fleet.schema.model import Fleet
from fleet.words.figures import many


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet adopt`."""
    add_file(parser)
    parser.add_argument(
        "--select",
        required=True,
        metavar="KEY=VALUE",
        help="adopt the machines whose label KEY at the provider equals VALUE",
    )
    parser.add_argument("--pool", required=True, metavar="NAME", help="add them to this pool")
    flag(
        parser,
        "--outdated",
        "also adopt machines that differ from new machines of the pool; later runs replace them",
    )
    flag(parser, "--dry-run", "list the machines without adopting them")
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Adopt machines, or list them with --dry-run; return 0."""
    key, equals, value = args.select.partition("=")
    if not (key and equals and value):
        raise WrongUsage(f"--select {args.select}: expected KEY=VALUE, the label to look for")
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    provider = pool_to_adopt(config.fleet, args.pool).provider
    adopter = _adopter(config.fleet, sources, provider)
    if args.dry_run:
        world = look(config, sources, console)
        adoption = _judge_machines(args, config, world, _find(adopter, provider, key, value))
        console.out(_render_adoption(args, console, adoption, applies=False))
        return 0
    started = utc_now()
    with sources.store.lock(lock_owner(), started):
        world = look(config, sources, console)
        adoption = _judge_machines(args, config, world, _find(adopter, provider, key, value))
        if not args.json:
            console.out(_render_adoption(args, console, adoption, applies=True))
        if adoption.machines:
            ref = stack_ref(config.fleet, args.pool, provider, world.stack_of(args.pool))
            outcome = adopt_machines(ref, adoption, adopter, sources, console.note)
            log = RunLog(sources.store, started, "adopt")
            log.record(Outcome(plan="", stacks=(outcome,)))
    if args.json:
        console.out(value_to_json(adoption))
    elif adoption.machines:
        console.out(f"Adopted {many(len(adoption.machines), 'machine')} into pool {args.pool}")
    return 0


def _judge_machines(
    args: argparse.Namespace, config: Config, world: World, found: tuple[FoundMachine, ...]
) -> Adoption:
    if not found:
        raise refusal(f"no machine has the label {args.select}")
    return judge_adoption(config.fleet, world, args.pool, found, outdated_too=args.outdated)


def _find(adopter: Adopter, provider: str, key: str, value: str) -> tuple[FoundMachine, ...]:
    try:
        return tuple(adopter.find(key, value))
    except SourceUnreachable as error:
        raise refusal(f"the machines of {provider} are unknown: {error}") from error


def _adopter(fleet: Fleet, sources: Sources, provider: str) -> Adopter:
    found = sources.providers.get(provider)
    if isinstance(found, Adopter):
        return found
    kind = fleet.providers[provider].kind
    raise refusal(
        f"provider {provider} of kind {kind} cannot find and label machines, or lacks its secret"
    )


def _render_adoption(
    args: argparse.Namespace, console: Console, adoption: Adoption, *, applies: bool
) -> str:
    if args.json:
        return value_to_json(adoption)
    lines = adoption_to_lines(adoption, applies=applies)
    return text_for(console, lines, piped=None)
