"""This module keeps from engines and their plugins what is secret and not theirs."""

import re
from collections.abc import Mapping

from fleet.schema.base import EnvSecret
from fleet.schema.model import Fleet, HooksProvider
from fleet.schema.references import secrets_in

_OF_ENGINES = re.compile(r"(AWS|AZURE|GOOGLE|PULUMI)_.*")
"""Credentials that providers, backends and engines look for by themselves."""
_OF_ALL = re.compile(
    r"HOME|LANG|LANGUAGE|LC_.*|LOGNAME|PATH|SHELL|SSL_CERT_.*|TMPDIR|TZ|USER|XDG_.*"
    r"|(?i:(all|ftp|http|https|no)_proxy)"
)
"""What any program may need to run at all."""


def withheld(fleet: Fleet, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this environment that are secret and no engine's own, emptied.

    They are those that hold a secret of fleet.yaml, and those that a provider's commands get:
    nobody says which of these are secret. A child of fleet inherits the others; a provider's own
    token is added by its own name.
    """
    names = {secret.env for _, secret in secrets_in(fleet) if isinstance(secret, EnvSecret)}
    for provider in fleet.providers.values():
        if isinstance(provider, HooksProvider):
            names |= {name for name in provider.environment if not _OF_ALL.fullmatch(name)}
    return {
        name: "" for name in sorted(names & environment.keys()) if not _OF_ENGINES.fullmatch(name)
    }
