"""The node's file system below ``--node-root``: everything that reads or changes it goes through here.

In: the node's own absolute paths. Out: effects, each of them atomic: a file is there whole or not at all.
Called by ``gather`` (reads) and ``apply`` (writes); tests replace single methods to break them.
Invariants: symbolic links are followed as the node would follow them, so nothing outside of the root is touched;
mode, owner and extended attributes of a file that is replaced are kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from node_installer.containerd import globs
from node_installer.node.disk_errors import explained, removed_on_failure
from node_installer.node.facts import copy_facts

_LINKS: Final = 40  # Linux gives up there too (path_resolution(7))
_BLOCK: Final = 1 << 20
PARTIAL: Final = ".trellis-partial"


class Disk:
    """The tree of one node."""

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self._root: Final = str(root).rstrip("/")

    def real(self, path: str) -> Path:
        """Return where a path of the node lies for us; links are resolved inside of the root, the last one too."""
        pending = _parts(path)
        current: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                current = current[:-1]
                continue
            # Plain system calls: every access comes through here, and pathlib takes ten times as long.
            link = _link("/".join((self._root, *current, part)))
            if link is None:
                current.append(part)
                continue
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if link.startswith("/"):
                current = []
            pending += _parts(link)
        return self.root.joinpath(*current)

    # --- reads ---

    def exists(self, path: str) -> bool:
        """Return whether something is there, a dangling link not counted."""
        return self.real(path).exists()

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None if there is none."""
        try:
            return self.real(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def is_exposed(self, path: str) -> bool:
        """Return whether others than its owner may do anything with a file."""
        try:
            return bool(self.real(path).stat().st_mode & 0o077)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def sha256(self, path: str) -> str | None:
        """Return the hexadecimal SHA-256 of a file, None if there is none."""
        try:
            with self.real(path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def matches(self, pattern: str) -> tuple[str, ...]:
        """Return the node's paths that match a pattern as ``globs`` has it, in any of its parts; sorted."""
        folder, _, name = pattern.rpartition("/")
        if not globs.has_meta(pattern):
            return (pattern,) if self.exists(pattern) else ()
        found: list[str] = []
        for parent in self.matches(folder) if globs.has_meta(folder) else (folder,):
            with contextlib.suppress(OSError):
                names = (
                    [name] if not globs.has_meta(name) else sorted(item.name for item in self.real(parent).iterdir())
                )
                found += [f"{parent}/{one}" for one in names if one == name or globs.matches(name, one)]
        return tuple(path for path in found if self.exists(path))

    def nearest(self, path: str) -> str:
        """Return the path, or the nearest directory above it that exists."""
        while path not in ("", "/") and not self.exists(path):
            path = path.rpartition("/")[0]
        return path or "/"

    # --- writes ---

    def make_directory(self, path: str) -> None:
        """Make one directory, mode 0755; its parent exists. One that is there already stays."""
        real = self.real(path)
        with explained(path), contextlib.suppress(FileExistsError):
            real.mkdir()
            real.chmod(0o755)  # whatever the umask

    def make_directories(self, path: str, inner: str) -> None:
        """Make a directory with another in it, both at once: one without it was another owner's before."""
        real = self.real(path)
        partial = real.with_name(f".{real.name}{PARTIAL}")
        with explained(path):
            for folder in (partial, partial / inner):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)
            partial.rename(real)

    def remove_directories(self, path: str, inner: str) -> bool:
        """Remove a directory and the one in it, both at once, if nothing else is in them; False if they stay."""
        real = self.real(path)
        partial = real.with_name(f".{real.name}{PARTIAL}")
        folder, _, name = path.rpartition("/")
        linked = self.real(folder).joinpath(name).is_symlink()
        if linked or not real.is_dir() or [item.name for item in real.iterdir()] != [inner]:
            self.remove_directory(f"{path}/{inner}")
            return self.remove_directory(path)
        if any((real / inner).iterdir()):
            return False
        real.rename(partial)
        (partial / inner).rmdir()
        partial.rmdir()
        return True

    def write(self, path: str, content: bytes, *, private: bool = False) -> None:
        """Put content in a file's place at once, with the former one's mode, owner and extended attributes.

        A new file is for all to read. A ``private`` one is for its owner only, whatever the former one was.
        """
        real = self.real(path)
        partial = real.with_name(f".{real.name}{PARTIAL}")
        with explained(path), removed_on_failure(partial):
            with _create(partial, 0o600 if private else 0o644) as file:
                file.write(content)
                file.flush()
                if real.exists() and not private:
                    copy_facts(real, partial)
                os.fsync(file.fileno())
            _replace(partial, real)

    def put(self, path: str, source: Path, mode: int = 0o755) -> None:
        """Copy a file from outside of the node into its place at once. Processes that run the former one go on."""
        real = self.real(path)
        partial = real.with_name(f".{real.name}{PARTIAL}")
        with explained(path), removed_on_failure(partial):
            with source.open("rb") as origin, _create(partial, mode) as file:
                shutil.copyfileobj(origin, file, _BLOCK)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(real)
            _sync_folder(real.parent)

    def keep(self, path: str, backup: str) -> bool:
        """Keep a file's present content, mode, owner and attributes under a second name; False if there is none.

        A hard link where it can be: files are replaced, never written into, so the former one stays as it was.
        """
        real, kept = self.real(path), self.real(backup)
        with explained(backup):
            kept.unlink(missing_ok=True)
            try:
                os.link(real, kept)
            except FileNotFoundError:
                return False
            except OSError:
                shutil.copyfile(real, kept)
                copy_facts(real, kept)
        return True

    def restore(self, path: str, backup: str) -> None:
        """Put a kept file back where it was; without one the path is removed."""
        kept, real = self.real(backup), self.real(path)
        with explained(path):
            if not kept.exists():
                real.unlink(missing_ok=True)
                return
            # Linked first: rename(2) does nothing between two names of one file.
            partial = real.with_name(f".{real.name}{PARTIAL}")
            partial.unlink(missing_ok=True)
            try:
                os.link(kept, partial)
            except OSError:
                shutil.copyfile(kept, partial)
                copy_facts(kept, partial)
            if real.exists() and real.samefile(kept):
                partial.unlink()
            else:
                _replace(partial, real)

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone is fine."""
        with explained(path):
            self.real(path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if nothing is in it; False if it stays. What a link leads to is not ours and stays."""
        folder, _, name = path.rpartition("/")
        if self.real(folder).joinpath(name).is_symlink():
            return False
        try:
            self.real(path).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def sweep(self, folder: str) -> None:
        """Remove what an interrupted effect left in a directory."""
        for path in self.matches(f"{folder}/.*{PARTIAL}"):
            if self.real(path).is_dir():
                shutil.rmtree(self.real(path))
            else:
                self.remove(path)

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[bool]:
        """Hold the node's lock, or yield False at once if another installer holds it. It ends with the process."""
        real = self.real(path)
        with explained(path):
            descriptor = os.open(real, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held = False
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The holder before us removes the file as it goes: then ours is a lock on nothing.
                held = real.exists() and os.fstat(descriptor).st_ino == real.stat().st_ino
            yield held
        finally:
            if held:
                real.unlink(missing_ok=True)
            os.close(descriptor)


def _parts(path: str) -> list[str]:
    """Return a path's names, the first one last."""
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _link(path: str) -> str | None:
    """Return where a symbolic link leads, None for anything else, also for nothing."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return None
        raise


@contextlib.contextmanager
def _create(partial: Path, mode: int) -> Iterator[BinaryIO]:
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        yield file


def _replace(partial: Path, real: Path) -> None:
    try:
        partial.replace(real)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        # A mount point of its own (a file mounted into a container that is a node): it cannot be replaced.
        shutil.copyfile(partial, real)
        partial.unlink()
    _sync_folder(real.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
