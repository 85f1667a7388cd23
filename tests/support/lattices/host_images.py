"""Images for groups of hosts on a real node: the stub host in two versions, and a NATS server; no registry is asked.

The stub is what ``tests/support/lattices/stub_host.py`` is, under the name by which pods start a host (``wasmcloud``),
with the NATS client of the tests. The server is on the PATH, too, and has a ``sleep`` besides, which is how the leaf of
a pod outlives its host.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

import nats

from support.lattices import stub_host
from trellis_dev.localcluster import debian, tools
from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.imagebuild import Recipe, build_image
from trellis_dev.localcluster.node_images import PYTHON, architecture, python_image
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.paths import cache_root

NATS: Final = "trellis.local/nats:1"
OLD_VERSION: Final = stub_host.VERSION
NEW_VERSION: Final = "1.9.3"
_DOCKERFILE: Final = """\
ARG BASE=docker.io/library/python:3.11
FROM $BASE
COPY nats /usr/lib/python3/dist-packages/nats
COPY wasmcloud /usr/local/bin/wasmcloud
ENTRYPOINT ["/usr/local/bin/wasmcloud"]
"""


def host_image(version: str) -> str:
    """Return the name of the image of a host that says it is of this version."""
    return f"trellis.local/stub-host:{version}"


def host_images(how: How) -> list[Path]:
    """Return the archives of the host's two versions, built once for each state of their sources.

    Raises:
        ToolError: if a build fails, with the end of its output.
    """
    return [_stub_image(version, how) for version in (OLD_VERSION, NEW_VERSION)]


def nats_image(target: Path, how: How) -> Path:
    """Write the archive of :data:`NATS`, and return it."""
    files = {"nats-server": tools.ensure("nats-server"), "bin/busybox": debian.tree("node", how) / "bin/busybox"}
    links = {"bin/sleep": "busybox", "bin/nats-server": "../nats-server"}
    write_image(target, Image(NATS, ["/nats-server"], architecture(), links=links, open_directories=("tmp",)), files)
    return target


def _stub_image(version: str, how: How) -> Path:
    base, library = python_image(how), Path(nats.__file__).parent
    program = "#!/usr/bin/python3\n" + Path(stub_host.__file__).read_text(encoding="utf-8")
    program = program.replace(f'VERSION: Final = "{OLD_VERSION}"', f'VERSION: Final = "{version}"')
    digest = hashlib.sha256(f"{base.name}\0{_DOCKERFILE}\0{program}\0".encode())
    for source in sorted(library.rglob("*.py")):
        digest.update(source.read_bytes())
    target = cache_root() / "images" / f"stub-host-{digest.hexdigest()[:12]}.tar"

    def make(path: Path, _: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            context = Path(folder)
            (context / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
            (context / "wasmcloud").write_text(program, encoding="utf-8")
            (context / "wasmcloud").chmod(0o755)
            shutil.copytree(library, context / "nats", ignore=shutil.ignore_patterns("__pycache__"))
            arguments = {"BASE": PYTHON}
            build_image(
                Recipe(host_image(version), context, arguments=arguments, base=base, base_name=PYTHON), path, how
            )

    return make_once(target, f"write image {host_image(version)}", how, make)
