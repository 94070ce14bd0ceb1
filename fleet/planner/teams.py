"""Find the team of requests and of running work: as the queue reports, else by `teams`.

The first match decides: user, group, owner, workspace, scope. If several teams match at the same
level, the first name in the alphabet is used.
"""

from collections.abc import Iterable, Mapping

from fleet.model.facts import Request, Unknown, Work, World
from fleet.schema.model import TEAM_MEMBERS, Fleet


class Teams:
    """The teams of fleet.yaml, indexed by their members."""

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
        """Return the team of a request or of running work; None if no team matches."""
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
        """Return the team that contains any of these names; None if no team matches."""
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
    """Return the teams of fleet.yaml with the observed members of groups."""
    members = world.members

    def find() -> Teams:
        return Teams(fleet, {} if isinstance(members, Unknown) else members)

    return fleet.cached("teams", (members,), find)
