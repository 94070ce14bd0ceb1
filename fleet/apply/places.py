"""Where the keys of fleet.yaml that an explanation cites were written."""

from fleet.apply.config import Config
from fleet.explain.values import Everything, ExplainedReason, Explanation, Suggestion
from fleet.schema.findings import Path


def all_with_places(config: Config, everything: Everything) -> Everything:
    """Return every answer with its lines of fleet.yaml; equal reasons are placed once."""
    known: dict[tuple[ExplainedReason, ...], tuple[ExplainedReason, ...]] = {}
    groups = []
    for group in everything.groups:
        answers = []
        for answer in group.requests:
            if answer.reasons not in known:
                known[answer.reasons] = tuple(with_place(config, r) for r in answer.reasons)
            suggestions = _placed_suggestions(config, answer)
            placed = {"reasons": known[answer.reasons], "suggestions": suggestions}
            answers.append(answer.model_copy(update=placed))
        groups.append(group.model_copy(update={"requests": tuple(answers)}))
    return everything.model_copy(update={"groups": tuple(groups)})


def with_places(config: Config, explanation: Explanation) -> Explanation:
    """Return an answer with its lines of fleet.yaml."""
    reasons = tuple(with_place(config, reason) for reason in explanation.reasons)
    suggestions = _placed_suggestions(config, explanation)
    return explanation.model_copy(update={"reasons": reasons, "suggestions": suggestions})


def _placed_suggestions(config: Config, explanation: Explanation) -> tuple[Suggestion, ...]:
    return tuple(
        suggestion.model_copy(
            update={
                "changes": tuple(
                    change.model_copy(update={"place": place_of(config, change.path)})
                    for change in suggestion.changes
                )
            }
        )
        for suggestion in explanation.suggestions
    )


def with_place(config: Config, reason: ExplainedReason) -> ExplainedReason:
    """Return a reason with the line of fleet.yaml that decides it."""
    if not reason.path:
        return reason
    return reason.model_copy(update={"place": place_of(config, reason.path)})


def place_of(config: Config, path: Path) -> str:
    """Return where a key was written, or that it is a default."""
    document = config.document
    written = document.value if isinstance(document.value, dict) else {}
    if path[0] in written:
        return document.place(path)
    return f"{'.'.join(map(str, path))} (default, not set in {document.name})"
