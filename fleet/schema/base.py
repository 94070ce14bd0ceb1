"""What every part of fleet.yaml is made of: strict sections, common types, secrets."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PlainSerializer, Tag

from fleet.schema.units import AS_WRITTEN

ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
# White space is spelled out: \s means something else in every dialect of regular expressions.
TAG_PATTERN = r"^[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$"
CURRENCY_PATTERN = r"^[A-Z]{3}$"
URL_PATTERN = r"^https?://[!-?A-~]+$"

Text = Annotated[str, Field(min_length=1, max_length=1000)]
LongText = Annotated[str, Field(min_length=1, max_length=100_000)]
WorkerTag = Annotated[str, Field(min_length=1, max_length=200, pattern=TAG_PATTERN)]
EnvName = Annotated[str, Field(pattern=ENV_PATTERN)]
EnvNames = list[EnvName]
LONGEST_WORD = 65_536
"""Characters of one word of a command; long ones are scripts for `sh -c`."""
Command = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=LONGEST_WORD)]], Field(min_length=1)
]
Count = Annotated[int, Field(ge=0, le=100_000)]
Cores = Annotated[int, Field(ge=1, le=10_000)]
SPEED = (
    "How fast it builds, where 100% is the machine that `durations` and history were measured on; "
    "default: derived from its cores."
)
CurrencyCode = Annotated[str, Field(pattern=CURRENCY_PATTERN)]
Url = Annotated[str, Field(pattern=URL_PATTERN, max_length=1000)]

EXPECTED = "expected"
"""Error type of a value that fits no branch of a union; its message says what was expected."""


class Section(BaseModel):
    """A part of fleet.yaml: no extra keys, no conversions, immutable."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, defer_build=True, validate_default=False
    )

    def as_written(self) -> dict[str, Any]:
        """Return it as fleet.yaml has it; validating the result gives an equal section."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, context=AS_WRITTEN)


Written = PlainSerializer(Section.as_written)
"""Marks a section in a model that is stored: it is written as in fleet.yaml."""


def branch(choose: Callable[[Any], str | None], expected: str) -> Discriminator:
    """Return a discriminator that reports only errors of the branch that was meant."""
    return Discriminator(
        choose, custom_error_type=EXPECTED, custom_error_message=f"expected {expected}"
    )


class EnvSecret(Section):
    """A secret read from an environment variable."""

    env: EnvName = Field(description="Name of the environment variable.")


class FileSecret(Section):
    """A secret read from a file."""

    file: Text = Field(description="Path of the file; surrounding white space is removed.")


class CommandSecret(Section):
    """A secret that a command prints."""

    command: Command = Field(description="Program and arguments that print the secret.")
    environment: EnvNames = Field(
        default_factory=list,
        description="Environment variables to pass on, in addition to PATH, HOME, USER, LOGNAME, "
        "LANG, TMPDIR and XDG_RUNTIME_DIR.",
    )


def _secret_form(value: object) -> str | None:
    match value:
        case FileSecret():
            return "secret-file"
        case CommandSecret():
            return "secret-command"
        case EnvSecret():
            return "secret-env"
        case dict():
            written = [form for form in ("file", "command") if form in value]
            return f"secret-{written[0]}" if written else "secret-env"
        case _:
            return None


SecretRef = Annotated[
    Annotated[EnvSecret, Tag("secret-env")]
    | Annotated[FileSecret, Tag("secret-file")]
    | Annotated[CommandSecret, Tag("secret-command")],
    branch(_secret_form, "a reference to a secret: {env: NAME}, {file: PATH} or {command: […]}"),
]
