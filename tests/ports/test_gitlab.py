"""What GitLab's API owes fleet: comments in order, on every page, its own to change; settings."""

from collections.abc import Iterator

import pytest

from fleet.errors import SourceUnreachable, WrongUsage
from fleet.queues.gitlab import MOST_CHARACTERS, Gitlab
from tests.fakes.gitlab import ADA, BOT, MAINTAINERS, TOKEN, VALUE, FakeGitlab, a_variable
from tests.rigs.loopback import Answer, redirect


@pytest.fixture
def server() -> Iterator[FakeGitlab]:
    with FakeGitlab(open={3: [], 5: []}) as fake:
        yield fake


@pytest.fixture
def gitlab(server: FakeGitlab) -> Gitlab:
    return Gitlab(server.url, "debian/fleet", TOKEN)


def test_comment_is_added_edited_and_deleted(server: FakeGitlab, gitlab: Gitlab) -> None:
    assert (gitlab.user(), gitlab.open_merge_requests()) == (BOT, (3, 5))
    theirs = server.say(5, "mine")
    note = gitlab.add_comment(3, "one")
    gitlab.edit_comment(3, note.id, "two")

    assert [each.body for each in gitlab.comments(3, BOT)] == ["two"]
    assert gitlab.comments(5, BOT) == ()
    with pytest.raises(SourceUnreachable, match="403"):
        gitlab.edit_comment(5, theirs, "yours")
    assert server.comments(5, ADA) == ["mine"]

    gitlab.delete_comment(3, note.id)
    gitlab.delete_comment(3, note.id)

    assert server.open[3] == []
    gitlab.add_comment(3, "x" * MOST_CHARACTERS)
    with pytest.raises(SourceUnreachable):
        gitlab.add_comment(3, "x" * (MOST_CHARACTERS + 1))
    assert len(server.open[3]) == 1


def test_comments_of_every_page_are_found_oldest_first(server: FakeGitlab, gitlab: Gitlab) -> None:
    for number in range(250):
        server.say(3, f"{number}", BOT if number in (7, 249) else ADA)
    server.say(3, "added 1 commit", BOT, system=True)

    assert [each.body for each in gitlab.comments(3, BOT)] == ["7", "249"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(401, b"{}"), "401"),
        (Answer(404, b"{}"), "404"),
        (Answer(429, b"", {"Retry-After": "17"}), "17 s"),
        (Answer(502, b"<html>", {"Content-Type": "text/html"}), "502"),
        (Answer(200, b"<html>", {"Content-Type": "text/html"}), "HTML"),
        (Answer(200, b'{"id": "x\\u001b"}'), "id"),
        (redirect("https://elsewhere.example.org/"), "elsewhere.example.org"),
    ],
)
def test_invalid_reply_of_gitlab_has_advice(
    server: FakeGitlab, gitlab: Gitlab, answer: Answer, told: str
) -> None:
    server.answers.append(answer)

    with pytest.raises(SourceUnreachable, match=told) as raised:
        gitlab.user()

    assert TOKEN not in str(raised.value)


def test_variables_are_listed_by_scope_without_values(server: FakeGitlab, gitlab: Gitlab) -> None:
    server.variables = [a_variable(f"V{number}", masked=False) for number in range(250)]

    told = Gitlab(server.url, "debian/fleet", MAINTAINERS).settings()

    assert [each.name for each in told.variables] == [f"V{number}" for number in range(250)]
    found = {(each.protected, each.masked, each.scope) for each in told.variables}
    assert found == {(True, False, "plan")}
    assert (told.default_branch, told.protected_branches) == ("main", ("main",))
    assert (told.configuration, told.opens_to_merge_requests) == (".gitlab-ci.yml", None)
    assert VALUE not in repr(told)
    with pytest.raises(SourceUnreachable, match="Maintainer"):
        gitlab.settings()
    with pytest.raises(WrongUsage):  # no token is sent without TLS
        Gitlab("http://gitlab.example.org/api/v4", "1", TOKEN)
