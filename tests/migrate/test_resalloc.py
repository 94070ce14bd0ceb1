"""`fleet import resalloc`: every option of a pools.yaml, and what each becomes."""

import re

import pytest

from fleet.migrate.from_resalloc import OPTIONS, import_resalloc
from fleet.migrate.reading import Imported
from fleet.schema.model import Fleet, HooksProvider, Pool
from tests.builders.sentences import tells
from tests.migrate.production import pools_yaml
from tests.migrate.reading import fleet_of, said, wrong

COMMANDS = "  cmd_new: new\n  cmd_delete: delete\n  cmd_list: list\n"


def imported(options: str = "") -> Imported:
    return import_resalloc("pools.yaml", f"p:\n{COMMANDS}{options}".encode(), "demo")


def pool_of(options: str = "", name: str = "p") -> Pool:
    pool = fleet_of(imported(options)).pools[name]
    assert isinstance(pool, Pool)
    return pool


def hooks_of(options: str = "", name: str = "p") -> HooksProvider:
    return _hooks(fleet_of(imported(options)), name)


def _hooks(fleet: Fleet, name: str = "p") -> HooksProvider:
    pool = fleet.pools[name]
    assert isinstance(pool, Pool)
    hooks = fleet.providers[pool.provider]
    assert isinstance(hooks, HooksProvider)
    return hooks


def test_omitted_option_has_default_of_resalloc() -> None:
    pool = pool_of()

    assert (pool.workers.max, pool.workers.spare, pool.workers.max_starting) == (4, 2, 1)
    assert pool.reuse is None
    assert pool.provides == []


def test_hooks_are_run_by_a_shell() -> None:
    hooks = hooks_of('  cmd_livecheck: check "$RESALLOC_NAME" | grep ok\n')

    assert hooks.interface == "resalloc"
    assert hooks.new == ["sh", "-c", "new"]
    assert hooks.livecheck == ["sh", "-c", 'check "$RESALLOC_NAME" | grep ok']
    assert (hooks.livecheck_every, hooks.livecheck_failures) == (600, 3)


def test_livechecks_keep_their_times_and_counts() -> None:
    hooks = hooks_of("  cmd_livecheck: x\n  livecheck_period: 60\n  livecheck_attempts: 5\n")

    assert (hooks.livecheck_every, hooks.livecheck_failures) == (60, 5)


@pytest.mark.parametrize(
    ("option", "change"),
    [
        ("livecheck_attempts: 150", "livecheck_failures is 100"),
        ("livecheck_attempts: 0", "livecheck_failures is 1"),
        ("livecheck_period: 0", "livecheck_every is 1"),
    ],
)
def test_livecheck_setting_without_equivalent_is_named(option: str, change: str) -> None:
    found = imported(f"  cmd_livecheck: x\n  {option}\n")

    assert any(each.startswith(f"6: {option}: {change}") for each in said(found, "changed"))


def test_release_command_and_named_counters_are_kept() -> None:
    hooks = hooks_of("  cmd_release: release\n  named_counters: [ip, vlan]\n")

    assert hooks.release == ["sh", "-c", "release"]
    assert hooks.named_counters == ["ip", "vlan"]


def test_pool_keeps_its_name_and_ignores_exit_status_of_list() -> None:
    found = import_resalloc("pools.yaml", f"A_b:\n{COMMANDS}".encode(), "demo")

    hooks = _hooks(fleet_of(found), "A_b")
    assert hooks.new == ["sh", "-c", "new"]
    assert hooks.list_exit == "ignored"


def test_variables_that_commands_read_are_passed_through() -> None:
    text = "p:\n  cmd_new: X=1 new $X ${HOME} $RESALLOC_NAME $PATH\n  cmd_delete: d $HTTP_PROXY\n"

    found = import_resalloc("pools.yaml", text.encode(), "demo")

    assert _hooks(fleet_of(found), "p").environment == ["HOME", "HTTP_PROXY"]
    assert any("hooks.environment" in change for change in said(found, "to-do"))


def test_pool_without_list_command_gets_a_failing_one() -> None:
    found = import_resalloc("pools.yaml", b"p: {cmd_new: new, cmd_delete: delete}", "demo")

    assert _hooks(fleet_of(found)).list[-1].endswith("exit 1")
    assert any("cmd_list" in change for change in said(found, "to-do"))


def test_tags_are_imported_from_every_form() -> None:
    options = "  tags: [a, {name: b, priority: -40}, {name: c}]\n"

    pool = pool_of(options)
    assert pool.provides == ["a", "b", "c"]
    assert pool.priorities == {"b": -40}


def test_on_demand_tags_are_declared_once_for_every_pool() -> None:
    found = import_resalloc(
        "pools.yaml",
        f"p:\n{COMMANDS}  tags_on_demand: [x]\nq:\n{COMMANDS}  tags: [x]\n".encode(),
        "demo",
    )

    fleet = fleet_of(found)
    assert fleet.tags["x"].on_demand
    for pool in fleet.pools.values():
        assert isinstance(pool, Pool)
        assert pool.workers.spare == 0
    assert any(tells(change, "tag x", "pool q") for change in said(found, "changed"))


