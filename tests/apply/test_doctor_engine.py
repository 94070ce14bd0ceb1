"""The doctor of an engine: what an apply would need and does not have."""

from tests.apply.test_doctor import check, of
from tests.builders import a_fleet


def test_pulumi_engine_without_passphrase_is_wrong() -> None:
    fleet = a_fleet(providers={"far": {"kind": "sim", "engine": "pulumi"}}, pools={})

    finding = of(check(fleet), "provider far, engine")

    assert (finding.result, finding.fix) == (
        "wrong",
        "state: {passphrase: {env: NAME}} in fleet.yaml",
    )


def test_missing_pulumi_engine_is_wrong() -> None:
    fleet = a_fleet(providers={"far": {"kind": "sim", "engine": "pulumi"}}, pools={})

    finding = of(check(fleet, asked={"lacking": {"far": "install it"}}), "provider far, engine")

    assert (finding.result, finding.fix) == ("wrong", "install it")
