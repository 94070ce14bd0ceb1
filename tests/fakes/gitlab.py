"""A GitLab that is written by hand: comments, variables and settings of one project, on loopback.

Shapes and words as GitLab's REST API documents them (version 4: notes, merge requests, user,
project-level variables, protected branches, projects).
"""

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any, Self

from tests.rigs.loopback import Answer, Loopback, Received

BOT, ADA = 40, 7
TOKEN, MAINTAINERS = "made-up-project-token", "made-up-maintainers-token"
VALUE = "canary-value-of-a-variable"
_PROJECT = "/api/v4/projects/debian%2Ffleet"
_NOTES = re.compile(r"/api/v4/projects/debian%2Ffleet/merge_requests/(\d+)/notes(?:/(\d+))?")
_ARTIFACT = re.compile(
    r"/api/v4/projects/debian/fleet/jobs/artifacts/refs%2Fmerge-requests%2F(\d+)%2Fhead/raw/"
    r"(plan|simulation)\.json"
)
_MOST = 1_000_000
JOB_TOKEN = "made-up-job-token"


@dataclass
class FakeGitlab:
    """Merge requests by number, each with its comments."""

    open: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    saved: dict[int, bytes] = field(default_factory=dict)
    """The artifact plan.json of a merge request's pipeline."""
    simulated: dict[int, bytes] = field(default_factory=dict)
    """Its artifact simulation.json, where it has one."""
    variables: list[dict[str, Any]] = field(default_factory=list)
    protected: list[str] = field(default_factory=lambda: ["main"])
    settings: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: {TOKEN: BOT, MAINTAINERS: ADA})
    locked: bool = False
    answers: list[Answer] = field(default_factory=list)
    """What the next requests are answered, whatever they ask."""

    def __enter__(self) -> Self:
        self._ids = itertools.count(1000)
        self._loopback = Loopback(self._answer)
        self._loopback.__enter__()
        self.url = f"{self._loopback.url}/api/v4"
        self.environment = {
            "CI_API_V4_URL": self.url,
            "CI_PROJECT_ID": "debian/fleet",
            "FLEET_GITLAB_TOKEN": TOKEN,
        }
        self.doctors_environment = {
            "CI_API_V4_URL": self.url,
            "CI_PROJECT_ID": "debian/fleet",
            "FLEET_GITLAB_MAINTAINER_TOKEN": MAINTAINERS,
        }
        return self

    def __exit__(self, *reason: object) -> None:
        self._loopback.__exit__(*reason)

    @property
    def asked(self) -> list[str]:
        """Return method and path of each request."""
        return [f"{each.method} {each.path}" for each in self._loopback.received]

    def say(
        self, merge_request: int, body: str, author: int = ADA, *, system: bool = False
    ) -> int:
        """Have somebody comment on a merge request; return the comment's id."""
        number = next(self._ids)
        note = {
            "id": number,
            "type": None,
            "body": body,
            "author": {"id": author, "username": f"user{author}", "state": "active"},
            "system": system,
            "noteable_type": "MergeRequest",
            "noteable_iid": merge_request,
            "resolvable": False,
        }
        self.open.setdefault(merge_request, []).append(note)
        return number

    def comments(self, merge_request: int, author: int = BOT) -> list[str]:
        """Return the texts of somebody's comments, the oldest first."""
        return [n["body"] for n in self.open[merge_request] if n["author"]["id"] == author]

    def _answer(self, asked: Received) -> Answer:
        if self.answers:
            # The last one goes on.
            return self.answers.pop(0) if self.answers[1:] else self.answers[0]
        job = asked.headers.get("job-token") == JOB_TOKEN
        user = ADA if job else self.tokens.get(asked.headers.get("private-token", ""))
        if user is None:
            return _json(401, {"message": "401 Unauthorized"})
        if asked.path == "/api/v4/user":
            return _json(200, {"id": user, "username": "project_1_bot", "bot": True})
        if not job and _PROJECT in (asked.path, asked.path.rpartition("/")[0]):
            return self._project(asked, user)
        found = _NOTES.fullmatch(asked.path)
        if job or found is None or int(found[1]) not in self.open:
            return self._artifact(asked)
        return self._notes(asked, int(found[1]), found[2], user)

    def _artifact(self, asked: Received) -> Answer:
        found = _ARTIFACT.fullmatch(asked.path)
        kept = {
            "plan": ("fleet plan", self.saved),
            "simulation": ("fleet simulate", self.simulated),
        }
        job, artifacts = kept[found[2]] if found else ("", {})
        if found is None or asked.query != {"job": job}:
            return _json(404, {"message": "404 Not Found"})
        saved = artifacts.get(int(found[1]))
        return Answer(404 if saved is None else 200, saved or b"{}")

    def _project(self, asked: Received, user: int) -> Answer:
        branches = [{"id": number, "name": name} for number, name in enumerate(self.protected)]
        match asked.path.removeprefix(_PROJECT):
            case "":
                known = {"id": 7, "default_branch": "main", "ci_config_path": None}
                return _json(200, {**known, **self.settings})
            case "/merge_requests":
                return self._page(asked, [{"iid": iid, "state": "opened"} for iid in self.open])
            case "/variables" if user == ADA:
                return self._page(asked, self.variables)
            case "/protected_branches" if user == ADA:
                return self._page(asked, branches)
            case _:
                return _json(403, {"message": "403 Forbidden"})

    def _notes(self, asked: Received, iid: int, note: str | None, user: int) -> Answer:
        if note is None and asked.method == "GET":
            return self._page(asked, self.open[iid])
        body = json.loads(asked.body)["body"] if asked.body else ""
        if len(body) > _MOST or (asked.method != "DELETE" and not body.strip()):
            return _json(400, {"message": {"note": ["is too long (maximum is 1000000)"]}})
        if note is None and not self.locked:
            self.say(iid, body, user)
            return _json(201, self.open[iid][-1])
        held = next((n for n in self.open[iid] if str(n["id"]) == note), None)
        if self.locked or (held is not None and held["author"]["id"] != user):
            return _json(403, {"message": "403 Forbidden"})
        return self._changed(asked.method, self.open[iid], held, body)

    def _changed(
        self, method: str, notes: list[dict[str, Any]], held: dict[str, Any] | None, body: str
    ) -> Answer:
        if held is None:
            return _json(404, {"message": "404 Note Not Found"})
        if method == "DELETE":
            notes.remove(held)
            return Answer(204, b"", {})
        held["body"] = body
        return _json(200, held)

    def _page(self, asked: Received, items: list[dict[str, Any]]) -> Answer:
        size, page = int(asked.query["per_page"]), int(asked.query["page"])
        shown = items[(page - 1) * size : page * size]
        following = str(page + 1) if page * size < len(items) else ""
        return _json(200, shown, {"X-Next-Page": following, "X-Page": str(page)})


def a_variable(
    name: str, *, protected: bool = True, masked: bool = True, scope: str = "plan"
) -> dict[str, Any]:
    """Return a variable as GitLab answers it, its value too."""
    return {
        "variable_type": "env_var",
        "key": name,
        "value": VALUE,
        "protected": protected,
        "masked": masked,
        "hidden": False,
        "raw": False,
        "environment_scope": scope,
        "description": None,
    }


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> Answer:
    return Answer(
        status,
        json.dumps(value).encode(),
        {"Content-Type": "application/json", **(headers or {})},
    )
