"""What tests of ports share."""

import pytest


@pytest.fixture
def listing_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have two listings as far apart as the program has them; other tests do not wait."""
    monkeypatch.setattr("fleet.engines.projects._LISTING_PAUSE_SECONDS", 10)
