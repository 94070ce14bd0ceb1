"""Base types of fleet.yaml: units, strict sections, common types, references to secrets."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
)
from pydantic_core import core_schema

SIZE_PATTERN = r"^[1-9][0-9]{0,6}(MiB|GiB|TiB)$"
DURATION_PATTERN = r"^[1-9][0-9]{0,6}(s|m|h|d)$"
PERCENT_PATTERN = r"^[0-9]{1,4}%$"
SHARE_PATTERN = r"^([0-9]{1,2}|100)%$"
SOME_SHARE_PATTERN = r"^([1-9][0-9]?|100)%$"
SPEED_PATTERN = r"^[1-9][0-9]{0,3}%$"
PERCENT_PATTERNS = (PERCENT_PATTERN, SHARE_PATTERN, SOME_SHARE_PATTERN, SPEED_PATTERN)
MONEY_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})? [A-Z]{3}$"
PRICE_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})? [A-Z]{3}/h$"
DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$"
POOL_PATTERN = r"^[A-Za-z]([A-Za-z0-9_-]{0,53}[A-Za-z0-9])?$"
FLEET_NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$"

_MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Money(BaseModel):
    """An amount in one currency, for example `6 EUR`."""

    model_config = ConfigDict(frozen=True)

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        """Return the amount in the syntax of fleet.yaml."""
        return f"{self.amount} {self.currency}"


AS_WRITTEN = {"units": "as written"}
"""Serialization context for writing values with units, in the syntax of fleet.yaml."""


def written(value: object, pattern: str) -> str:
    """Return a value with its unit in the syntax of fleet.yaml. `pattern` selects the unit."""
    if not isinstance(value, int):
        return f"{value}/h" if pattern == PRICE_PATTERN else str(value)
    if pattern in PERCENT_PATTERNS:
        return f"{value}%"
    units = _SECONDS if pattern == DURATION_PATTERN else _MIB
    unit, size = next((u, s) for u, s in reversed(units.items()) if value % s == 0)
    return f"{value // size}{unit}"


def follows(pattern: str, text: str) -> bool:
    """Return whether the whole text matches. `$` alone would permit a trailing line break."""
    return re.match(pattern.removesuffix("$") + r"\Z", text) is not None


class WrongText(ValueError):
    """A value with the wrong syntax. `meant` is the value that the user probably intended."""

    def __init__(self, expected: str, meant: str) -> None:
        super().__init__(f"expected {expected}")
        self.meant = meant


_QUANTITY = re.compile(r"\s*([$€]?)\s*([0-9]+(?:[.,][0-9]+)?)\s*([^\W0-9]*|[%€$])\s*(?:/ ?h)?\s*")
_CURRENCIES = {"": "EUR", "€": "EUR", "EURO": "EUR", "$": "USD"}
_TIME_UNITS = {
    "SEC": "s",
    "SECOND": "s",
    "MIN": "m",
    "MINUTE": "m",
    "HR": "h",
    "HOUR": "h",
    "DAY": "d",
}
_SIZE_UNITS = {"M": "MiB", "MB": "MiB", "G": "GiB", "GB": "GiB", "T": "TiB", "TB": "TiB"}
_LONG_SECONDS = 600
"""A number from here on without a unit is probably in seconds."""


def _guess_meant(pattern: str, value: object) -> str:
    """Return the value that the user probably intended, or several with "' or '"; else empty."""
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return ""
    number, unit = found[2].replace(",", "."), (found[1] or found[3]).upper()
    if pattern == DURATION_PATTERN and not unit:
        units = ["s"] if number.isdigit() and int(number) >= _LONG_SECONDS else ["s", "m", "h"]
    elif pattern == DURATION_PATTERN:
        word = unit.rstrip("S") or "S"
        units = [_TIME_UNITS.get(word, word.lower())]
    elif pattern == SIZE_PATTERN:
        units = [_SIZE_UNITS.get(unit, unit[:1] + "iB")]
    elif pattern in PERCENT_PATTERNS:
        units = ["%"]
    else:
        units = [f" {_CURRENCIES.get(unit, unit)}" + ("/h" if pattern == PRICE_PATTERN else "")]
    meant = [each for unit in units if follows(pattern, each := f"{number}{unit}")]
    return "', '".join(meant[:-1]) + "' or '" * (len(meant) > 1) + "".join(meant[-1:])


@dataclass(frozen=True)
class _Text:
    """A validator that converts text of one pattern to a value and accepts converted values.

    It is a core schema, because pydantic's BeforeValidator inspects the function for each field.
    """

    pattern: str
    what: str
    parse: Callable[[str], Any]
    example: str = ""
    format: str = ""
    most: int = 0
    """Maximum of the number before the unit. It consists of nines."""

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.read,
            handler(source),
            serialization=core_schema.wrap_serializer_function_ser_schema(
                self.write, info_arg=True
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "string", "pattern": self.pattern}
        if self.format:
            found["format"] = self.format
        if self.example:
            found["examples"] = [self.example]
        return found

    def read(self, value: object) -> object:
        """Convert a text to a value. A value that is already converted is returned unchanged."""
        if isinstance(value, str) and follows(self.pattern, value):
            return self.parse(value)
        if value is None or isinstance(value, _WRITTEN):
            raise WrongText(self._describe_valid(value), _guess_meant(self.pattern, value))
        return value

    def write(
        self,
        value: Any,  # noqa: ANN401 - any result of `parse`
        handler: SerializerFunctionWrapHandler,
        info: SerializationInfo,
    ) -> object:
        """Return the value in the syntax of fleet.yaml in context AS_WRITTEN, else as a number."""
        return written(value, self.pattern) if info.context == AS_WRITTEN else handler(value)

    def _describe_valid(self, value: object) -> str:
        """Describe valid values, with the limit that the number before a unit exceeds."""
        number = re.match("[0-9]+(?=\\D)", value) if isinstance(value, str) else None
        if number is None or not follows(self.pattern, f"1{number.string[number.end() :]}"):
            return self.what
        digits = number[0].lstrip("0")
        if not digits:
            return f"more than zero, {self.what}"
        is_above = self.most and len(digits) > len(str(self.most))
        return f"{self.what} with a number of at most {self.most}" if is_above else self.what


_WRITTEN = (str, bool, int, float, list, dict)


_MAX_DAYS = 24_855
"""Maximum duration: `model.values.MOST` seconds, so that sums with moments do not overflow."""


def _duration(text: str) -> int:
    seconds = int(text[:-1]) * _SECONDS[text[-1]]
    if seconds > _MAX_DAYS * _SECONDS["d"]:
        raise ValueError(f"expected a duration of at most {_MAX_DAYS}d")
    return seconds


def _percent(text: str) -> int:
    return int(text[:-1])


def _money(text: str) -> Money:
    amount, currency = text.removesuffix("/h").split(" ")
    return Money(amount=Decimal(amount), currency=currency)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a date that exists, like 2027-03-01") from None


Mebibytes = Annotated[
    int,
    _Text(
        SIZE_PATTERN,
        "a size like 4GiB (units MiB, GiB, TiB)",
        lambda text: int(text[:-3]) * _MIB[text[-3:]],
        "4GiB",
        most=9_999_999,
    ),
]
Seconds = Annotated[
    int,
    _Text(
        DURATION_PATTERN,
        "a duration like 30m (units s, m, h, d)",
        _duration,
        "30m",
        most=9_999_999,
    ),
]
Percent = Annotated[int, _Text(PERCENT_PATTERN, "a share like 30%", _percent, "30%", most=9999)]
Share = Annotated[int, _Text(SHARE_PATTERN, "a share of at most 100%", _percent, "30%")]
SomeShare = Annotated[int, _Text(SOME_SHARE_PATTERN, "a share from 1% to 100%", _percent, "30%")]
Speed = Annotated[int, _Text(SPEED_PATTERN, "a speed of at least 1%", _percent, "100%", most=9999)]
Amount = Annotated[
    Money,
    _Text(
        MONEY_PATTERN, "an amount with its currency like 6 EUR", _money, "6 EUR", most=999_999_999
    ),
]
PricePerHour = Annotated[
    Money,
    _Text(
        PRICE_PATTERN, "a price per hour like 0.35 EUR/h", _money, "0.35 EUR/h", most=999_999_999
    ),
]
Day = Annotated[date, _Text(DATE_PATTERN, "a date like 2027-03-01", _date, format="date")]

_NAME = "a name of lower-case letters, digits and hyphens, beginning with a letter, at most"
Name = Annotated[str, _Text(NAME_PATTERN, f"{_NAME} 31 long", str)]
PoolName = Annotated[
    str,
    _Text(
        POOL_PATTERN,
        "a name of letters, digits, hyphens and underscores, beginning with a letter, at most 55 "
        "long",
        str,
    ),
]
FleetName = Annotated[str, _Text(FLEET_NAME_PATTERN, f"{_NAME} 20 long", str)]


def write_count(count: int, noun: str) -> str:
    """Format a count and its noun in singular or plural, with thousands separators."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def read_duration(text: str) -> int | None:
    """Return the seconds of a duration in the syntax of fleet.yaml; None if invalid."""
    try:
        return _duration(text) if re.fullmatch(DURATION_PATTERN, text) else None
    except ValueError:
        return None


