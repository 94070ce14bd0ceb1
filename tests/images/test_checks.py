"""What is wrong with a built image, and what to do about it: the cases of checks.txt.

A case is a title, what is done to an image that is fit for use, as methods of `ImageTree`, or keys
of its `recipe`, and the problems that are found; `nothing` is none. `~root` is the home of root.
"""

import re
import shlex
from pathlib import Path

import yaml

from tests.builders.image_trees import ImageTree, a_recipe
from tests.rigs.golden import Golden

CASES = Path(__file__).with_name("checks.txt")
HOME = "/root"


def problems_after(steps: str, top: Path) -> list[str]:
    """Return the problems of an image, in an empty folder, after these steps."""
    image, recipe = ImageTree(top), "{}"
    for step in steps.strip().splitlines():
        verb, *words = shlex.split(step.replace("~root", HOME))
        if verb == "recipe":
            recipe = step.partition("recipe ")[2]
        elif verb == "folder":
            path, owner, mode = words
            image.folder(path, owner=int(owner), mode=int(mode, 8))
        elif verb == "put":
            path, text, *modes = words
            image.put(path, text.replace("\\n", "\n"), mode=int([*modes, "644"][0], 8))
        else:
            getattr(image, verb)(*words)
    return image.problems(a_recipe(**yaml.safe_load(recipe)))


def test_problems_of_an_image_equal_its_cases(golden: Golden, tmp_path: Path) -> None:
    head, *cases = re.split(r"\n(?=[^\s#])", CASES.read_text("utf-8"))
    now = [head]
    for number, case in enumerate(cases):
        title, _, rest = case.partition("\n")
        steps = rest.partition("  ->")[0]
        found = "\n     ".join(problems_after(steps, tmp_path / str(number))) or "nothing"
        now.append(f"{title}\n{steps}  -> {found.replace(f'{HOME}/', '~root/')}")

    golden.compare(CASES, "\n".join(now) + "\n")
