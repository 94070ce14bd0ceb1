"""What the real engine's events say: which resource failed, and why, in a short line."""

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.engines.pulumi_cli import Events
from fleet.planner.failures import classify
from fleet.ports import StackStep
from tests.builders.sentences import tells

URN = "urn:pulumi:debian-builders::fleet-hcloud::hcloud:index/server:Server::debian-builders-0001"
BRIDGED = "error: 1 error occurred:\n\t* creating it: limit reached (resource_limit_exceeded)\n\n"


def event(message: str, urn: str | None, severity: str = "error") -> Mapping[str, Any]:
    """Return a diagnostic of one resource, or of none."""
    told = {"message": message, "severity": severity}
    return {"diagnosticEvent": told if urn is None else {**told, "urn": urn}}


def begins(urn: str, operation: str) -> Mapping[str, Any]:
    """Return that an operation on a resource begins."""
    return {"resourcePreEvent": {"metadata": {"op": operation, "urn": urn}}}


def ends(urn: str, operation: str) -> Mapping[str, Any]:
    """Return that an operation on a resource has ended, or would have."""
    return {"resOutputsEvent": {"metadata": {"op": operation, "urn": urn}}}


def test_done_steps_exclude_preview_of_a_continued_update() -> None:
    told: list[StackStep] = []
    events = Events(secrets=())

    events(ends(URN, "delete"))
    events.go_on(told.append)
    nothing = events.done
    events(ends(URN, "delete"))

    assert nothing == ()
    assert (
        events.done
        == tuple(told)
        == (StackStep(worker="debian-builders-0001", operation="delete"),)
    )


NETWORK = URN.replace("server:Server::debian-builders-0001", "network:Network::net")
VOLUME = URN.replace("server:Server", "volume:Volume")


@pytest.mark.parametrize(
    ("begun", "planned"),
    [
        ([(URN, "create")], ["create debian-builders-0001"]),
        ([(NETWORK, "create")], ["create net"]),
        # Another resource of its name keeps the step of the worker.
        (
            [(URN, "replace"), (VOLUME, "create")],
            ["create debian-builders-0001", "replace debian-builders-0001"],
        ),
        (
            [("urn:pulumi:s::p::pulumi:providers:hcloud::default", "create"), (URN, "same")],
            [],
        ),
    ],
)
def test_steps_of_resources_are_planned_and_not_done(
    begun: list[tuple[str, str]], planned: list[str]
) -> None:
    events = Events(secrets=())

    for urn, operation in begun:
        events(begins(urn, operation))
        events(ends(urn, operation))

    assert [f"{step.operation} {step.worker}" for step in events.planned] == planned
    assert events.done == ()


def test_failure_is_reported_under_worker_name() -> None:
    events = Events(secrets=())

    events(event("resource_unavailable: ccx33", URN))
    events(event("update failed", URN))

    assert events.failed == {"debian-builders-0001": "resource_unavailable: ccx33"}


def test_code_of_failure_is_kept_in_any_position() -> None:
    events = Events(secrets=())

    events(event("resource limit exceeded", URN))
    events(event(BRIDGED, URN))

    (said,) = events.failed.values()
    assert tells(said, "creating", "limit reached", "resource_limit_exceeded")
    assert classify(said) == "quota"


def test_failure_omits_noise_of_plugin() -> None:
    events = Events(secrets=())
    refused = 'Get "https://api.example.org/v1/servers": connection refused'

    events(
        event(
            f"sdk-v2/provider2.go:571: sdk.helper_schema: {refused}: provider=hcloud@1.57.0", URN
        )
    )
    events(event(f"error: 1 error occurred:\n\t* {refused}\n\n", URN))

    assert events.failed == {"debian-builders-0001": refused}
    assert events.errors == (refused,)


def test_failed_api_request_shows_cause_and_code() -> None:
    events = Events(secrets=())
    asked = "An unexpected error was encountered during an API request.\n\n"
    refused = f"{asked}SSH key not unique\n\nError code: uniqueness_error\nStatus code: 409\n"

    events(event(f"[ERROR] {refused}: API request failed\n", URN))
    events(event(f"API request failed: {refused}\n", URN))

    assert events.errors == ("SSH key not unique (uniqueness_error)",)
    assert events.failed == {"debian-builders-0001": "SSH key not unique (uniqueness_error)"}


def test_failed_request_names_its_invalid_field() -> None:
    events = Events(secrets=())
    asked = "An invalid field was encountered during an API request. "
    cause = "invalid input in field 'public_key' (invalid_input): [public_key => [is no key]]"
    refused = (
        f"{asked}The field might not map 1:1 to your terraform resource.\n\n{cause}\n\n"
        "Field: public_key\nMessages:\n - is no key\nError code: invalid_input\nStatus code: 422\n"
    )

    events(event(f"[ERROR] {refused}: Invalid field in API request\n", URN))
    events(event(f"Invalid field in API request: {refused}", URN))

    assert events.errors == (cause,)


def test_text_after_field_of_another_failure_is_kept() -> None:
    events = Events(secrets=())
    first = "bad key\n\nField: public_key\nMessages:\n - is no key\nError code: invalid_input\n"

    events(event(f"2 errors occurred:\n\t* {first}\t* no more servers\nError code: limit\n", URN))

    said = "bad key * no more servers (limit)"
    assert events.failed == {"debian-builders-0001": said}


def test_failure_without_resource_belongs_to_no_worker() -> None:
    events = Events(secrets=())

    events(event("incorrect passphrase", None))
    events(event("slow answer", URN, severity="warning"))

    assert events.failed == {}
    assert events.errors == ("incorrect passphrase",)


def test_failure_text_has_secrets_masked() -> None:
    events = Events(secrets=["hunter2"])

    events(event("server_error: token hunter2 is wrong", URN))

    assert events.failed == {"debian-builders-0001": "server_error: token *** is wrong"}
