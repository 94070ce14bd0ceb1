"""`fleet approve` lets a number of machines pass a guard, as the refusal says."""

from tests.rigs.trial import Trial, fleet_yaml


def test_approval_command_printed_by_refusal_permits_change(idle: Trial) -> None:
    idle.write(fleet_yaml(pools={}))
    refused = idle.told("apply", code=4)
    command = next(line.strip() for line in refused.splitlines() if "fleet approve" in line)

    idle.told(*command.replace('"', "").split()[1:])
    for _ in range(2):
        idle.apply()

    assert idle.machines() == []
