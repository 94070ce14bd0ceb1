"""This module keeps what is remembered of image versions, within a transaction of the store."""

import sqlalchemy as sa
from pydantic import ValidationError

from fleet.errors import StoreFailed, VersionMoved
from fleet.facts.manifest import Manifest
from fleet.facts.versions import Version
from fleet.store.tables import IMAGES, MANIFESTS


def read_versions(connection: sa.Connection) -> tuple[Version, ...]:
    """Return every version, by image, the oldest first; an older store has none yet."""
    if not sa.inspect(connection).has_table(IMAGES.name):
        return ()
    query = sa.select(IMAGES.c.record).order_by(IMAGES.c.image, IMAGES.c.version)
    return tuple(map(_read, connection.execute(query).scalars()))


def write_version(connection: sa.Connection, version: Version, was: Version | None) -> None:
    """Write a version down in place of what it was; None: nothing was known of it.

    A store that an older fleet made gets its table here.
    """
    IMAGES.create(connection, checkfirst=True)
    ours = _ours(version.image, version.version)
    row = {"record": version.model_dump_json()}
    known = connection.execute(sa.select(IMAGES.c.record).where(*ours)).scalar()
    if (known and _read(known)) != was:
        raise _moved(version)
    if known is not None:
        # Who else changed it since it was read above, changed its text.
        changed = sa.update(IMAGES).where(*ours, IMAGES.c.record == known).values(row)
        if not connection.execute(changed).rowcount:
            raise _moved(version)
        return
    row |= {"image": version.image, "version": version.version}
    try:
        connection.execute(sa.insert(IMAGES), [row])
    except sa.exc.IntegrityError as error:
        raise _moved(version) from error


def drop_version(connection: sa.Connection, image: str, version: str) -> None:
    """Forget a version and its manifest; one that is not known is fine."""
    for table in (IMAGES, MANIFESTS):
        if sa.inspect(connection).has_table(table.name):
            connection.execute(sa.delete(table).where(*_ours(image, version, table)))


def write_manifest(connection: sa.Connection, manifest: Manifest) -> None:
    """Write down what a published version holds, in place of what was known of it."""
    MANIFESTS.create(connection, checkfirst=True)
    row = {"image": manifest.image, "version": manifest.version}
    connection.execute(sa.delete(MANIFESTS).where(*_ours(**row, table=MANIFESTS)))
    row |= {"manifest": manifest.model_dump_json()}
    connection.execute(sa.insert(MANIFESTS), [row])


def read_manifest(connection: sa.Connection, image: str, version: str) -> Manifest | None:
    """Return what a published version holds; None where nobody wrote it down."""
    if not sa.inspect(connection).has_table(MANIFESTS.name):
        return None
    query = sa.select(MANIFESTS.c.manifest).where(*_ours(image, version, MANIFESTS))
    text = connection.execute(query).scalar()
    try:
        return None if text is None else Manifest.model_validate_json(text)
    except ValidationError as error:
        raise StoreFailed(
            f"the store holds the manifest of image {image} {version} in a form that this fleet "
            "cannot read; another release of fleet wrote it"
        ) from error


def _ours(
    image: str, version: str, table: sa.Table = IMAGES
) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.image == image, table.c.version == version)


def _read(record: str) -> Version:
    try:
        return Version.model_validate_json(record)
    except ValidationError as error:
        raise StoreFailed(
            "the store remembers an image version in a form that this fleet cannot read; "
            "another release of fleet wrote it"
        ) from error


def _moved(version: Version) -> VersionMoved:
    return VersionMoved(
        f"image {version.image} {version.version} was changed by somebody else in the meantime; "
        "look at it with `fleet image show` and try again"
    )