def write_time(moment: datetime) -> str:
    """Format a time in UTC, without seconds."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


_LONGEST_FIRST = sorted(_SECONDS.items(), key=lambda entry: -entry[1])


def write_duration(span: int | timedelta) -> str:
    """Format a duration with at most two units, such as `1m 30s`. A number is in seconds."""
    parts = []
    left = span if isinstance(span, int) else int(span.total_seconds())
    for unit, length in _LONGEST_FIRST:
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2]) or "0s"


ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
# White space is listed, because \s differs between dialects of regular expressions.
TAG_PATTERN = r"^[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$"
CURRENCY_PATTERN = r"^[A-Z]{3}$"
_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
"""Port of at most 65535, as in every URL of fleet.yaml."""
HOST_PATTERN = rf"(\[[0-9A-Za-z:.%]+\]|[!\x22$-.0-9;-=A-Z\\^-~]+)(:{_PORT}?)?"
"""Host of a URL with an optional port."""
URL_PATTERN = rf"^https?://{HOST_PATTERN}([/?#][!-?A-~]*)?$"
_SERVER_PATTERN = (
    r"([^:/]*(:[^@]*)?@)?"  # user and password
    rf"(\[[^\]/?]+\]|[^:/?@\[\]]*)(:{_PORT}?)?"  # host and port
    r"(/[^?]*)?(\?.*)?"
)
STORE_PATTERN = rf"^(sqlite|sqlite:///(.*[^/])|postgres(ql)?(\+psycopg)?://{_SERVER_PATTERN})$"
BACKEND_PATTERN = (
    rf"^(file|file://.+|(s3|gs|azblob)://[^/?#\s]+([/?].*)?|postgres://{_SERVER_PATTERN})$"
)

Text = Annotated[str, Field(min_length=1, max_length=1000)]
LongText = Annotated[str, Field(min_length=1, max_length=100_000)]
WorkerTag = Annotated[str, Field(min_length=1, max_length=200, pattern=TAG_PATTERN)]
EnvName = Annotated[str, Field(pattern=ENV_PATTERN)]
EnvNames = list[EnvName]
LONGEST_WORD = 65_536
"""Maximum length of an argument of a command in characters. Scripts for `sh -c` are long."""
RUNS = "a program and its arguments"
"""Mark of a key whose value is a program to run."""
Command = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=LONGEST_WORD)]], Field(min_length=1), RUNS
]
Count = Annotated[int, Field(ge=0, le=100_000)]
Cores = Annotated[int, Field(ge=1, le=10_000)]
SPEED = (
    "How fast it builds, where 100% is the machine that `durations` and history were measured on; "
    "default: derived from its cores."
)
CurrencyCode = Annotated[str, Field(pattern=CURRENCY_PATTERN)]
Url = Annotated[str, Field(pattern=URL_PATTERN, max_length=1000)]
StoreUrl = Annotated[str, Field(pattern=STORE_PATTERN, max_length=1000)]
BackendUrl = Annotated[str, Field(pattern=BACKEND_PATTERN, max_length=1000)]

EXPECTED = "expected"
"""Error type of a value that fits no branch of a union. The message lists valid forms."""


class ConfigSection(BaseModel):
    """A section of fleet.yaml: immutable, without unknown keys, and without type conversions."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, defer_build=True, validate_default=False
    )

    def as_written(self) -> dict[str, Any]:
        """Return the section in the syntax of fleet.yaml, as data that validation accepts."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, context=AS_WRITTEN)


Written = PlainSerializer(ConfigSection.as_written)
"""Serializer of a section in a stored model, in the syntax of fleet.yaml."""


def branch(
    forms: Mapping[str, type | tuple[type, ...]],
    expected: str,
    keys: Mapping[str, str] = MappingProxyType({}),
) -> Discriminator:
    """Return a discriminator of a union, so that only errors of the intended branch appear.

    For a mapping, `keys` maps a key to the branch that has it. Otherwise the intended branch is
    the first in `forms` (branch to type) whose type the value has.
    """

    def choose(value: object) -> str | None:
        named = (tag for key, tag in keys.items() if isinstance(value, dict) and key in value)
        fitting = (tag for tag, form in forms.items() if isinstance(value, form))
        return next(chain(named, fitting), None)

    return Discriminator(
        choose, custom_error_type=EXPECTED, custom_error_message=f"expected {expected}"
    )


class EnvSecret(ConfigSection):
    """A secret in an environment variable."""

    env: EnvName = Field(description="Name of the environment variable.")


class FileSecret(ConfigSection):
    """A secret in a file."""

    file: Text = Field(description="Path of the file; surrounding white space is removed.")


class CommandSecret(ConfigSection):
    """A secret that a command prints."""

    command: Command = Field(description="Program and arguments that print the secret.")
    environment: EnvNames = Field(
        default_factory=list,
        description="Environment variables to pass on, in addition to PATH, HOME, USER, LOGNAME, "
        "LANG, TMPDIR and XDG_RUNTIME_DIR.",
    )


SecretRef = Annotated[
    Annotated[EnvSecret, Tag("secret-env")]
    | Annotated[FileSecret, Tag("secret-file")]
    | Annotated[CommandSecret, Tag("secret-command")],
    branch(
        {
            "secret-file": FileSecret,
            "secret-command": CommandSecret,
            "secret-env": (dict, EnvSecret),
        },
        "a reference to a secret: {env: NAME}, {file: PATH} or {command: […]}",
        keys={"file": "secret-file", "command": "secret-command"},
    ),
]
