"""Checks of teams, and of the budgets and limits that name teams."""

from collections.abc import Collection, Iterator

from fleet.checks.findings import unwise
from fleet.schema.findings import Finding, Path, nearest
from fleet.schema.limits import TEAM_MEMBERS
from fleet.schema.model import DebusineQueue, Fleet, TicketQueue, WorldQueue

_REPORTED = {
    "copr": ("users", "owners"),
    "debusine": ("users", "groups", "workspaces", "scopes"),
    "tickets": ("users", "owners"),
    "world": TEAM_MEMBERS,
}
"""Kind of queue to the keys of a team whose members the queue reports."""


def unknown_team(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a team or member that no queue can report, and about a repeated member."""
    if not fleet.queues:
        return
    known = set[str]()
    yield from _check_members(fleet, known)
    if any(isinstance(queue, TicketQueue | WorldQueue) for queue in fleet.queues.values()):
        return  # these queues report any team
    yield from _check_names(fleet, known)


def _check_members(fleet: Fleet, known: set[str]) -> Iterator[Finding]:
    """Warn about members that no queue reports; add the teams with other members to `known`."""
    kinds = {kind for queue in fleet.queues.values() for kind in _REPORTED[queue.kind]}
    kinds |= {"groups"} if fleet.members and "users" in kinds else set()
    first: dict[tuple[str, str], str] = {}
    for name, team in sorted(fleet.teams.items()):
        members = [(kind, *each) for kind in TEAM_MEMBERS for each in enumerate(team.of(kind))]
        if not members:
            hint = f"add {', '.join(TEAM_MEMBERS[:-1])} or {TEAM_MEMBERS[-1]}, or remove the team"
            yield unwise(f"team '{name}' has no members", ("teams", name), at="key", hint=hint)
        for kind, number, member in members:
            path: Path = ("teams", name, kind, number)
            if kind not in kinds:
                message = f"no queue of this file reports {kind}, so '{member}' matches nothing"
                said = ", ".join(each for each in TEAM_MEMBERS if each in kinds)
                yield unwise(message, path, hint=f"they report {said}")
            elif not _has_scope(fleet, kind, member):
                message = f"no queue has the scope of '{member}', so it matches nothing"
                yield unwise(message, path, hint="spell it as in `scopes` of the queue")
            else:
                known.add(name)
                other = first.setdefault((kind, member), name)
                if other != name:
                    message = f"'{member}' is in team '{other}' too, and only that one counts"
                    yield unwise(message, path, hint="remove it from one of the teams")


def _has_scope(fleet: Fleet, kind: str, member: str) -> bool:
    """Return whether a queue may have a member's scope; True for a member without scope."""
    scope, is_within, _ = member.partition("/")
    names_scope = kind == "scopes" or (kind == "workspaces" and is_within)
    if not names_scope or any(isinstance(each, WorldQueue) for each in fleet.queues.values()):
        return True
    queues = (queue for queue in fleet.queues.values() if isinstance(queue, DebusineQueue))
    return (member if kind == "scopes" else scope) in {s for queue in queues for s in queue.scopes}


def _check_names(fleet: Fleet, known: Collection[str]) -> Iterator[Finding]:
    """Warn about budgets and limits for teams that no queue reports."""
    for name, budget in fleet.budgets.items():
        if budget.team is not None and budget.team not in known:
            meant = nearest(budget.team, sorted(known))
            yield unwise(
                f"no queue reports team '{budget.team}', so this budget never counts anything",
                ("budgets", name, "team"),
                hint=f"did you mean {meant}?" if meant else "add its members under `teams`",
            )
    for tag, rule in fleet.tags.items():
        if rule.limits.per.team is not None and not known:
            yield unwise(
                "no queue reports teams, so all requests count as one team",
                ("tags", tag, "limits", "per", "team"),
                hint="add the members of each team under `teams`, or limit the `total`",
            )
