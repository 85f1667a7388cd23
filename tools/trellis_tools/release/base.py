"""The base layer of images: packages of Debian for any architecture, unpacked without running anything in them.

In: names of packages, an architecture. Out: entries of a layer, and the packages with their checksums. apt verifies the
signatures of Debian. Called by ``images``. A layer that is only unpacked needs no emulation for another architecture,
and has no package manager; the few files that package scripts would create are written here.
Invariant: the layer depends on the packages only; scanners find these in ``/var/lib/dpkg/status.d``.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.layout import SHARED_DIRECTORY, Entry, entries_of
from trellis_tools.release.plan import Material, Platform
from trellis_tools.release.programs import run

PACKAGES: Final = ("base-files", "base-passwd", "libc-bin", "python3", "util-linux")
"""Installed with all packages that they depend on. util-linux has nsenter, by which the installer reaches its node."""
ALONE: Final = ("ca-certificates",)
"""Unpacked without the packages that only their scripts need."""
SCRIPTS_ONLY: Final = frozenset({"debconf", "dpkg"})
"""Omitted: dependencies of other packages for their scripts only, which never run."""
ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

_MERGED: Final = ("bin", "lib", "lib64", "sbin")
"""Directories that are links into /usr; the packages of Debian 12 have files in both."""
_LEFT_OUT: Final = re.compile(
    r"usr/share/(?:man|info|lintian|locale|bug|menu|pixmaps|bash-completion)(?:/|$)"
    r"|usr/share/doc/(?!.*/copyright$)"
    r"|usr/share/python3/(?:debpython|runtime\.d)(?:/|$)"
)
_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
_STDLIB: Final = "usr/lib/python3*"
_COPIED: Final = {
    "etc/passwd": "usr/share/base-passwd/passwd.master",
    "etc/group": "usr/share/base-passwd/group.master",
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
}
"""Files that package scripts copy."""
_LINKS: Final = {"usr/lib/ssl/certs": "/etc/ssl/certs", "usr/lib/ssl/cert.pem": f"/{_CERTIFICATES}"}
"""Paths where the TLS library of Python searches for certificates."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of Debian: its file and its control fields."""

    file: Path
    fields: Mapping[str, str] = field(repr=False)
    control: str = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the package."""
        return self.fields["Package"]

    @property
    def material(self) -> Material:
        """The package as an input of the build."""
        version, architecture = self.fields["Version"], self.fields["Architecture"]
        uri = f"pkg:deb/debian/{self.name}@{version.replace(':', '%3A')}?arch={architecture}"
        return Material(uri, hashlib.sha256(self.file.read_bytes()).hexdigest())


@dataclass(frozen=True, slots=True)
class Base:
    """The base of images for one platform. ``python``: version of its interpreter, as ``3.11.2``."""

    entries: dict[str, Entry] = field(repr=False)
    packages: tuple[Package, ...] = field(repr=False)
    python: str

    @property
    def minor(self) -> str:
        """Minor version of the interpreter, as ``3.11``."""
        return ".".join(self.python.split(".")[:2])

    @property
    def interpreter(self) -> str:
        """Path of the interpreter in an image."""
        return f"/usr/bin/python{self.minor}"

    @property
    def listing(self) -> str:
        """A line for each package: name, version, architecture."""
        rows = (
            " ".join(package.fields[key] for key in ("Package", "Version", "Architecture")) for package in self.packages
        )
        return "".join(f"{row}\n" for row in sorted(rows))


def make_base(platform: Platform, folder: Path, how: How) -> Base:
    """Download and unpack the packages of a platform into an empty folder.

    Raises:
        ReleaseError: a package is missing. ToolError: apt-get is missing, or a download fails.
    """
    archives, trees = folder / "archives", folder / "trees"
    debian.download(archives, platform.architecture, (PACKAGES, ALONE), how, folder / "apt.log")
    files = sorted(file for file in archives.glob("*.deb") if file.name.partition("_")[0] not in SCRIPTS_ONLY)
    trees.mkdir()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        packages = tuple(pool.map(lambda file: _unpack(file, trees / file.name), files))
    entries: dict[str, Entry] = {}
    for package in packages:
        entries |= {merged(name): entry for name, entry in entries_of(trees / package.file.name) if is_kept(name)}
    return Base(complete(entries, packages), packages, python_of(packages))


def compile_stdlib(base: Base, python: Path, folder: Path) -> None:
    """Add the bytecode of the standard library, which containers with a read-only file system cannot write.

    ``python``: an interpreter of the same minor version. ``folder``: an empty one.

    Raises:
        ReleaseError: a module does not compile.
    """
    sources = {
        name: entry
        for name, entry in base.entries.items()
        if entry.source is not None and fnmatch.fnmatch(name, f"{_STDLIB}/*.py")
    }
    for name, entry in sources.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        assert entry.source is not None
        shutil.copyfile(entry.source, target)
    where = ["-s", str(folder), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    run([str(python), "-m", "compileall", "-q", *where, str(folder)], environment={"PYTHONHASHSEED": "0"})
    base.entries.update((name, entry) for name, entry in entries_of(folder) if name.endswith(".pyc"))


def without(entries: Mapping[str, Entry], patterns: Iterable[str]) -> dict[str, Entry]:
    """Return entries without the paths that match a pattern of ``rm -rf``, and the paths below them."""
    expressions = [re.compile(fnmatch.translate(pattern.lstrip("/"))) for pattern in patterns]

    def removed(name: str) -> bool:
        parts = name.split("/")
        paths = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
        return any(expression.fullmatch(path) for expression in expressions for path in paths)

    return {name: entry for name, entry in entries.items() if not removed(name)}


def merged(name: str) -> str:
    """Return a path of a package with its place below /usr, if its first directory is a link to there."""
    return f"usr/{name}" if name.split("/", maxsplit=1)[0] in _MERGED else name


def is_kept(name: str) -> bool:
    """Return whether a path of a package is in images: manuals and translations are not, copyright files are."""
    return _LEFT_OUT.match(name) is None


def complete(entries: Mapping[str, Entry], packages: Sequence[Package]) -> dict[str, Entry]:
    """Return the entries with those that package scripts would create, and with the list of packages.

    Raises:
        ReleaseError: a package that has the content is missing.
    """
    certificates = [
        entry.source.read_bytes()
        for name, entry in sorted(entries.items())
        if entry.source is not None and fnmatch.fnmatch(name, "usr/share/ca-certificates/*.crt")
    ]
    if not certificates:
        raise ReleaseError("the base has no certificates: the package ca-certificates is missing")
    missing = [source for source in _COPIED.values() if source not in entries]
    if missing:
        raise ReleaseError(f"the base has no {', '.join(missing)}: a package is missing")
    return {
        **entries,
        **{name: Entry(0o777, link=f"usr/{name}") for name in _MERGED},
        **{target: Entry(0o644, source=entries[source].source) for target, source in _COPIED.items()},
        **{name: Entry(0o777, link=target) for name, target in _LINKS.items()},
        _CERTIFICATES: Entry(0o644, content=b"".join(certificate.rstrip() + b"\n" for certificate in certificates)),
        "tmp": SHARED_DIRECTORY,
        "var/tmp": SHARED_DIRECTORY,
        **{
            f"var/lib/dpkg/status.d/{package.name}": Entry(0o644, content=package.control.encode())
            for package in packages
        },
    }


def python_of(packages: Iterable[Package]) -> str:
    """Return the version of the interpreter in packages, as ``3.11.2``.

    Raises:
        ReleaseError: they have none.
    """
    for package in packages:
        if re.fullmatch(r"python3\.\d+-minimal", package.name):
            return re.split(r"[-+~]", package.fields["Version"])[0]
    raise ReleaseError("the base has no Python interpreter: the package python3 is missing")


def _unpack(file: Path, target: Path) -> Package:
    run(["dpkg-deb", "--extract", str(file), str(target)])
    control = run(["dpkg-deb", "--field", str(file)])
    return Package(file, dict(_fields(control)), control)


def _fields(control: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of one line each."""
    for line in control.splitlines():
        name, separator, value = line.partition(": ")
        if separator and not line.startswith(" "):
            yield name, value
