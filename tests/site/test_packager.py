"""The page of a waiting build answers: why, until when, what helps, and whom to ask."""

import re
from functools import cache
from html import unescape

import pytest

from fleet.explain.case import Case
from fleet.explain.request import waits_of
from fleet.guard import guard
from fleet.model.facts import Request, Unknown, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.site.files import Shown, site
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.sentences import tells

ADMINS, PORTERS = "admins@example.org", "chromium@example.org"
REASON = "24 h builds"
WORKER = "debian-ci-builders-0001"
RULE = {
    "match": "debian/builds/amd64/chromium",
    "ask": ["large"],
    "reason": REASON,
    "contact": PORTERS,
}


def a_large_fleet(**overrides: object) -> Fleet:
    """Return a fleet in which each user may have one machine for large builds."""
    tag = {"on_demand": True, "exclusive": True, "limits": {"per": {"submitter": 1}}}
    fields: dict[str, object] = {
        "contact": ADMINS,
        "pools": {"builders": a_pool(provider="desk", max=5, provides=["large"])},
        "tags": {"large": tag},
        "powerful": [RULE],
        "durations": {"any": "24h"},
    }
    return a_sim_fleet(**(fields | overrides))


def chromium(number: int, user: str = "ada") -> Request:
    return a_request(
        id=str(number),
        task="sbuild",
        package="chromium",
        requester=user,
        scope="debian",
        workspace="builds",
        task_data={"host_architecture": "amd64"},
        pending_since=ago(minutes=60 - number),
    )


def a_site(fleet: Fleet, world: World) -> dict[str, str]:
    plan = guard(fleet, reconcile(fleet, world))
    case = Case(fleet, world, plan)
    return site(Shown(plan, responsible=case.responsible, waits=waits_of(case)))


def page_of(files: dict[str, str], number: int) -> str:
    return files[f"-/status/requests/debian%2F{number}/index.html"]


