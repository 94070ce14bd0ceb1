"""The team of each request and of running work: as the queue reports it, else by `teams`.

The order of precedence is: the team of the user, of a group, of the owner, of the workspace, of
the scope. Within each, the first team by name counts.
"""

from collections.abc import Iterable, Mapping

from fleet.model.facts import Request, Unknown, Work, World
from fleet.schema.limits import TEAM_MEMBERS
from fleet.schema.model import Fleet
from fleet.schema.remembered import remembered


class Teams:
    """The teams of fleet.yaml, by their members."""

    def __init__(self, fleet: Fleet, members: Mapping[str, Iterable[str]]) -> None:
        self.are_stated = bool(fleet.teams)
        self._by_kind: dict[str, dict[str, str]] = {kind: {} for kind in TEAM_MEMBERS}
        for name, team in sorted(fleet.teams.items()):
            for kind, known in self._by_kind.items():
                for member in team.of(kind):
                    known.setdefault(member, name)
        self._of_user: dict[str, str] = {}
        by_group = self._by_kind["groups"]
        for group in sorted(members.keys() & by_group.keys(), key=lambda each: by_group[each]):
            for user in members[group]:
                self._of_user.setdefault(user, by_group[group])

    def of(self, each: Request | Work) -> str | None:
        """Return the team of a request or of work; None if it is in no known team."""
        if each.team is not None or not self.are_stated:
            return each.team
        return self.of_names(
            user=each.requester,
            groups=each.groups,
            owner=each.owner,
            workspace=each.workspace,
            scope=each.scope,
        )

    def of_names(
        self,
        *,
        user: str | None = None,
        groups: Iterable[str] = (),
        owner: str | None = None,
        workspace: str | None = None,
        scope: str | None = None,
    ) -> str | None:
        """Return the team that these names are in; None if they are in no team."""
        by = self._by_kind
        grouped = [by["groups"][group] for group in groups if group in by["groups"]]
        if user in self._of_user:
            grouped.append(self._of_user[user])
        found = (
            by["users"].get(user or ""),
            min(grouped, default=None),
            by["owners"].get(owner or ""),
            by["workspaces"].get(f"{scope}/{workspace}") if workspace else None,
            by["workspaces"].get(workspace or ""),
            by["scopes"].get(scope or ""),
        )
        return next((team for team in found if team is not None), None)


def teams_of(fleet: Fleet, world: World) -> Teams:
    """Return the teams of a fleet, with the members of groups that a world knows."""
    members = world.members

    def find() -> Teams:
        return Teams(fleet, {} if isinstance(members, Unknown) else members)

    return remembered(fleet, "teams", (members,), find)
