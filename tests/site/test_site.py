"""What the status pages show, link and never do."""

import json
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urlsplit

import pytest

from fleet.explain.objects import facts_of_workers
from fleet.explain.request import WaitingExplanations, WaitingGroup, WaitingRequest
from fleet.explain.values import Explanation
from fleet.model.facts import Work
from fleet.model.log import LogEntry
from fleet.model.plan import Notice, RefusedTag
from fleet.reconcile import reconcile
from fleet.report.json import status_to_json
from fleet.site.files import Shown, site
from tests.builders import (
    NOW,
    a_create,
    a_fleet,
    a_listing,
    a_machine,
    a_plan,
    a_pool_verdict,
    a_reading,
    a_signature,
    a_worker,
    a_worker_verdict,
    a_world,
    ago,
)
from tests.builders.explaining import some_waits
from tests.builders.past import a_past_plan, a_shown_past
from tests.builders.sentences import tells
from tests.builders.telling import a_blind_plan, a_half_blind_plan, a_lively_plan

_VOID = frozenset({"br", "meta", "link", "rect"})
HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J\u202e"


class SitePage(HTMLParser):
    """Collects elements and links of a page, and whether every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.attributes: list[str] = []
        self.broken: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.broken += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and (not self._open or self._open.pop() != tag):
            self.broken.append(tag)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return site(a_shown_past())


@pytest.fixture(scope="module")
def pages(files: dict[str, str]) -> dict[str, SitePage]:
    return {path: SitePage(text) for path, text in files.items() if path.endswith(".html")}


def test_every_link_is_relative_and_leads_to_a_file(
    files: dict[str, str], pages: dict[str, SitePage]
) -> None:
    targets = {
        (path, link): normpath(join(dirname(path), unquote(urlsplit(link).path)))
        for path, page in pages.items()
        for link in page.links
        if not link.startswith("#")
    }

    assert {key: target for key, target in targets.items() if target not in files} == {}


def test_every_page_is_well_formed(pages: dict[str, SitePage]) -> None:
    assert {path: page.broken for path, page in pages.items() if page.broken} == {}


def test_pages_have_no_script_style_or_handler(pages: dict[str, SitePage]) -> None:
    tags = {tag for page in pages.values() for tag in page.tags}
    attributes = {name for page in pages.values() for name in page.attributes}

    assert tags & {"script", "style", "iframe", "object", "embed", "form", "img"} == set()
    assert {name for name in attributes if name.startswith("on") or name == "style"} == set()


def test_every_page_forbids_scripts(files: dict[str, str]) -> None:
    policy = "default-src 'none'; style-src 'self' file:; base-uri 'none'; form-action 'none'"

    without = [path for path in files if path.endswith(".html") and policy not in files[path]]

    assert without == []


def test_every_page_has_one_heading_one_main_and_a_viewport(pages: dict[str, SitePage]) -> None:
    counts = {(page.tags.count("h1"), page.tags.count("main")) for page in pages.values()}

    assert counts == {(1, 1)}


def test_workers_show_their_pool_and_link_to_their_page(files: dict[str, str]) -> None:
    page = files["-/status/workers/index.html"]

    assert '<a href="../../../-/status/workers/debian-ci-powerful-0001/index.html">' in page
    assert '<a href="../../../-/status/pools/powerful/index.html">powerful</a>' in page


def test_inactive_workers_are_folded_below_the_list(files: dict[str, str]) -> None:
    page = files["-/status/workers/index.html"]

    holding = [path for path, text in files.items() if "debian-ci-builders-0009" in text]

    assert holding == ["-/status/workers/index.html"]
    assert page.index("<summary>1 inactive worker<") < page.index("debian-ci-builders-0009")


def test_deleted_workers_are_listed_the_latest_first_with_the_reason() -> None:
    def entry(kind: str, hours: int, machine: str, outcome: str = "done") -> LogEntry:
        because = f"{machine} was idle"
        return LogEntry(
            at=ago(hours=hours), kind=kind, machine=machine, outcome=outcome, because=because
        )

    log = (
        entry("create", 9, "w-1"),
        entry("delete", 5, "w-0"),
        entry("delete", 4, "w-1"),
        entry("delete", 3, "w-2", "failed"),
    )

    page = site(Shown(a_plan(), log=log))["-/status/workers/index.html"]

    rows = re.findall(r"<tr><th.*?</tr>", page.partition("<tbody>")[2], re.DOTALL)
    assert len(rows) == 2
    assert [re.findall(r">([^<]+)</t[dh]>", each)[:4] for each in rows] == [
        ["2026-11-21 04:00 UTC", "w-1", "2026-11-20 23:00 UTC", "5 h"],
        ["2026-11-21 03:00 UTC", "w-0", "unknown", "unknown"],
    ]
    assert "w-1 was idle" in rows[0]


def test_broken_workers_are_first_with_reason() -> None:
    broken = a_worker_verdict(worker="w-2", state="disconnected", because="not seen for 3 h")

    page = site(Shown(a_plan(workers=(a_worker_verdict(worker="w-1"), broken))))

    first = re.search(r"<tbody.*?</tbody>", page["-/status/workers/index.html"], re.DOTALL)
    assert first is not None
    assert {word in first[0] for word in (">w-2<", ">disconnected<", "not seen for 3 h")} == {True}
    assert "w-1" not in first[0]


def test_long_list_of_workers_has_several_pages() -> None:
    names = [f"w-{number:04}" for number in range(600)]
    workers = tuple(
        a_worker_verdict(worker=name, pool=f"p-{number // 200}")
        for number, name in enumerate(names)
    )

    files = site(Shown(a_plan(workers=workers)))

    sheets = [f"-/status/workers/{folder}index.html" for folder in ("", "~2/")]
    rows = [re.findall(r'<th scope="row"><a [^>]*>([^<]+)</a>', files[path]) for path in sheets]
    assert [len(part) for part in rows] == [500, 100]
    assert [*rows[0], *rows[1]] == names
    for path in sheets:
        assert re.findall(r">(\d: p-[^<]+)<", files[path]) == ["1: p-0 to p-2", "2: p-2"]


def test_worker_page_describes_its_pool(files: dict[str, str]) -> None:
    page = files["-/status/workers/debian-ci-powerful-0001/index.html"]

    assert "debian/10217" in page
    assert "19 h 5 min" in page
    assert tells(page, "limit", "1 machine")
    assert "<td>hetzner</td>" in page


def test_request_is_found_by_its_id(files: dict[str, str]) -> None:
    assert '<th scope="row">debian/10349</th>' in files["-/status/requests/index.html"]


def test_status_json_equals_output_of_command(files: dict[str, str]) -> None:
    assert files["status.json"] == status_to_json(a_past_plan())


def test_machine_inputs_are_not_on_pages() -> None:
    create = a_create()
    secret = create.inputs.altered(settings={"user_data": "token=s3cret"})
    plan = a_plan(pools=(a_pool_verdict(),), actions=(create.altered(inputs=secret),))

    assert not any("s3cret" in text for text in site(Shown(plan)).values())


def test_hostile_names_stay_inside_the_site() -> None:
    plan = a_plan(workers=(a_worker_verdict(worker="../../../../x"),))

    assert "-/status/workers/..%2F..%2F..%2F..%2Fx/index.html" in site(Shown(plan))


def test_pool_and_worker_page_have_the_reason_of_the_pool_once() -> None:
    pool = a_pool_verdict(because="one stays ready")
    files = site(Shown(a_plan(pools=(pool,), workers=(a_worker_verdict(),))))

    for page in ("pools/builders", "workers/debian-ci-builders-0001"):
        assert files[f"-/status/{page}/index.html"].count("one stays ready") == 1


def test_unread_figures_are_unknown_on_each_page() -> None:
    files = site(Shown(a_blind_plan()))

    overview = files["index.html"]
    figure = '<strong class="words">unknown</strong> <span>'
    for of in (("workers", "builders", "legacy"), ("requests", "queue debian"), ("EUR",)):
        assert tells(overview, figure, *of)
    unknown = r'<p><span class="red">[^<]*{}[^<]*unknown'
    for page in (overview, files["-/status/queue/index.html"]):
        assert re.search(unknown.format("queue debian"), page)
    assert re.search(unknown.format("builders, legacy"), files["-/status/workers/index.html"])
    assert re.search(unknown.format(""), files["-/status/pools/builders/index.html"])
    for text in files.values():
        assert not re.search(r"No requests|No workers|>0<|0 busy", text)
    priceless = [path for path, text in files.items() if "0.00 EUR/h" in text]
    assert priceless == ["-/status/pools/legacy/index.html"]


def test_worker_without_a_registry_has_an_unknown_state() -> None:
    page = site(Shown(a_half_blind_plan()))["-/status/workers/debian-ci-rest-0001/index.html"]

    assert "State</th><td>unknown</td>" in page
    assert "Runs</th><td>unknown</td>" in page
    assert "Registered at</th><td>unknown</td>" in page
    assert 'data-label="Busy" class="number"><span class="yellow">unknown</span>' in page
    assert 'data-label="EUR/h" class="number fold">unknown<' in page


def test_denied_tag_is_shown_with_each_waiting_request() -> None:
    because = f"user {HOSTILE} may not ask for power"
    refused = RefusedTag(tag="power", who=HOSTILE, because=because)
    plan = a_plan(pools=(a_pool_verdict(),), signatures=(a_signature(refused=(refused,)),))

    files = site(Shown(plan, waits=some_waits(plan)))

    for path in ("-/status/queue/index.html", "-/status/pools/builders/index.html"):
        page = SitePage(files[path])
        assert ": user &lt;script&gt;" in files[path]
        assert not page.broken
        assert "script" not in page.tags
    assert json.loads(files["status.json"])["waiting"][0]["refused"] == [because]


def a_request_site(*, package: str = "", **explained: Explanation) -> dict[str, str]:
    """Return the pages of waiting requests with these explanations, by the number of each."""
    ids = tuple(f"debian/{number.removeprefix('n')}" for number in explained)
    signature = a_signature(requests=ids, count=len(ids))
    rows = tuple(WaitingRequest(key, ago(hours=2), None, package) for key in ids)
    group = WaitingGroup(signature, "no machine", False, 3600, rows)
    waits = WaitingExplanations((group,), dict(zip(ids, explained.values(), strict=True)))
    pages = {ids[0]: "https://debusine.example/debian/builds/work-request/1/"}
    return site(Shown(a_plan(signatures=(signature,)), waits=waits, queue_pages=pages))


def an_answer(name: str, **overrides: object) -> Explanation:
    return Explanation.model_validate(
        {"kind": "request", "name": name, "headline": f"request {name} waits"} | overrides
    )


def test_every_label_of_a_section_exists(files: dict[str, str]) -> None:
    for text in files.values():
        ids = re.findall(r' id="([^"]+)"', text)
        assert {*re.findall(r'<section aria-labelledby="([^"]+)"', text)} <= {*ids}


def test_request_page_names_the_package_and_links_to_its_queue() -> None:
    files = a_request_site(package="chromium", n1=an_answer("debian/1"), n2=an_answer("debian/2"))

    own, other = (files[f"-/status/requests/debian%2F{n}/index.html"] for n in (1, 2))
    assert "<h1>chromium<small> debian/1</small></h1>" in own
    assert "<title>chromium debian/1 " in own
    assert '<a href="https://debusine.example/debian/builds/work-request/1/">debian/1</a>' in own
    assert "https://" not in other
    assert not SitePage(own).broken


def test_request_page_folds_the_side_effects_of_a_suggestion() -> None:
    path = ("pools", "big", "workers", "max")
    yaml = "pools: {big: {workers: {max: 2}}}"
    change = {"path": path, "old": "1", "new": "2", "yaml": yaml}
    brief, sentence = "raise the max: starts about 08:01", "raise the max; 1 request would wait"
    raised = {"sentence": sentence, "brief": brief, "changes": (change,)}
    answer = an_answer("debian/1", suggestions=(raised,), expected=ago(hours=-3))

    page = a_request_site(n1=answer)["-/status/requests/debian%2F1/index.html"]

    assert [page.count(text) for text in (brief, sentence, yaml)] == [1, 1, 1]
    assert page.index(brief) < page.index("<details>") < page.index(sentence)
    assert "2026-11-21 11:00 UTC" in page


def test_unserved_requests_precede_pools_and_notices_follow() -> None:
    plan = a_lively_plan()
    said = "allow-list rule `a` expires in 3 days"
    notice = Notice(kind="allow-list", key="a", path=(), until=NOW.date(), said=said)
    plan = plan.altered(notices=(notice,))

    page = unescape(site(Shown(plan, waits=some_waits(plan)))["index.html"])

    names = ("attention", "unserved", "pools", "served")
    order = [page.index(f'<h2 id="{name}">') for name in names]
    order.append(page.index("allow-list rule <code>a</code> expires in 3 days"))
    assert order == sorted(order)


def test_many_requests_have_several_pages() -> None:
    ids = tuple(f"debian/{number}" for number in range(2100))

    files = site(Shown(a_plan(signatures=(a_signature(requests=ids, count=2100),))))

    sheets = [
        f"-/status/requests/{folder}index.html"
        for folder in ("", *(f"~{n}/" for n in range(2, 6)))
    ]
    rows = [re.findall(r'<th scope="row">([^<]+)<', files[path]) for path in sheets]
    assert tuple(each for part in rows for each in part) == ids
    assert len(rows[-1]) == 100
    assert ">5: debian/2000 to debian/2099<" in files[sheets[0]]


@pytest.mark.slow
def test_pages_of_a_large_fleet_are_below_a_megabyte() -> None:
    workers = tuple(
        a_worker_verdict(worker=f"debian-ci-pool-{n % 40:03}-{n:05}", pool=f"pool-{n % 40:03}")
        for n in range(5_000)
    )
    signatures, groups = [], []
    for number in range(2_000):
        ids = tuple(f"debian/{100_000 + 10 * number + n}" for n in range(10))
        signature = a_signature(id=str(number), requests=ids, count=10)
        signatures.append(signature)
        rows = tuple(WaitingRequest(key, ago(minutes=number), None) for key in ids)
        groups.append(WaitingGroup(signature, "no pool " * 100, False, 3600, rows))
    explained = {
        group.requests[0].key: Explanation(
            kind="request", name=group.requests[0].key, headline=group.verdict
        )
        for group in groups[:200]
    }
    plan = a_plan(
        workers=workers,
        pools=tuple(a_pool_verdict(pool=f"pool-{n:03}") for n in range(40)),
        signatures=tuple(signatures),
    )

    files = site(Shown(plan, waits=WaitingExplanations(tuple(groups), explained)))

    sizes = {path: len(text.encode()) for path, text in files.items() if path.endswith(".html")}
    assert {path: size for path, size in sizes.items() if size >= 1_000_000} == {}
    assert len(sizes) > 5_200


@pytest.mark.slow
def test_templates_are_loaded_only_for_a_site() -> None:
    asked = "import sys, fleet.site.files; print('jinja2' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"


class _Facts(HTMLParser):
    """Collects the terms of a page's lists, and what is said of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.told: dict[str, str] = {}
        self._in = ""
        self._term = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in ("th", "td"):
            self._in = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "th":
            # A worker's own list comes first; its pool's list repeats some terms.
            self._term = "" if data in self.told else data
            self.told[self._term or "again"] = ""
        elif self._in == "td":
            self.told[self._term or "again"] += data


