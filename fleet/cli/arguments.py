"""Building blocks of the arguments of all commands: parsers and common options."""

import argparse
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Parser whose errors print the usage of the given action and suggest a correction."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse overloads it
        """Refuse unknown arguments in the parser of the action, so that its usage is printed."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            meant = self._suggest_option(left[0])
            hint = f"; did you mean {meant}?" if meant else ""
            self.error(f"unrecognized arguments: {' '.join(left)}{hint}")
        return known, left

    def error(self, message: str) -> NoReturn:
        """Exit with an error; if an action is missing, list the possible actions."""
        for action in self._actions:
            if isinstance(action.choices, dict) and message.endswith(f": {action.metavar}"):
                message = f"{message}, one of {', '.join(action.choices)}"
        super().error(message)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> object:
        """Refuse an empty value: an unset variable must not mean that the option is absent."""
        if "" in arg_strings and action.nargs != argparse.PARSER:
            raise argparse.ArgumentError(action, "expected a value, found an empty text")
        return super()._get_values(action, arg_strings)

    def _suggest_option(self, argument: str) -> str:
        """Return the option that the user probably meant; empty if there is no similar option."""
        options = self._option_string_actions
        if argument.endswith((".yaml", ".yml")) and "--file" in options:
            return f"--file {argument}"
        if not argument.startswith("--"):
            return ""
        from fleet.schema.findings import nearest

        return nearest(argument.partition("=")[0], options)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        from fleet.schema.findings import nearest

        choices = list(map(str, action.choices or ()))
        meant = nearest(str(value), choices) if choices and value not in choices else ""
        if meant:
            raise argparse.ArgumentError(
                action,
                f"invalid choice: {value!r}; did you mean {meant!r}? "
                f"(choose from {', '.join(map(repr, choices))})",
            )
        super()._check_value(action, value)


if TYPE_CHECKING:
    from fleet.ports import Console

    Run = Callable[[argparse.Namespace, Console], int]
else:
    Run = Callable
Argument = Callable[[Any], object]
"""Function that adds an argument, or a group of arguments, to a parser of argparse."""


def declare(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Add arguments to a parser."""
    for each in arguments:
        each(parser)


def argument(*names: str, **settings: Any) -> Argument:  # noqa: ANN401 - the settings of argparse
    """Return an argument with the settings of `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def flag(name: str, help_text: str) -> Argument:
    """Return an option without a value."""
    return argument(name, action="store_true", help=help_text)


def option(
    name: str,
    metavar: str,
    help_text: str,
    *,
    default: object = None,
    kind: Callable[[str], object] = str,
) -> Argument:
    """Return an option whose value is parsed by `kind`."""
    return argument(name, metavar=metavar, help=help_text, default=default, type=kind)


def repeated(name: str, metavar: str, help_text: str) -> Argument:
    """Return an option that may be repeated; its values form a list."""
    return argument(name, metavar=metavar, help=help_text, action="append", default=[])


def exclusive(*arguments: Argument) -> Argument:
    """Return arguments of which a user may give only one."""
    return lambda parser: declare(parser.add_mutually_exclusive_group(), arguments)


def defaults(**values: object) -> Argument:
    """Return values that the parser sets without an argument."""
    return lambda parser: parser.set_defaults(**values)


def action(
    name: str,
    help_text: str,
    run: Run | None = None,
    *arguments: Argument,
    has_config: bool = True,
) -> Argument:
    """Return an action of a command, for `actions`: its function and its arguments.

    With `has_config`, the action also has the option for fleet.yaml.
    """

    def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
        parser = verbs.add_parser(name, help=help_text, description=help_text)
        declare(parser, (defaults(carry_out=run), *[FILE] * has_config, *arguments))

    return add


def actions(*verbs: Argument, dest: str = "action", metavar: str = "ACTION") -> Argument:
    """Return the possible actions of a command, of which a user must give one."""
    return lambda parser: declare(
        parser.add_subparsers(dest=dest, metavar=metavar, required=True), verbs
    )


FILE = argument(
    *("-f", "--file"),
    default="fleet.yaml",
    metavar="FILE",
    help="the configuration (default: fleet.yaml)",
)
WORLD = option(
    "--world",
    "FILE",
    "read facts from a recording of `fleet observe` (FILE or HISTORY.zst@TIME); start no "
    "program, open no connection, read only the folder of fleet.yaml",
)
BASE = option(
    "--base",
    "REF",
    "also compare with the plan of another fleet.yaml: a git revision, for example "
    "origin/main, or a .yaml file",
)
JSON = flag("--json", "print JSON")
_MAX_SECONDS = 30 * 86400
_MAX_REASON_LENGTH = 300


def duration(text: str) -> int:
    """Parse a duration of at most 30 days to seconds; raises ArgumentTypeError if invalid."""
    from fleet.schema.units import read_duration

    seconds = read_duration(text)
    if not seconds or seconds > _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no time from 1s to 30d, as 90m, 2h or 1d")
    return seconds


def count(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of integers from `least` to `most`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


def past_time(text: str) -> timedelta | datetime:
    """Parse a duration before now, or a time (UTC by default), for `moment_of`."""
    from fleet.model.values import in_utc
    from fleet.schema.units import read_duration

    seconds = read_duration(text)
    if seconds:
        return timedelta(seconds=seconds)
    try:
        moment = datetime.fromisoformat(text)
        return in_utc(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration as 2h or 7d nor a time as 2026-11-21T08:00"
        ) from None


def moment_of(asked: timedelta | datetime | None, now: datetime) -> datetime | None:
    """Convert a `past_time` value to a time; None if the option was omitted."""
    return now - asked if isinstance(asked, timedelta) else asked


def reason(text: str) -> str:
    """Parse the reason of an order; raises ArgumentTypeError if invalid."""
    given = " ".join(text.split())
    if not given or not given.isprintable() or len(given) > _MAX_REASON_LENGTH:
        raise argparse.ArgumentTypeError(
            f"a reason is 1 to {_MAX_REASON_LENGTH} characters that can be printed"
        )
    return given


SPAN = (
    option("--since", "TIME", "from this time on, as 2h, 7d or 2026-11-21", kind=past_time),
    option("--until", "TIME", "up to this time", kind=past_time),
)
"""The options for a past time span; `moment_of` converts their values."""
