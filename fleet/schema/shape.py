"""This module follows a path through the models: which keys are known there, which branch it is.

pydantic puts the tag of a union's branch into the place of an error; here it is told apart from
what a person wrote, by following the declarations instead of guessing.
"""

from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import Tag
from pydantic.fields import FieldInfo

from fleet.schema.base import Section
from fleet.schema.findings import Path


@dataclass(frozen=True)
class Written:
    """A place of the model as a person sees it: without tags; `model` is the section there."""

    path: Path
    model: type[Section] | None
    is_key: bool = False


def follow(model: type[Section], place: tuple[int | str, ...]) -> Written:
    """Return what pydantic's place of an error means to a person."""
    annotation: Any = model
    path: list[str | int] = []
    section: type[Section] | None = model
    for step in place:
        if step == "[key]":
            return Written(tuple(path), section, is_key=True)
        annotation = _bare(annotation)
        if get_origin(annotation) in (Union, UnionType):
            annotation = _bare(branches(annotation).get(str(step), Any))
        else:
            path.append(step)
            annotation = _bare(_below(annotation, step))
        section = annotation if _is_section(annotation) else None
    return Written(tuple(path), section)


def branches(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any annotation of a field
    """Return the branches of a union by their tags."""
    found: dict[str, Any] = {}
    for each in get_args(_bare(annotation)):
        bare = _bare(each)
        tags = [note.tag for note in getattr(each, "__metadata__", ()) if isinstance(note, Tag)]
        if not tags and _is_section(bare) and "kind" in bare.model_fields:
            tags = list(get_args(bare.model_fields["kind"].annotation))
        found |= dict.fromkeys(tags, each)
    return found


def fields_of(model: type[Section]) -> dict[str, FieldInfo]:
    """Return a section's fields by the keys that people write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _below(annotation: Any, step: str | int) -> Any:  # noqa: ANN401 - any annotation of a field
    if _is_section(annotation):
        field = fields_of(annotation).get(str(step))
        return field.annotation if field else Any
    arguments = get_args(annotation)
    return arguments[-1] if get_origin(annotation) in (dict, list) else Any


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - any annotation of a field
    """Return an annotation without its notes and without `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType) and NoneType in get_args(annotation):
            # No union of ours has both None and more than one branch without a tag.
            (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
        else:
            return annotation


def _is_section(annotation: Any) -> bool:  # noqa: ANN401 - any annotation of a field
    return isinstance(annotation, type) and issubclass(annotation, Section)
