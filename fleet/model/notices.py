"""Notices about settings that expire soon or are outdated, with advice."""

from datetime import date
from typing import Literal, get_args

from pydantic import Field

from fleet.model.values import Value

NoticeKind = Literal["allow-list", "approval", "prices", "image"]
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


class Notice(Value):
    """A setting that an operator must renew or remove by a date."""

    kind: NoticeKind
    key: str = Field(
        description="Identity: each notice is sent once. The notices of 30 and of 7 days differ."
    )
    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that it describes.")
    until: date = Field(description="Last valid day.")
    said: str = Field(description="Object and required action, as a sentence.")
