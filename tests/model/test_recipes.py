"""What a recipe means: the role's variables, and the digest that says whether to bake again."""

import pytest
import yaml

from fleet.images.role import PREFIX, role_variables
from fleet.model.images import recipe_digest
from fleet.schema.model import ImageRecipe
from tests.rigs.process import ROOT

PLAIN = {"suite": "trixie", "architecture": "amd64"}
SOURCE = "Types: deb\nURIs: https://deb.example.org/debusine\nSuites: trixie\nComponents: main\n"
WHOLE = {
    **PLAIN,
    "source": SOURCE,
    "enable_backends": ["unshare", "incus"],
    "enable_tasks": ["sbuild", "mmdebstrap"],
    "packages": ["ccache", "btop"],
    "worker_version": "0.16.2",
    "swap": "4GiB",
    "api_url": "https://debusine.example.org",
}
ROLE = ROOT / "ansible" / "roles" / "debusine_worker"


def recipe(**keys: object) -> ImageRecipe:
    return ImageRecipe.model_validate({**PLAIN, **keys})


def test_each_key_of_a_recipe_becomes_a_variable_of_the_role() -> None:
    assert role_variables(ImageRecipe.model_validate(WHOLE)) == {
        "debusine_worker_source": SOURCE.strip(),
        "debusine_worker_enable_backends": ["incus", "unshare"],
        "debusine_worker_enable_tasks": ["mmdebstrap", "sbuild"],
        "debusine_worker_extra_packages": ["btop", "ccache"],
        "debusine_worker_version": "0.16.2",
        "debusine_worker_swap_mebibytes": 4096,
        "debusine_worker_api_url": "https://debusine.example.org/api",
        "debusine_worker_start": False,
    }


def test_empty_recipe_has_role_defaults_without_service_start() -> None:
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    variables = role_variables(recipe())

    assert variables == {**{name: defaults[name] for name in variables}, PREFIX + "start": False}


@pytest.mark.parametrize(
    "written", ["https://d.example", "https://d.example/", "https://d.example/api"]
)
def test_server_url_may_include_api_path(written: str) -> None:
    variables = role_variables(recipe(api_url=written))

    assert variables["debusine_worker_api_url"] == "https://d.example/api"


@pytest.mark.parametrize(("key", "value"), [item for item in WHOLE.items() if item[0] != "suite"])
def test_recipe_digest_changes_with_every_input_of_image(key: str, value: object) -> None:
    if key == "architecture":
        value = "arm64"

    assert recipe_digest(recipe(**{key: value})) != recipe_digest(recipe())


@pytest.mark.parametrize(
    "keys",
    [
        {"provides": ["worker:executor:unshare"]},
        {"rebuild": {"every": "7d"}},
        {"publish": ["hetzner"]},
        {"enable_backends": ["unshare"]},
        {"enable_tasks": ["sbuild", "autopkgtest"]},
        {"source": None, "packages": [], "swap": None},
    ],
)
def test_recipe_digest_ignores_keys_outside_the_image(keys: dict[str, object]) -> None:
    assert recipe_digest(recipe(**keys)) == recipe_digest(recipe())


def test_recipe_digest_ignores_spelling_of_source_and_url() -> None:
    one = recipe(source=SOURCE, api_url="https://d.example")
    other = recipe(source=SOURCE + "\n", api_url="https://d.example/api/")

    assert recipe_digest(one) == recipe_digest(other)
