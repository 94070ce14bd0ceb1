"""This module reaches a Pulumi backend in a folder."""

from pathlib import Path

from fleet.errors import StoreFailed

_NOTES = ".attrs"
"""Beside each file of its own the CLI keeps another one, which says what kind it is."""


def drop_cut_notes(root: Path, project: str) -> None:
    """Remove the empty notes of who was killed at writing them: the CLI reads past none.

    It would say "failed to load checkpoint: EOF" for ever, and without a note does the same as
    with one. Its program for people still writes them; see `Home.environment`.
    """
    for note in (*root.glob(f"*{_NOTES}"), *root.glob(f"stacks/{project}/*{_NOTES}")):
        try:
            if not note.stat().st_size:
                note.unlink()
        except FileNotFoundError:
            # Whoever else works here has removed it.
            continue


class FileObjects:
    """A folder, with a file for each key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = f"file://{folder}"

    def read(self, key: str) -> bytes | None:
        """Return a file's content; None when there is no such file."""
        try:
            return (self._folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure(key, error) from error

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of the files whose path begins so."""
        folder = self._folder / prefix.rpartition("/")[0]
        found = (path for path in folder.rglob("*") if path.suffix != _NOTES and path.is_file())
        names = (path.relative_to(self._folder).as_posix() for path in found)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def create(self, key: str, content: bytes) -> None:
        """Write a file that is not there yet, whole or not at all."""
        path = self._folder / key
        new = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                new.write_bytes(content)
                path.hardlink_to(new)
            finally:
                new.unlink(missing_ok=True)
        except OSError as error:
            raise self._failure(key, error) from error

    def remove(self, key: str) -> None:
        """Remove a file."""
        try:
            (self._folder / key).unlink(missing_ok=True)
            (self._folder / f"{key}{_NOTES}").unlink(missing_ok=True)
        except OSError as error:
            raise self._failure(key, error) from error

    def _failure(self, key: str, error: OSError) -> StoreFailed:
        return StoreFailed(f"{self._folder / key}: {error.strerror or error}")
