"""The node's file system below ``--node-root``: all reads and changes use this module.

In: the node's own absolute paths. Out: effects, each of them atomic: a file exists completely or not at all.
Called by ``gather`` (reads) and ``apply`` (writes); tests replace single methods to inject faults.
Invariants: symbolic links are resolved as on the node, so nothing outside of the root is touched; mode, owner and
extended attributes of a file that is replaced are kept.
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
from node_installer.node.file_metadata import copy_metadata

_LINKS: Final = 40  # the limit of Linux (path_resolution(7))
_BLOCK: Final = 1 << 20
PARTIAL: Final = ".trellis-partial"


class Disk:
    """The file system of one node."""

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self._root: Final = str(root).rstrip("/")

    def real(self, path: str) -> Path:
        """Return the local path for a path of the node; links are resolved inside of the root, the last one too."""
        pending = _parts(path)
        current: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                current = current[:-1]
                continue
            # Plain system calls: every access uses this method, and pathlib is ten times slower.
            link = _link_target("/".join((self._root, *current, part)))
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
        """Return whether a path exists; a dangling link does not."""
        return self.real(path).exists()

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            return self.real(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def is_exposed(self, path: str) -> bool:
        """Return whether users other than its owner have any permission on a file."""
        try:
            return bool(self.real(path).stat().st_mode & 0o077)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def sha256(self, path: str) -> str | None:
        """Return the hexadecimal SHA-256 of a file, None if it does not exist."""
        try:
            with self.real(path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def matches(self, pattern: str) -> tuple[str, ...]:
        """Return the node's paths that match a pattern of ``globs``, in any of its parts; sorted."""
        folder, _, name = pattern.rpartition("/")
        if not globs.has_meta(pattern):
            return (pattern,) if self.exists(pattern) else ()
        found: list[str] = []
        for parent in self.matches(folder) if globs.has_meta(folder) else (folder,):
            with contextlib.suppress(OSError):
                names = (
                    [name] if not globs.has_meta(name) else sorted(item.name for item in self.real(parent).iterdir())
                )
                found += [f"{parent}/{entry}" for entry in names if entry == name or globs.matches(name, entry)]
        return tuple(path for path in found if self.exists(path))

    def nearest(self, path: str) -> str:
        """Return the path, or the nearest directory above it that exists."""
        while path not in ("", "/") and not self.exists(path):
            path = path.rpartition("/")[0]
        return path or "/"

    # --- writes ---

    def make_directory(self, path: str) -> None:
        """Create one directory, mode 0755; its parent exists. An existing directory stays."""
        real = self.real(path)
        with explained(path), contextlib.suppress(FileExistsError):
            real.mkdir()
            real.chmod(0o755)  # independent of the umask

    def make_directories(self, path: str, inner: str) -> None:
        """Create a directory with another in it, both at once: one without it belonged to another owner before."""
        real = self.real(path)
        partial = real.with_name(f".{real.name}{PARTIAL}")
        with explained(path):
            for folder in (partial, partial / inner):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)
            partial.rename(real)

    def remove_directories(self, path: str, inner: str) -> bool:
        """Remove a directory and the one in it, both at once, if they are otherwise empty; False if they stay."""
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
        """Replace a file at once, with the mode, owner and extended attributes of the former one.

        A new file is readable for all users, a ``private`` one only for its owner, even if the former one was not.
        """
        real = self.real(path)
        partial = real.with_name(f".{real.name}{PARTIAL}")
        with explained(path), removed_on_failure(partial):
            with _create(partial, 0o600 if private else 0o644) as file:
                file.write(content)
                file.flush()
                if real.exists() and not private:
                    copy_metadata(real, partial)
                os.fsync(file.fileno())
            _replace(partial, real)

    def put(self, path: str, source: Path, mode: int = 0o755) -> None:
        """Replace a file at once by one from outside of the node. Processes that run the former one continue."""
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
        """Keep a file's content, mode, owner and attributes under a second name; False if it does not exist.

        A hard link if possible: files are replaced, never modified, so the former content stays.
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
                copy_metadata(real, kept)
        return True

    def restore(self, path: str, backup: str) -> None:
        """Restore a file from its backup; without a backup the path is removed."""
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
                copy_metadata(kept, partial)
            if real.exists() and real.samefile(kept):
                partial.unlink()
            else:
                _replace(partial, real)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with explained(path):
            self.real(path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty; False if it stays. A linked directory is unmanaged and stays."""
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
        """Remove the leftovers of interrupted effects in a directory."""
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
        acquired = False
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The former holder removes the file when it ends: then this is a lock on a deleted file.
                acquired = real.exists() and os.fstat(descriptor).st_ino == real.stat().st_ino
            yield acquired
        finally:
            if acquired:
                real.unlink(missing_ok=True)
            os.close(descriptor)


def _parts(path: str) -> list[str]:
    """Return the names in a path, in reverse order."""
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _link_target(path: str) -> str | None:
    """Return the target of a symbolic link, None for any other path and for a missing one."""
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
        os.fchmod(descriptor, mode)  # independent of the umask
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
        with contextlib.suppress(OSError):  # not every file system supports it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
