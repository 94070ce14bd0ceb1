"""This module declares where queues keep the rules by which they give tags to requests."""

from typing import Annotated

from pydantic import Field, Tag

from fleet.schema.base import SecretRef, Section, Text, Url, branch

WORKSPACE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9+._-]*/[A-Za-z0-9][A-Za-z0-9+._-]*$"
Workspace = Annotated[str, Field(pattern=WORKSPACE_PATTERN)]
COLLECTION_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9+._-]*$"


class DebusineRules(Section):
    """Where a Debusine server keeps the rules that fleet compares and delivers."""

    workspaces: Annotated[list[Workspace], Field(min_length=1)] = Field(
        description="Workspaces that get the rules, each as SCOPE/WORKSPACE."
    )
    collection: Annotated[str, Field(pattern=COLLECTION_PATTERN)] = Field(
        "default", description="Name of their task-configuration collection."
    )
    tasks: Annotated[list[Text], Field(min_length=1)] = Field(
        ["sbuild"], description="The tasks that `powerful` is about."
    )
    token: SecretRef | None = Field(
        None,
        description="REST token of an owner of these workspaces, by reference; only "
        "`fleet export debusine --apply` uses it.",
    )


class CoprRulesFile(Section):
    """A file that holds Copr's allow-list."""

    file: Text = Field(
        description="The configuration of Copr's frontend that sets EXTRA_BUILDCHROOT_TAGS, "
        "relative to this file."
    )


class CoprRulesUrl(Section):
    """An address that answers with Copr's allow-list."""

    url: Url = Field(description="Address of that file, read without credentials.")


def _copr_rules_form(value: object) -> str | None:
    match value:
        case CoprRulesFile():
            return "copr-rules-file"
        case CoprRulesUrl():
            return "copr-rules-url"
        case dict():
            return "copr-rules-url" if "url" in value else "copr-rules-file"
        case _:
            return None


CoprRules = Annotated[
    Annotated[CoprRulesFile, Tag("copr-rules-file")]
    | Annotated[CoprRulesUrl, Tag("copr-rules-url")],
    branch(_copr_rules_form, "{file: PATH} or {url: ADDRESS}"),
]
