"""Archives of shims, as installers fetch them: two versions of one that works, and some that are broken.

All are tar.gz with one program, :data:`trellis_dev.localcluster.wasmshim.SHIM`, and have the same bytes each time.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.wasmshim import SHIM, shim

_SOURCE = Path(__file__).with_name("broken_shim") / "main.go"
_NAMED_IN_PROGRAM = (b"0.1.0<none>", b"0.2.0<none>")
"""How the program of the shim holds its version and revision; the same length, so nothing else moves."""


@dataclass(frozen=True)
class Broken:
    """A way to be broken, and the arguments to which it answers with its version, as if nothing were."""

    mode: str
    answers: tuple[str, ...] = ()
    architecture: str = ""


OTHER_ARCHITECTURE = {"amd64": "arm64", "arm64": "amd64"}[architecture()]
BROKEN = {
    "exits": Broken("exits"),
    "hangs": Broken("hangs"),
    "hangs-at-info": Broken("hangs", ("-v",)),
    "exits-in-use": Broken("exits", ("-v", "-info")),
    "hangs-in-use": Broken("hangs", ("-v", "-info")),
    "other-architecture": Broken("exits", architecture=OTHER_ARCHITECTURE),
}
"""Name of a broken shim → how. Those ``in-use`` are found out by nothing but a pod."""
KEEPS_CONTAINERD_DOWN = ("hangs", "hangs-at-info")
"""containerd 2 asks every shim in its configuration for ``-info`` when it starts, and waits for as long as it takes."""
WORKING = {"v1": "0.1.0", "v2": "0.2.0"}
"""Name of a shim that works → the version it says."""


def program(name: str, how: How) -> bytes:
    """Return the program of one of :data:`WORKING` or :data:`BROKEN`, built if need be.

    Raises:
        ToolError: if the working shim or the broken one cannot be built.
    """
    if name in BROKEN:
        return _broken(name, how).read_bytes()
    first, second = _NAMED_IN_PROGRAM
    content = shim(how).read_bytes()
    assert content.count(first) == 1, "the shim's program holds its version in another way than is known here"
    return content if name == "v1" else content.replace(first, second)


def write_archives(folder: Path, how: How) -> dict[str, Path]:
    """Write the archive of each shim, ``<name>.tar.gz``, into a folder; return them by name."""
    archives = {}
    for name in (*WORKING, *BROKEN):
        archives[name] = folder / f"{name}.tar.gz"
        archives[name].write_bytes(archive(program(name, how)))
    return archives


def archive(content: bytes) -> bytes:
    """Return a tar.gz with this program, of no time and no owner."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        entry = tarfile.TarInfo(SHIM)
        entry.size, entry.mode = len(content), 0o755
        file.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), compresslevel=1, mtime=0)


def _broken(name: str, how: How) -> Path:
    broken = BROKEN[name]
    digest = hashlib.sha256(_SOURCE.read_bytes() + repr(broken).encode()).hexdigest()[:12]

    def make(target: Path, log: Path) -> None:
        go = go_program(how.progress)
        platform = {"GOOS": "linux", "GOARCH": broken.architecture or architecture()}
        build = LoggedBuild(target.parent, log, how.abort, {**environment(go), **platform}, "It needs nothing but Go.")
        variables = f"-s -w -X main.mode={broken.mode} -X main.answers={','.join(broken.answers)}"
        build.run([str(go), "build", "-trimpath", f"-ldflags={variables}", "-o", str(target), str(_SOURCE)])

    return make_once(cache_root() / "images" / f"shim-{name}-{digest}", f"build a shim that {name}", how, make)
