"""Count, report and slow down requests with a wrong token."""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from itertools import islice

_FREE_TRIES = 3
"""Wrong tokens of a network that are answered without a delay: a person mistypes."""
_FIRST_DELAY_SECONDS = 0.25
_MAX_DELAY_SECONDS = 8.0
_FORGET_SECONDS = 60.0
"""Seconds after which the earlier wrong tokens of a network no longer count."""
_REPORT_SECONDS = 60.0
"""Seconds between two lines of the log: a client must not be able to fill a disk."""
_MAX_NETWORKS = 10_000
_MAX_NAMED = 5


class WrongTokens:
    """The wrong tokens per network; used by the loop of connections alone.

    Only the answer to a wrong token is delayed: a right token of the same network is not.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.total = 0
        """Requests with a wrong token since the start."""
        self.next_report = 0.0
        """The moment of the next line; 0: nothing is to be reported."""
        self._tries: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._unreported: dict[str, int] = {}
        self._reported_at = float("-inf")

    def count(self, address: str, now: float) -> float:
        """Count a request with a wrong token; return the seconds before its answer."""
        network = network_of(address)
        tries, latest = self._tries.pop(network, (0, now))
        tries = tries + 1 if now - latest < _FORGET_SECONDS else 1
        self._tries[network] = tries, now
        if len(self._tries) > _MAX_NETWORKS:
            self._tries.popitem(last=False)
        self.total += 1
        if network in self._unreported or len(self._unreported) < _MAX_NETWORKS:
            self._unreported[network] = self._unreported.get(network, 0) + 1
        self.next_report = max(now, self._reported_at + _REPORT_SECONDS)
        self.report(now)
        doubled = min(max(0, tries - _FREE_TRIES), 10)
        return min(_FIRST_DELAY_SECONDS * ((1 << doubled) - 1), _MAX_DELAY_SECONDS)

    def report(self, now: float) -> None:
        """Write one line about the wrong tokens since the last one, if it is time."""
        if not self._unreported or now < self.next_report:
            return
        most = sorted(self._unreported.items(), key=lambda each: (-each[1], each[0]))
        total, more = sum(self._unreported.values()), len(most) - _MAX_NAMED
        named = ", ".join(f"{network} ({tries})" for network, tries in islice(most, _MAX_NAMED))
        others = f" and {more} more" if more > 0 else ""
        self._unreported.clear()
        self._reported_at, self.next_report = now, 0.0
        self._note(f"wrong token in {total} requests: from {named}{others}; see --tokens")


def network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 of an IPv6 address: one host has all of it."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - the version of IP
        return str(found)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or ip_network((found, 64), strict=False))
