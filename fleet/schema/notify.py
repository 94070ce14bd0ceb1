"""Section of fleet.yaml on the recipients of notices."""

from typing import Annotated

from pydantic import Field, Tag

from fleet.schema.units import Command, ConfigSection, EnvNames, SecretRef, Url, branch

WebhookUrl = Annotated[
    Annotated[Url, Tag("webhook-address")] | Annotated[SecretRef, Tag("webhook-secret")],
    branch(
        {"webhook-address": str, "webhook-secret": (dict, ConfigSection)},
        "a URL, or a reference to one that is secret: {env: NAME}",
    ),
]


class Webhook(ConfigSection):
    """A server that receives notices as JSON."""

    url: WebhookUrl = Field(
        description="Where to POST them; a reference to a secret where the URL itself is one."
    )
    token: SecretRef | None = Field(
        None,
        description="Sent as `Authorization: Bearer TOKEN`; needs https:// off this computer.",
    )


class Notify(ConfigSection):
    """The recipients of notices on objects that expire soon or are outdated, each sent once."""

    webhook: Webhook | None = Field(None, description="A server to tell.")
    command: Command | None = Field(
        None,
        description="A program that gets the notices as text on its standard input, as "
        '`[mail, "-s", fleet, ops@example.org]`.',
    )
    environment: EnvNames = Field(
        [],
        description="Environment variables to pass on to it, in addition to PATH, HOME, USER, "
        "LOGNAME, LANG, TMPDIR and XDG_RUNTIME_DIR.",
    )
