"""Answer as a Debusine server that builds images."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.rigs.loopback import Answer, Received

DISK = b"QFI\xfb" + b"a disk" * 1000


@dataclass
class DebusineBuilds:
    """What a server does with one work request after another, all of the same number.

    The request has the number 7, and 9 when it was tried again (`again`).
    """

    statuses: list[str] = field(default_factory=lambda: ["pending", "running", "completed"])
    result: str = "success"
    disk: bytes = DISK
    size: int = len(DISK)
    sha256: str = hashlib.sha256(DISK).hexdigest()
    log: str = "cmd: debefivm-create\n"
    """What the worker kept of what its program said."""
    refusal: str = ""
    """Why it takes no work request."""
    host: str = ""
    category: str = "debian:system-image"
    codename: str = "trixie"
    architecture: str = "amd64"
    posted: dict[str, object] = field(default_factory=dict)
    again: bool = False
    """The worker of the first request is lost: it is aborted and tried again as another."""
    aborted_by: int | None = None
    aborted: list[int] = field(default_factory=list)
    url: str = ""

    def __call__(self, received: Received) -> Answer:
        answers: dict[str, Callable[[Received], Answer]] = {
            "/api/1.0/work-request/": self._post if received.body else self._list,
            "/api/1.0/work-request/7/": self._lost if self.again else self._look,
            "/api/1.0/work-request/7/abort/": lambda _: self._abort(7),
            "/api/1.0/work-request/9/": self._look,
            "/api/1.0/work-request/9/abort/": lambda _: self._abort(9),
            "/api/1.0/artifact/3/": lambda _: _json(self._logs()),
            "/api/1.0/artifact/4/": lambda _: _json(self._artifact()),
            "/debian/builds/artifact/3/download/cmd.log": lambda _: Answer(200, self.log.encode()),
            "/debian/builds/artifact/4/download/image.qcow2": lambda _: Answer(200, self.disk),
        }
        return answers[received.path](received)

    def _post(self, received: Received) -> Answer:
        if self.refusal:
            return Answer(400, json.dumps({"title": self.refusal}).encode())
        self.posted = json.loads(received.body)
        return _json({"id": 7, "status": "pending", "result": "", "artifacts": []})

    def _look(self, _: Received) -> Answer:
        over = len(self.statuses) == 1
        status = self.statuses[0] if over else self.statuses.pop(0)
        done = {"result": self.result, "artifacts": [3, 4]} if over else {}
        return _json({"id": 7, "status": status, **done})

    def _lost(self, _: Received) -> Answer:
        return _json(self._request(7, "aborted") | {"aborted_by": self.aborted_by})

    def _list(self, received: Received) -> Answer:
        """Tell of the newest requests on one page, of the oldest on the next."""
        if "cursor" in received.query:
            return _json({"next": None, "results": [self._request(7, "aborted")]})
        retried = self._request(9, "pending") | {"workflow_data": {"retry_count": 1}}
        # Others' builds lost their workers too: one that differs by its suite, one by nothing.
        other = retried["task_data"] | {"bootstrap_repositories": [{"suite": "other"}]}
        others = [retried | {"id": 11, "task_data": other}, retried | {"id": 10}]
        following = f"{self.url}/api/1.0/work-request/?cursor=cD0y"
        return _json({"next": following, "results": [*others, *([retried] if self.again else [])]})

    def _request(self, number: int, status: str) -> dict[str, Any]:
        data = self.posted["task_data"]
        return {"id": number, "status": status, "created_by": 2, "task_data": data}

    def _abort(self, number: int) -> Answer:
        self.aborted.append(number)
        return _json({})

    def _logs(self) -> dict[str, object]:
        file = {
            "size": len(self.log),
            "url": f"{self.url}/debian/builds/artifact/3/download/cmd.log",
        }
        category = "debusine:work-request-debug-logs"
        return {"category": category, "data": {}, "files": {"cmd.log": file}}

    def _artifact(self) -> dict[str, object]:
        where = f"{self.host or self.url}/debian/builds/artifact/4/download/image.qcow2"
        checksums = {"sha256": self.sha256}
        return {
            "category": self.category,
            "data": {
                "pkglist": {"sbuild": "0.89.3", "apt": "3.0.3"},
                "codename": self.codename,
                "architecture": self.architecture,
            },
            "files": {
                "image.qcow2": {"size": self.size, "url": where, "checksums": checksums},
            },
        }


def _json(value: object) -> Answer:
    return Answer(200, json.dumps(value).encode())