def test_reused_machine_keeps_its_times_and_counts() -> None:
    reuse = pool_of(
        "  reuse_opportunity_time: 90\n  reuse_max_count: 8\n  reuse_max_time: 1800\n"
    ).reuse

    assert reuse is not None
    assert (reuse.opportunity, reuse.max_uses, reuse.max_age) == (90, 9, 1800)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ("  tags_on_demand: [x]\n  max_prealloc: 2\n", "6: max_prealloc: 2"),
        ("  reuse_max_count: 8\n", "5: reuse_max_count: 8"),
        ("  reuse_max_time: 8\n", "5: reuse_max_time: 8"),
        ("  livecheck_period: 60\n", "5: livecheck_period: 60"),
        ("  livecheck_attempts: 2\n", "5: livecheck_attempts: 2"),
        ("  start_delay: 0\n", "5: start_delay: 0"),
        ("  max: 1\n  max_prealloc: 5\n", "6: max_prealloc: 5"),
        ("  max_strating: 5\n", "5: option max_strating: 5"),
        ("  tags:\n", "5: option tags "),
    ],
)
def test_option_without_effect_is_named(options: str, change: str) -> None:
    (found,) = said(imported(options), "never-acts")

    assert found.startswith(change)


def test_reuse_time_of_zero_disables_reuse_and_is_reported() -> None:
    found = imported("  reuse_opportunity_time: 9\n  reuse_max_time: 0\n")

    assert any("reuse_max_time: 0" in line for line in said(found, "changed"))
    assert "reuse:" not in str(found.text)


@pytest.mark.parametrize(
    "options",
    [
        "  start_delay: 30\n",
        '  name_pattern: "{id}"\n',
    ],
)
def test_option_without_equivalent_is_listed_and_commented(options: str) -> None:
    found = imported(options)

    assert len(said(found, "no-equivalent")) == 1
    assert "    # no equivalent: " in str(found.text)
    fleet_of(found)


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


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ('  max: "4"\n', "pools.yaml:5:8: wrong-type"),
        ("  max: -1\n", "pools.yaml:5:8: wrong-value"),
        (
            "  max: 1000000\n",
            "pools.yaml:5:8: wrong-value",
        ),
        ("  tags: x\n", "pools.yaml:5:9: wrong-type"),
        (
            "  tags: [a b]\n",
            "pools.yaml:5:10: wrong-value",
        ),
        (
            "  description: [x]\n",
            "pools.yaml:5:16: wrong-type",
        ),
        (
            "  named_counters: [1]\n",
            "pools.yaml:5:20: wrong-type",
        ),
        (
            f"  cmd_release: {'x' * 65_537}\n",
            "pools.yaml:5:16: wrong-value",
        ),
    ],
)
def test_invalid_value_is_refused_with_place(options: str, finding: str) -> None:
    assert wrong(imported(options)) == [finding]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("p: {cmd_new: x}", "pools.yaml:1:4: missing-key"),
        ("[]", "pools.yaml:1:1: wrong-type"),
        ("", "pools.yaml:1:1: wrong-type"),
        ("p: 1", "pools.yaml:1:4: wrong-type"),
        ("p: {a: 1", "pools.yaml:1:9: invalid-yaml"),
    ],
)
def test_file_that_is_not_pools_yaml_is_refused(text: str, finding: str) -> None:
    (found, *_) = wrong(import_resalloc("pools.yaml", text.encode(), "demo"))

    assert found.startswith(finding)


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


def test_braces_in_a_command_are_kept() -> None:
    found = import_resalloc(
        "pools.yaml",
        b"p:\n  cmd_new: docker inspect -f '{{.Name}}'\n  cmd_delete: x\n  cmd_list: x\n",
        "demo",
    )

    fleet_of(found)


def test_invalid_names_are_changed_and_stay_unique() -> None:
    text = "".join(f"{name}:\n{COMMANDS}" for name in ("A_b", "a.b", "4x", "x" * 60))
    found = import_resalloc("pools.yaml", text.encode(), "demo")

    assert list(fleet_of(found).pools) == ["A_b", "a-b", "p-4x", "x" * 31]
    assert len(said(found, "renamed")) == 3


def test_description_with_any_text_is_a_comment() -> None:
    found = imported('  description: "x\\n\\nfleet: other\\u2028pools: {} \\x07"\n')

    assert fleet_of(found).fleet == "demo"


def test_secret_is_not_imported() -> None:
    found = imported("  cmd_release: x\n  token: aVerySecretToken0123456789\n")

    assert any("inline-secret" in each for each in wrong(found))


def test_truncated_name_is_reported() -> None:
    text = f"copr.hv.ppc64le.osuosl.production.01:\n{COMMANDS}short.name:\n{COMMANDS}"

    found = said(import_resalloc("pools.yaml", text.encode(), "demo"), "renamed")

    assert ["31" in each for each in found] == [True, False]


def test_templates_of_pools_keep_their_meaning() -> None:
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


def test_dissimilar_pools_get_no_template() -> None:
    text = "p: {cmd_new: a, cmd_delete: b, cmd_list: c}\n"

    found = import_resalloc("pools.yaml", text.encode(), "demo")

    assert str(found.text).count("extends: [invented-machine]") == 1


def test_empty_command_counts_as_missing() -> None:
    found = import_resalloc("pools.yaml", b"p: {cmd_new: , cmd_delete: x, cmd_list: x}", "demo")

    assert wrong(found) == ["pools.yaml:1:14: missing-key"]
    assert tells(found.findings[0].message, "cmd_new", "p")


def test_all_errors_of_a_file_are_reported_together() -> None:
    found = imported("  max: -1\n  tags: [a, {name: b, weight: 1}]\n  livecheck_period: x\n")

    assert wrong(found) == [
        "pools.yaml:5:8: wrong-value",
        "pools.yaml:6:23: unknown-key",
        "pools.yaml:7:21: wrong-type",
    ]