def read(page: str) -> str:
    """Return the visible text of a page's main part, one element a line."""
    main = page[page.index("<main") : page.index("</main>")]
    main = re.sub(r"<details>.*?</details>", "", main, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", "\n", unescape(re.sub(r"</?(code|a|span)[^>]*>", "", main)))


@pytest.fixture(scope="module")
def second() -> str:
    """Return the page of the second build of a user who may have one machine."""
    world = a_sim_world(requests=(chromium(1), chromium(2)))
    return page_of(a_site(a_large_fleet(), world), 2)


def test_first_sentence_names_the_user_s_other_build(second: str) -> None:
    answer = read(second)

    assert tells(answer, "other build", "1", "ada", "chromium debian/1")
    assert '<a href="../../../../-/status/requests/debian%252F1/index.html">debian/1</a>' in second


def test_page_has_contacts_and_reason_of_the_rule(second: str) -> None:
    assert f'<a href="mailto:{ADMINS}">{ADMINS}</a>' in second
    assert f'<a href="mailto:{PORTERS}">{PORTERS}</a>' in second
    assert tells(read(second), REASON)
    assert tells(read(second), f"{ADMINS}: machines and limits")
    assert tells(read(second), f"{PORTERS}: whether chromium needs a powerful machine")
    assert second.count(f">{PORTERS}<") == 1


def test_user_may_cancel_an_own_build_that_goes_first(second: str) -> None:
    assert tells(read(second), "Or cancel chromium debian/1 if")


def test_changes_are_listed_for_the_keepers_of_fleet_yaml(second: str) -> None:
    you, keepers = (second.index(f"<h3>{name}") for name in ("You", "Those who keep this fleet"))

    assert second.index("limits: {per: {submitter: 2}}") > keepers > you
    assert second.index("starts by itself") < keepers


def test_answers_come_before_the_card_and_keys_are_folded(second: str) -> None:
    parts = ("<h1>", ">What helps<", ">Contact<", ">Expected start<")

    assert sorted(parts, key=second.index) == [*parts]
    assert tells(second, "tags.large.limits.per.submitter")
    assert "limits" not in read(second).partition("What helps")[0]
    assert "limits: {" not in read(second)


def test_page_names_the_keepers_when_no_contact_is_known() -> None:
    fleet = a_large_fleet(contact=None, powerful=[{**RULE, "contact": None}])
    world = a_sim_world(requests=(chromium(1), chromium(2)))

    page = page_of(a_site(fleet, world), 2)

    assert tells(read(page), f"Ask the maintainers of fleet {fleet.fleet}.")
    assert "mailto:" not in page


def test_missing_architecture_is_the_whole_answer() -> None:
    request = a_request(required=("worker:build-arch:riscv64",))

    page = read(page_of(a_site(a_large_fleet(), a_sim_world(requests=(request,))), 101))

    assert tells(page, "No machine of this fleet builds riscv64", "never starts unless")
    assert "Rule:" not in page


LOST = "there is no store at fleet.db; only for a new fleet: `fleet state init`"
NO_STORE = {"stacks": Unknown(unknown=LOST), "images": Unknown(unknown=LOST)}


@pytest.mark.parametrize(
    ("unread", "source"),
    [
        (NO_STORE, "its state"),
        ({"providers": {"desk": Unknown(unknown=LOST)}}, "the machines of provider desk"),
        ({"stacks": {"builders": Unknown(unknown=LOST)}}, "the machines of pool builders"),
    ],
)
def test_unread_source_is_named_and_its_repair_is_for_the_keepers(
    unread: dict[str, object], source: str
) -> None:
    world = a_sim_world(requests=(chromium(1), chromium(2))).altered(**unread)
    files = a_site(a_large_fleet(), world)

    queue, overview = files["-/status/queue/index.html"], files["index.html"]
    for number in (1, 2):
        page = page_of(files, number)
        answer, _, helps = read(page).partition("What helps")
        assert tells(answer, f"fleet cannot read {source}.", "administrators", "unknown")
        assert LOST.replace("`", "") not in answer
        assert helps.count(LOST.replace("`", "")) == 1
        assert helps.index(LOST.replace("`", "")) > helps.index("Those who keep this fleet")
        assert "Rule:" not in page
    assert f"fleet cannot read {source}." in files["-/status/requests/index.html"]
    assert "decided by" not in queue
    assert [text.count("there is no store") for text in (queue, overview)] == [1, 1]


def test_request_that_no_machine_can_run_never_starts_on_every_page() -> None:
    files = a_site(a_sim_fleet(), a_sim_world(requests=(a_request(required=("gpu",)),)))

    own, queue = page_of(files, 101), files["-/status/queue/index.html"]
    assert tells(own, "Expected start</th><td>never, unless the fleet changes")
    assert "decided by" not in queue
    assert "Expected end</th><td>\N{EN DASH}</td>" in own
    assert 'data-label="Expected start">never, unless the fleet changes<' in queue
    assert ">never</td>" in files["-/status/requests/index.html"]


def test_headline_tells_starting_machines_from_planned_ones() -> None:
    fleet = a_sim_fleet(pools={"builders": a_pool(provider="desk", max=2)})
    requests = tuple(a_request(id=str(n)) for n in range(1, 4))

    page = page_of(a_site(fleet, a_sim_world(requests=requests, starting=(WORKER,))), 3)

    assert tells(page, "2 machines (1 starting, 1 soon)")


def test_place_in_line_counts_requests_of_higher_priority() -> None:
    fleet = a_sim_fleet(pools={"builders": a_pool(provider="desk", max=1)})
    worker = a_worker(busy=True, work={"task": "sbuild"})
    requests = (*(a_request(id=str(n), priority=n // 3) for n in range(1, 5)),)

    files = a_site(fleet, a_sim_world(worker, requests=requests))

    assert tells(read(page_of(files, 2)), "3 builds go before it", "2 of higher priority")
    assert tells(files["-/status/requests/index.html"], "4th in line for pool builders")


def test_request_that_needs_an_edit_of_fleet_yaml_is_not_in_line() -> None:
    pools = {
        "builders": a_pool(provider="desk", max=1),
        "none": a_pool(provider="desk", max=0, provides=["wants_none"]),
    }
    requests = (
        a_request(id="1", required=("wants_none",), priority=9),
        *(a_request(id=str(n)) for n in (2, 3)),
    )

    files = a_site(a_sim_fleet(pools=pools), a_sim_world(requests=requests))

    assert "in line" not in read(page_of(files, 1))
    assert tells(read(page_of(files, 3)), "It is first in line")


def test_request_at_maximum_0_is_in_line_for_the_pool_of_otherwise() -> None:
    pools = {
        "builders": a_pool(provider="desk", max=1),
        "none": a_pool(provider="desk", max=0, provides=["wants_none"]),
    }
    tags = {"wants_none": {"otherwise": {"after": "3h", "drop": True}}}
    requests = (
        a_request(id="1", required=("wants_none",), priority=-1),
        *(a_request(id=str(n)) for n in (2, 3)),
    )
    fleet = a_sim_fleet(pools=pools, tags=tags, durations={"any": "1h"})

    files = a_site(fleet, a_sim_world(requests=requests))

    assert tells(read(page_of(files, 1)), "1 build", "higher priority", "before it")
    assert tells(files["-/status/requests/index.html"], "2nd in line for pool builders")
    assert tells(read(page_of(files, 3)), "It is first in line")


@cache
def a_throttled_site() -> dict[str, str]:
    """Return pages of 6 requests for a pool of 4 machines, of which each run creates 1."""
    pools = {"builders": a_pool(provider="desk", max=4)}
    guards = {"throttle": {"create": {"count": 1}}}
    fleet = a_sim_fleet(pools=pools, guards=guards, durations={"any": "1h"})
    requests = (a_request(id=str(n), pending_since=ago(minutes=90 - n)) for n in range(1, 7))
    return a_site(fleet, a_sim_world(requests=(*requests,)))


@pytest.mark.parametrize("number", [2, 6])
def test_headline_counts_machines_of_later_runs(number: int) -> None:
    files = a_throttled_site()

    for page in (page_of(files, number), files["index.html"], files["-/status/queue/index.html"]):
        assert tells(page, "1 soon, 3 by 08:31")
    assert tells(page_of(files, number), "09:01" if number == 6 else "08:11")


def test_suggestion_has_the_gain_of_each_build() -> None:
    files = a_throttled_site()

    by_throttle = "raise guards.throttle.create.count from 1 to"
    assert tells(read(page_of(files, 2)), by_throttle, "starts about 08:01, 10 min earlier")
    assert tells(read(page_of(files, 4)), by_throttle, "2: starts about 08:11, 20 min earlier")


def a_quick_page(takes: str) -> str:
    """Return the page of the second of 2 short builds; a pool and a throttle permit 1 machine."""
    throttle = {"guards": {"throttle": {"create": {"count": 1}}}}
    pools = {"builders": a_pool(provider="desk", max=1)}
    fleet = a_sim_fleet(pools=pools, durations={"any": takes}, **throttle)
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in (1, 2)))
    return read(page_of(a_site(fleet, world), 2))


BY_POOL = "raise pools.builders.workers.max from 1 to 2"
BY_THROTTLE = "raise guards.throttle.create.count from 1 to 2"


def test_page_has_two_edits_that_only_help_together() -> None:
    page = a_quick_page(takes="1m")

    assert tells(page, f"{BY_POOL}, and {BY_THROTTLE}: starts about 08:01, 1 min earlier")


def test_page_names_the_checked_edits_when_none_helps() -> None:
    page = a_quick_page(takes="30s")

    assert tells(page, "None", "sooner", f"{BY_POOL}; {BY_POOL}, and {BY_THROTTLE}.")
    assert "earlier" not in page


@pytest.fixture(scope="module")
def assumed() -> dict[str, str]:
    """Return pages of three builds that wait for work of an unknown user and duration."""
    fleet = a_large_fleet(durations={"sbuild": [{"match": "chromium", "takes": "10h"}]})
    work = {"task": "sbuild", "required": ("large",)}
    worker = a_worker(busy=True, provides=("large",), running="88", work=work)
    return a_site(fleet, a_sim_world(worker, requests=tuple(chromium(n) for n in (1, 2, 3))))


def test_times_that_assume_a_duration_name_the_work(assumed: dict[str, str]) -> None:
    first, later = (read(page_of(assumed, n)) for n in (1, 2))
    assert tells(first, f"request 88 on {WORKER} is unknown", "it takes 1h")
    assert tells(later, "chromium debian/1", f"assumed: request 88 on {WORKER}, which runs first")
    assert tells(later, "ends at 08:55")
    details = page_of(assumed, 1).partition("For operators")[2]
    assert tells(details, "assumed: 1h for work", "durations")
    assert ("Or cancel" in first, "Or cancel chromium debian/1 if" in later) == (False, True)
    assert "18:55, assumed<" in assumed["-/status/requests/index.html"]


def test_contact_is_a_link_only_when_it_is_an_address() -> None:
    hostile = "javascript:alert(1)//@x"
    fleet = a_large_fleet(contact=hostile)

    page = page_of(a_site(fleet, a_sim_world(requests=(chromium(1), chromium(2)))), 2)

    assert "javascript:alert(1)//@x" in page
    assert 'href="javascript' not in page


def test_status_json_has_contacts_and_reason() -> None:
    fleet = a_large_fleet()

    files = a_site(fleet, a_sim_world(requests=(chromium(1),)))

    assert all(text in files["status.json"] for text in (ADMINS, PORTERS, REASON))


def test_every_build_is_found_by_package_user_and_id() -> None:
    work = {"task": "sbuild", "package": "zlib", "requester": "ben", "expected_seconds": 3600}
    worker = a_worker(busy=True, running="9", work={**work, "started_at": ago(minutes=10)})
    pools = {"builders": a_pool(provider="desk", max=1)}
    world = a_sim_world(worker, requests=(chromium(2), chromium(1)))

    files = a_site(a_large_fleet(pools=pools, powerful=[]), world)

    lists = {name: files[f"-/status/requests/{name}index.html"] for name in ("", "~user/", "~id/")}
    rows = {name: re.findall(r">\S+ ([^ <]+)</a></th>", text) for name, text in lists.items()}
    assert rows == {
        "": ["debian/1", "debian/2", "9"],
        "~user/": ["debian/1", "debian/2", "9"],
        "~id/": ["9", "debian/1", "debian/2"],
    }
    assert tells(re.sub(r"<[^>]+>", " ", lists[""]), "zlib", "9", "ben", "08:50", worker.name)


@pytest.mark.parametrize("contact", [None, ADMINS])
def test_overview_reports_a_missing_contact(contact: str | None) -> None:
    page = a_site(a_large_fleet(contact=contact), a_sim_world(requests=(chromium(1),)))[
        "index.html"
    ]

    assert tells(page, "no", "contact") == (contact is None)


def test_commands_are_only_in_parts_for_operators() -> None:
    files = a_throttled_site()

    assert all(
        "fleet explain" not in read(page) for name, page in files.items() if ".html" in name
    )
    assert tells(page_of(files, 6), "fleet explain request debian/6")


def test_overview_begins_with_the_way_to_a_build() -> None:
    page = a_site(a_sim_fleet(), a_sim_world())["index.html"]

    link = page.index('requests/index.html">find it by id or package</a>')
    assert link < page.index('<ul class="figures">')


def test_late_requests_are_counted_by_their_prospect() -> None:
    fleet = a_large_fleet(powerful=[], pools={"builders": a_pool(provider="desk", max=1)})
    since = ago(hours=3)
    requests = tuple(a_request(id=str(n), pending_since=since) for n in (1, 2))
    never = a_request(id="3", pending_since=since, required=("gpu",))

    page = a_site(fleet, a_sim_world(requests=(*requests, never)))["index.html"]

    assert tells(
        re.sub(r"<[^>]+>", " ", page), "3 requests: 1 starts within 1 h, 1 later, 1 never"
    )
