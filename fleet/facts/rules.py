"""This module says which rules a queue has: they give tags to its requests, fleet does not."""

from pydantic import Field

from fleet.canonical import digest
from fleet.facts.values import Moment, Tags, Value


class QueueRule(Value):
    """One rule of a queue, as far as it gives tags; equal ones have the same effect."""

    task: str = Field("", description="Debusine: the task that it is about.")
    pattern: str = Field("", description="Copr: what the name of a build has to match.")
    when_provided: Tags = Field((), description="Debusine: tags that a request provides already.")
    when_required: Tags = Field((), description="Debusine: tags that it requires already.")
    provides: Tags = Field((), description="Tags that a request then provides.")
    requires: Tags = Field((), description="Tags that it then requires.")

    def __str__(self) -> str:
        """Return the rule on a line."""
        if self.pattern:
            return f"{self.pattern} gets {', '.join(self.requires)}"
        when = ", ".join((*self.when_provided, *self.when_required)) or "any request"
        gets = ", ".join((*self.requires, *self.provides)) or "nothing"
        return f"{self.task} with {when} gets {gets}"


class HeldRules(Value):
    """The rules that a queue has at one place."""

    written: tuple[QueueRule, ...] = Field((), description="Rules that came from fleet.")
    others: tuple[QueueRule, ...] = Field((), description="Rules that people wrote there.")
    uncompared: int = Field(
        0, description="Entries that do more than give tags; their content is not recorded."
    )
    since: Moment | None = Field(
        None, description="When fleet first saw just these rules; None: not before this reading."
    )

    @property
    def digest(self) -> str:
        """Return what tells these rules from others, whatever their order."""
        rules = {rule.model_dump_json() for rule in (*self.written, *self.others)}
        return digest(sorted(rules))
