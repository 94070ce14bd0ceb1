"""A written fake of the port `Prober`."""

from fleet.errors import SourceUnreachable


class FakeProber:
    """Answers at the addresses that are up, with their greeting."""

    def __init__(self) -> None:
        self.up: dict[tuple[str, int], str] = {}
        """Address and port to its greeting."""
        self.broken = False
        """Whether no attempt can be made."""
        self.unreachable: set[str] = set()
        """Addresses that no attempt can be made at from here."""
        self.tried: list[tuple[str, int]] = []

    def answers(self, address: str, port: int, banner: str) -> bool:
        """Say whether the port is up, and greets so."""
        if self.broken:
            raise SourceUnreachable(f"{address}:{port} was not tried: too many open files")
        if address in self.unreachable:
            raise SourceUnreachable(f"{address}:{port} was not tried: network is unreachable")
        self.tried.append((address, port))
        greeting = self.up.get((address, port))
        return greeting is not None and greeting.startswith(banner)
