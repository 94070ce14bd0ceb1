"""`fleet import resalloc`: every option of a pools.yaml, and what each becomes."""

import re

import pytest

from fleet.migrate.from_resalloc import OPTIONS, import_resalloc
from fleet.migrate.reading import Imported
from fleet.schema.model import Fleet, HooksProvider, Pool
from tests.migrate.production import pools_yaml
from tests.migrate.reading import fleet_of, wrong

COMMANDS = "  cmd_new: new\n  cmd_delete: delete\n  cmd_list: list\n"


def imported(options: str = "") -> Imported:
    return import_resalloc("pools.yaml", f"p:\n{COMMANDS}{options}".encode(), "demo")


def _hooks(fleet: Fleet, name: str = "p") -> HooksProvider:
    pool = fleet.pools[name]
    assert isinstance(pool, Pool)
    hooks = fleet.providers[pool.provider]
    assert isinstance(hooks, HooksProvider)
    return hooks


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_is_silently_dropped(option: str) -> None:
    values = {"tags": "[t]", "tags_on_demand": "[t]", "named_counters": "[n]"}
    number = option.startswith(("max", "start", "live", "reuse"))
    value = values.get(option, "7" if number else "what-is-written")
    options = {"cmd_new": "new", "cmd_delete": "delete"} | {option: value}
    text = "p: {" + ", ".join(f"{key}: {written}" for key, written in options.items()) + "}"
    found = import_resalloc("pools.yaml", text.encode(), "demo")

    told = str(found.text) + str([change.what for change in found.changes])
    assert value.strip("[]") in told


def pool(options: str) -> str:
    return f"p:\n{COMMANDS}  {options}\n"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (pool('max: "4"'), "5:8: wrong-type"),
        (pool("max: -1"), "5:8: wrong-value"),
        (pool("max: 1000000"), "5:8: wrong-value"),
        (pool("tags: x"), "5:9: wrong-type"),
        (pool("tags: [a b]"), "5:10: wrong-value"),
        (pool("description: [x]"), "5:16: wrong-type"),
        (pool("named_counters: [1]"), "5:20: wrong-type"),
        (pool(f"cmd_release: {'x' * 65_537}"), "5:16: wrong-value"),
        ("p: {cmd_new: x}", "1:4: missing-key"),
        ("[]", "1:1: wrong-type"),
        ("", "1:1: wrong-type"),
        ("p: 1", "1:4: wrong-type"),
        ("p: {a: 1", "1:9: invalid-yaml"),
    ],
)
def test_invalid_value_or_file_is_refused_with_place(text: str, finding: str) -> None:
    (found, *_) = wrong(import_resalloc("pools.yaml", text.encode(), "demo"))

    assert found.startswith(f"pools.yaml:{finding}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{{% for n in range(3) %}}\np{{{{ n }}}}:\n{COMMANDS}{{% endfor %}}\n", "1:1"),
        (f"p-{{{{ n }}}}:\n{COMMANDS}", "1:1"),
        (f"p:\n{COMMANDS}  max: {{{{ most }}}}\n", "5:8"),
        (f'p:\n{COMMANDS}  max: "{{{{ most }}}}"\n', "5:8"),
        (f"# {{% if devel %}}\np:\n{COMMANDS}", "1:3"),
    ],
)
def test_jinja_template_is_refused_with_hint(text: str, place: str) -> None:
    found = import_resalloc("pools.yaml", text.encode(), "demo")

    assert wrong(found) == [f"pools.yaml:{place}: jinja-template"]
    assert "/etc/resallocserver/pools.yaml" in found.findings[0].hint


def test_templates_of_pools_keep_their_meaning() -> None:
    described = imported('  description: "x\\n\\nfleet: other\\u2028pools: {} \\x07"\n')
    assert fleet_of(described).fleet == "demo"  # any text of it is a comment
    text = pools_yaml()
    found = import_resalloc("pools.yaml", text.encode(), "demo", with_scripts=True)

    whole = fleet_of(found)
    assert len(whole.pools) == 26
    for alone in (each for each in re.split(r"\n(?=\w)", text) if each):
        one = fleet_of(import_resalloc("pools.yaml", alone.encode(), "demo", with_scripts=True))
        (name,) = one.pools
        assert whole.pools[name] == one.pools[name]
        assert _hooks(whole, name) == _hooks(one, name)


def test_values_shared_by_pools_are_written_once() -> None:
    found = import_resalloc("pools.yaml", pools_yaml().encode(), "demo", with_scripts=True)

    written = str(found.text)
    assert len(written) < 15_000  # written out: 31,565
    for once in ("invented", "timeouts:", "mode: pause", "resalloc-check-vm-ip", "interface:"):
        assert written.replace("[invented-machine]", "").count(once) == 1 + (once == "invented")
    assert "  copr-hv-ppc64le:\n    extends: [copr-hv]\n" in written
