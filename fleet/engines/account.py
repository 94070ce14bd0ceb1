"""What the real engine needs of one provider."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.ports import Provider


@dataclass(frozen=True)
class Account:
    """A provider's listing, and its part of each stack.

    `config` goes into the stack's settings in clear; secrets go by `environment` or, as inputs
    of the program that it declares secret, by `inputs`.
    """

    provider: Provider
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Callable[[], Mapping[str, str]] = dict
    inputs: Mapping[str, Any] = field(default_factory=dict)
    pause: Callable[[float], None] = time.sleep
    """Waits that many seconds between two looks at the provider."""
    clear: Callable[[str, str, Collection[str]], None] = lambda *_: None
    """Deletes what a shared stack does not know of a part, and cannot adopt: of which fleet, of
    which part, and the names of the resources that it knows."""
