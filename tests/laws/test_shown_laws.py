"""Laws of what is printed: nothing that a plan holds moves the cursor or forges a line."""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.model.plan import Plan
from fleet.report.json import plan_to_json, plan_to_terraform_report, status_to_json
from fleet.report.plan import plan_to_markdown
from fleet.report.terminal import clean
from fleet.site.files import Shown, site
from tests.rigs.golden_plans import FOLDERS, plan_of
from tests.rigs.shown import plan_to_text, status_to_text, sweep_to_text

RENDERERS: Mapping[str, Callable[[Plan], str]] = {
    "text": lambda plan: plan_to_text(plan, colour=False),
    "status": lambda plan: status_to_text(plan, colour=False),
    "sweep": lambda plan: sweep_to_text(plan, colour=False),
    "markdown": plan_to_markdown,
    "json": plan_to_json,
    "status as json": status_to_json,
    "terraform": plan_to_terraform_report,
    "pages": lambda plan: "\n".join(site(Shown(plan)).values()),
}
HOSTILE = st.text(
    st.sampled_from("\x1b\x07\x9b\u200b\u202e\u2060\u2066\u2028\x85\r\n\x00"),
    min_size=1,
    max_size=3,
)
_HIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")
Where = tuple[str | int, ...]


def strings(value: object, at: Where = ()) -> Iterator[Where]:
    """Yield where the strings of a document are."""
    if isinstance(value, str):
        yield at
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in parts:
        yield from strings(each, (*at, key))


def having(plan: str, at: Where, end: str) -> Plan | None:
    """Return a plan with this end of one of its strings; None where such a plan cannot be."""
    document = json.loads(plan)
    within = document
    for key in at[:-1]:
        within = within[key]
    within[at[-1]] += end
    try:
        return Plan.model_validate_json(json.dumps(document))
    except ValidationError:
        return None


@given(st.data())
def test_strings_of_a_plan_are_shown_only_as_text(data: st.DataObject) -> None:
    plan = plan_to_json(plan_of(data.draw(st.sampled_from(FOLDERS))))
    at = data.draw(st.sampled_from(list(strings(json.loads(plan)))))
    end = data.draw(HOSTILE)
    # As wide as what is shown for the end, since text is wrapped at a width.
    hostile, tame = having(plan, at, end), having(plan, at, "x" * len(clean(end)))

    if hostile is not None and tame is not None:
        for name, render in RENDERERS.items():
            shown = render(hostile)
            assert not _HIDDEN.search(shown), name
            assert len(shown.splitlines()) == len(render(tame).splitlines()), name
