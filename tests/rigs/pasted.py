"""Write what `fleet explain` suggests into a fleet.yaml, as a person would."""

from typing import Any

import yaml

from fleet.explain.values import KeyChange


def paste(document: Any, change: KeyChange) -> None:  # noqa: ANN401 - any YAML
    """Write a change into what fleet.yaml says, as a person would who reads it."""
    for step, following in zip(change.path, change.path[1:], strict=False):
        if isinstance(document, list):
            document = document[int(step)]
        else:
            document = document.setdefault(step, [] if isinstance(following, int) else {})
    last = change.path[-1]
    if isinstance(document, list) and last == len(document):
        document.append(yaml.safe_load(change.new))
    elif change.new:
        document[last] = yaml.safe_load(change.new)
    else:
        del document[last]
