"""Notices about settings that expire soon or are too old, with advice."""

from datetime import date
from typing import Literal, get_args

from pydantic import Field

from fleet.model.values import Value

NoticeKind = Literal["allow-list", "approval", "prices", "image"]
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


class Notice(Value):
    """Something that a person has to look at by a day, or that is overdue."""

    kind: NoticeKind
    key: str = Field(
        description="Its identity: each is sent once. The notices of 30 and of 7 days differ."
    )
    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that it is about.")
    until: date = Field(description="The last day that all is well.")
    said: str = Field(description="Its object and the action to take, in a sentence.")
