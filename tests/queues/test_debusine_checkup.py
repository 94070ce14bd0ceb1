"""What a check-up says of a Debusine server's database and its role."""

import pytest

from fleet.errors import SourceUnreachable
from fleet.queues.debusine.checkup import check_database
from tests.builders.sentences import tells
from tests.queues.conftest import Debusine
from tests.rigs.debusine import NOW


def test_tables_of_another_version_are_an_error(debusine: Debusine) -> None:
    debusine.tables.connection.execute("ALTER TABLE db_scope ADD COLUMN fresh integer")

    with pytest.raises(SourceUnreachable, match=r"\b(?!539c41736018)[0-9a-f]{12}\b"):
        check_database("db", debusine.reader)


def test_role_with_required_rights_has_no_finding(debusine: Debusine) -> None:
    version, clock, rights = check_database("db", debusine.reader)
    _, other_clock, _ = check_database("db", debusine.reader, now=lambda: NOW)

    assert [each.result for each in (version, clock, rights)] == ["ok"] * 3
    assert tells(version.said, "Debusine 0.16.2")
    assert tells(rights.said, "role fleet_ro")
    assert (other_clock.about, other_clock.result) == ("db, clock", "wrong")


@pytest.mark.parametrize(
    ("change", "admin", "result", "fix", "words"),
    [
        (
            *("REVOKE SELECT ON db_scope FROM fleet_ro", False, "wrong"),
            *("fleet debusine grants --check", ("fleet_ro", "SELECT on db_scope (id, name)")),
        ),
        (
            *("GRANT SELECT (hash) ON db_token TO fleet_ro", False, "notice"),
            *("fleet debusine grants --check", ("role fleet_ro", "SELECT on db_token (hash)")),
        ),
        (
            *("SELECT 1", True, "wrong", "fleet debusine grants --admin --check"),
            ("DELETE on db_token",),
        ),
    ],
    ids=["missing", "excess", "reader as admin"],
)
def test_wrong_rights_are_named(  # noqa: PLR0913, PLR0917 - what is changed and told
    debusine: Debusine,
    change: str,
    admin: bool,  # noqa: FBT001 - of a case
    result: str,
    fix: str,
    words: tuple[str, ...],
) -> None:
    debusine.tables.connection.execute(change.encode())

    _, _, rights, *_ = check_database("db", debusine.reader, admin=admin)

    assert (rights.result, rights.fix) == (result, fix)
    assert tells(rights.said, *words)
