"""This module replaces the people in a recorded world by names that tell nothing of them.

People are requesters, users of groups, and submitters within sandboxes. Owners and projects of a
Copr stay: rules match them, and the server shows them to everybody.
"""

import hmac
from collections.abc import Collection
from typing import Any

from fleet.facts import World

_SANDBOX = "sandbox:"


def pseudonymise(world: World, key: bytes, kept: Collection[str] = ()) -> World:
    """Return the world with every person but those `kept` under a name made with the key.

    The same person has the same name all over; who has not the key cannot find out whose it is.
    """

    def of(person: str) -> str:
        if person in kept:
            return person
        return f"person-{hmac.digest(key, person.encode(), 'sha256').hex()[:12]}"

    def within(value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON
        match value:
            case dict():
                return {k: within(v, k) for k, v in value.items()}
            case list():
                return [within(each, name) for each in value]
            case str() if name == "requester" or (name == "sandbox" and value):
                return of(value)
            case str() if value.startswith(_SANDBOX):
                return _SANDBOX + of(value.removeprefix(_SANDBOX))
        return value

    told = within(world.model_dump(mode="json"))
    if isinstance(world.members, dict):
        told["members"] = {
            group: [of(user) for user in users] for group, users in world.members.items()
        }
    return World.model_validate(told)
