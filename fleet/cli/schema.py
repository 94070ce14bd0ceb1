"""Print the JSON Schemas of fleet.yaml and of fleet's output."""

import argparse
import json
from typing import Any

from fleet.cli.arguments import argument, option
from fleet.ports import Console
from fleet.schema.jsonschema import Direction, json_schema, with_templates
from fleet.state.files import LocalFiles

ARGUMENTS = (
    argument(
        "document",
        nargs="?",
        default="fleet",
        choices=["fleet", "world", "plan", "findings", "simulation"],
        help="document to describe (default: fleet)",
    ),
    option("--out", "FILE", "write to FILE instead of standard output"),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the schema of one document, or write it to a file."""
    text = schema_text(args.document)
    if args.out:
        LocalFiles().write_text(args.out, text)
    else:
        console.out(text)
    return 0


def schema_text(document: str) -> str:
    """Return the JSON Schema of a document as text."""
    model, title, direction = _document(document)
    schema = json_schema(document, model, title=title, direction=direction)
    if document == "fleet":
        schema = with_templates(schema)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _document(name: str) -> tuple[Any, str, Direction]:
    match name:
        case "world":
            from fleet.model.facts import World

            return World, "world.json: the facts behind one plan", "read"
        case "plan":
            from fleet.explain.changes import ComparedPlan

            return ComparedPlan, "Output of fleet plan --json", "written"
        case "findings":
            from fleet.schema.findings import Report

            return Report, "Findings of fleet validate", "written"
        case "simulation":
            from fleet.apply.satellites import connected

            return (
                connected().simulation().model,
                "Result of fleet simulate --json: cost and waits of recorded demand",
                "written",
            )
        case _:
            from fleet.schema.model import Fleet

            return Fleet, "fleet.yaml: a fleet of build machines", "read"
