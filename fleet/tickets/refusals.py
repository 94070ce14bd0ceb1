"""Count and log requests with a wrong token, and delay the answers to them."""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from itertools import islice

_FREE_TRIES = 3
"""Wrong tokens per network to answer without a delay, because users mistype tokens."""
_FIRST_DELAY_SECONDS = 0.25
_MAX_DELAY_SECONDS = 8.0
_FORGET_SECONDS = 60.0
"""Seconds after which a network's earlier wrong tokens no longer count."""
_REPORT_SECONDS = 60.0
"""Minimum seconds between two log lines, so that clients cannot fill the disk."""
_MAX_NETWORKS = 10_000
_MAX_NAMED = 5


class WrongTokens:
    """The number of wrong tokens per network, for use in the connection loop only.

    Answers to valid tokens from the same network are not delayed.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.total = 0
        """Number of requests with a wrong token since the start of the server."""
        self.next_report = 0.0
        """Monotonic time of the next log line; 0 if no line is due."""
        self._tries: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._unreported: dict[str, int] = {}
        self._reported_at = float("-inf")

    def count(self, address: str, now: float) -> float:
        """Count a request with a wrong token, and return the delay of its answer in seconds."""
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
        """Log the number of wrong tokens since the last log line, if a line is due."""
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
    """Return an IPv4 address, or the /64 network of an IPv6 address, which one host may have."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - the version of IP
        return str(found)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or ip_network((found, 64), strict=False))
