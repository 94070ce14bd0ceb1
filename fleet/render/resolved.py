"""This module renders fleet.yaml as one file: templates applied, other files included."""

import yaml

from fleet.schema.nodes import NUMBERS
from fleet.schema.source import Document


def to_yaml(document: Document) -> str:
    """Return YAML that reads back as what was read."""
    value = dict(document.value) if isinstance(document.value, dict) else {}
    value.pop("include", None)
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """Quotes also the words that are numbers to fleet.yaml and not to PyYAML."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's own
        """Write out what several pools have from one template."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
for _pattern in NUMBERS:
    _Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _pattern, list("-+.0123456789"))
