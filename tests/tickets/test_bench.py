"""What Resalloc's pass is measured with sends as many statements as Resalloc itself does."""

from pathlib import Path

import pytest

from bench.resalloc import Done, assign_tickets, filled


@pytest.mark.parametrize(
    ("waiting", "ready", "given", "statements"),
    [
        # 3 for each ticket, 3 for each that gets one, and every resource that is left each time.
        (20, 10, 10, 2 + 3 * 20 + 3 * 10 + sum(range(11))),
        # All resources, and 4, for each ticket.
        (20, 10, 0, 2 + 20 * (10 + 4)),
        (20, 0, 0, 2 + 3 * 20),
    ],
)
def test_stand_in_sends_statements_of_resalloc(
    tmp_path: Path, waiting: int, ready: int, given: int, statements: int
) -> None:
    url = f"sqlite:///{tmp_path}/resalloc.db"

    with filled(url, waiting=waiting, ready=ready, fitting=given > 0) as engine:
        done = assign_tickets(engine)

    assert done == Done(given, statements)
