"""This module opens Pulumi's backends: files, S3, PostgreSQL.

A backend of another kind is reached by the CLI only.
"""

from fleet.engines.backend_file import FileObjects
from fleet.engines.objects import Objects, file_root


def open_objects(backend: str) -> Objects | None:
    """Return what a backend holds, not asked for anything yet; None where only the CLI can."""
    root = file_root(backend)
    if root:
        return FileObjects(root.parent)
    if backend.startswith("s3://"):
        from fleet.engines.backend_s3 import S3Objects

        return S3Objects(backend)
    if backend.startswith("postgres://"):
        from fleet.engines.backend_postgres import PostgresObjects

        return PostgresObjects(backend)
    return None