def test_worker_page_shows_machine_and_work() -> None:
    name = "debian-ci-builders-0001"
    work = Work(task="sbuild", package="chromium", started_at=ago(minutes=30))
    world = a_world(
        queues={"debian": a_reading(workers=(a_worker(busy=True, work=work),))},
        providers={"hetzner": a_listing(a_machine(created_at=ago(minutes=90)))},
    )

    files = site(Shown(reconcile(a_fleet(), world), facts_of_workers(a_fleet(), world)))

    told = _Facts(files[f"-/status/workers/{name}/index.html"]).told
    assert {term: told[term] for term in _TERMS} == {
        "Package": "chromium (sbuild)",
        "Work began": "2026-11-21 07:30 UTC, 30 min ago",
        "Work has cost": "0.1114 EUR",
        "Size": "8 cores, 32 GiB memory, 240 GiB disk, amd64",
        "Location": "hetzner, fsn1",
        "Machine type": "ccx33",
        "Price": "0.2227 EUR/h",
        "Cost so far": "0.4454 EUR",
    }
    assert SitePage(files[f"-/status/workers/{name}/index.html"]).broken == []
    (listed,) = json.loads(files["status.json"])["workers"]
    assert (listed["package"], listed["cores"], listed["location"]) == ("chromium", 8, "fsn1")


_TERMS = (
    *("Package", "Work began", "Work has cost", "Size", "Location"),
    *("Machine type", "Price", "Cost so far"),
)
