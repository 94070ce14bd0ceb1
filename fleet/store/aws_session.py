"""This module makes boto3's sessions, which find credentials and make clients."""

from functools import cache
from typing import Any


def new_session(**options: str | None) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
    """Return a session of its own; `options` are boto3's: `region_name`, `profile_name`."""
    # boto3 is slow to load, and most commands ask nothing of AWS.
    import boto3
    from botocore.session import get_session

    session = get_session()
    tables = _tables()
    session.register_component("data_loader", tables)
    made = boto3.Session(**options, botocore_session=session)
    # Each session of boto3 names its own folder to them once more.
    tables.search_paths[:] = dict.fromkeys(tables.search_paths)
    return made


@cache
def _tables() -> Any:  # noqa: ANN401 - botocore has no types
    """Return what botocore knows of services: large, so read once for all sessions."""
    from botocore.loaders import create_loader

    return create_loader()
