"""What a check-up says of a Debusine server's database and its role."""

import pytest

from fleet.errors import SourceUnreachable
from fleet.queues.debusine.checkup import check_database
from tests.builders.sentences import tells
from tests.queues.conftest import Debusine
from tests.rigs.debusine import NOW


def test_role_with_required_rights_has_no_finding(debusine: Debusine) -> None:
    version, clock, rights = check_database("db", debusine.reader)

    assert version.result == "ok"
    assert tells(version.said, "Debusine 0.16.2")
    assert clock.result == "ok"
    assert rights.result == "ok"
    assert "role fleet_ro " in rights.said


def test_missing_right_is_wrong_and_named(debusine: Debusine) -> None:
    debusine.tables.connection.execute("REVOKE SELECT ON db_scope FROM fleet_ro")

    _, _, rights = check_database("db", debusine.reader)

    assert (rights.result, rights.fix) == ("wrong", "fleet debusine grants --check")
    assert tells(rights.said, "fleet_ro", "SELECT on db_scope (id, name)")


def test_excess_right_is_reported(debusine: Debusine) -> None:
    debusine.tables.connection.execute("GRANT SELECT (hash) ON db_token TO fleet_ro")

    _, _, rights = check_database("db", debusine.reader)

    assert rights.result == "notice"
    assert "role fleet_ro " in rights.said
    assert rights.said.endswith(": SELECT on db_token (hash)")


def test_reader_role_is_wrong_for_an_admin(debusine: Debusine) -> None:
    _, _, rights, *_ = check_database("db", debusine.reader, admin=True)

    assert (rights.result, rights.fix) == ("wrong", "fleet debusine grants --admin --check")
    assert "DELETE on db_token" in rights.said


def test_database_with_other_clock_is_wrong(debusine: Debusine) -> None:
    _, clock, _ = check_database("db", debusine.reader, now=lambda: NOW)

    assert (clock.about, clock.result) == ("db, clock", "wrong")


def test_tables_of_another_version_are_an_error(debusine: Debusine) -> None:
    debusine.tables.connection.execute("ALTER TABLE db_scope ADD COLUMN fresh integer")

    with pytest.raises(SourceUnreachable, match=r"\b(?!539c41736018)[0-9a-f]{12}\b"):
        check_database("db", debusine.reader)
