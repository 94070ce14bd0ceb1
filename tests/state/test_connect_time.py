"""A server that accepts connections and never answers does not stop a run for minutes."""

import pytest
import sqlalchemy as sa

from fleet.state.database import _pooled_engine, hold_server_lock


class _Asked(Exception):
    """Ends an attempt to connect."""


@pytest.mark.parametrize(
    ("query", "environment", "seconds"),
    [
        ("", {}, 10),
        ("?connect_timeout=30", {"PGCONNECT_TIMEOUT": "60"}, "30"),
        ("?application_name=env", {"PGCONNECT_TIMEOUT": "60"}, "60"),
    ],
)
def test_connection_has_a_time_limit(
    query: str,
    environment: dict[str, str],
    seconds: int | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    url = sa.make_url(f"postgresql+psycopg://u@127.0.0.1:1/x{query}")
    asked: list[object] = []

    def note(_dialect: object, _record: object, _args: object, words: dict[str, object]) -> None:
        asked.append(words["connect_timeout"])
        raise _Asked

    sa.event.listen(sa.Engine, "do_connect", note)
    try:
        with pytest.raises(_Asked):
            _pooled_engine(url).connect()
        with pytest.raises(_Asked), hold_server_lock(url, "farm"):
            pass
    finally:
        sa.event.remove(sa.Engine, "do_connect", note)
    assert asked == [seconds, seconds]
