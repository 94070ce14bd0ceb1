"""What the real engine's events say: which resource failed, and why, in a short line."""

from typing import TYPE_CHECKING, Any

import pytest

from fleet.engines.pulumi_events import Events
from fleet.failures import classify

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent

URN = "urn:pulumi:debian-builders::fleet-hcloud::hcloud:index/server:Server::debian-builders-1"
BRIDGED = "error: 1 error occurred:\n\t* creating it: limit reached (resource_limit_exceeded)\n\n"


def event(message: str, urn: str | None, severity: str = "error") -> "EngineEvent":
    """Return a diagnostic of one resource, or of none."""
    automation: Any = pytest.importorskip("pulumi.automation")
    diagnostic = automation.events.DiagnosticEvent(message, "never", severity, urn=urn)
    told: EngineEvent = automation.EngineEvent(1, 1, diagnostic_event=diagnostic)
    return told


def test_a_failure_is_told_by_the_name_of_its_worker() -> None:
    events = Events()

    events(event("resource_unavailable: ccx33", URN))
    events(event("update failed", URN))

    assert events.failed == {"debian-builders-1": "resource_unavailable: ccx33"}


def test_the_code_of_a_failure_is_kept_wherever_it_stands() -> None:
    events = Events()

    events(event("resource limit exceeded", URN))
    events(event(BRIDGED, URN))

    (said,) = events.failed.values()
    assert said == (
        "resource limit exceeded; "
        "1 error occurred: * creating it: limit reached (resource_limit_exceeded)"
    )
    assert classify(said) == "quota"


def test_a_failure_of_no_resource_is_no_workers() -> None:
    events = Events()

    events(event("incorrect passphrase", None))
    events(event("slow answer", URN, severity="warning"))

    assert events.failed == {}
    assert events.errors == ("incorrect passphrase",)


def test_secrets_are_left_out_of_what_is_remembered() -> None:
    events = Events(secrets=["hunter2"])

    events(event("server_error: token hunter2 is wrong", URN))

    assert events.failed == {"debian-builders-1": "server_error: token [secret] is wrong"}
