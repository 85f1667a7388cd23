"""The container images of real nodes, built from the cache without a registry.

In: a Debian tree, CoreDNS, a Wasm module. Out: archives in the cache, and the names of the images on nodes. Called
before nodes start, and by tests. Invariant: the file name of an archive contains a digest of its sources.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian, tools
from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.ociarchive import Image, write_image, write_tree
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.versions import products

PAUSE: Final = "trellis.local/pause:1"
BOX: Final = "trellis.local/box:1"
"""A shell and common utilities; ENTRYPOINT is the shell."""
HELLO_WASM: Final = "trellis.local/hello-wasm:1"
"""A WASI module that prints ``hello from wasm``: needs a Wasm runtime."""
PYTHON: Final = "trellis.local/python:3.11"
"""Debian with Python: a base for images that are built here."""

NATS: Final = "trellis.local/nats-server:1"
"""A nats-server on the PATH, as the chart runs it."""

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architecture in image platforms by machine, as `uname -m` reports it."""
_APPLETS: Final = (
    "awk", "cat", "chgrp", "chmod", "chown", "chroot", "cp", "cut", "date", "dd", "df", "diff", "dirname", "echo",
    "env", "false", "find", "grep", "head", "hostname", "httpd", "id", "ip", "kill", "ln", "ls", "mkdir", "mktemp",
    "mount", "mv", "nc", "nsenter", "nslookup", "printf", "ps", "pwd", "readlink", "realpath", "rm", "rmdir", "sed",
    "sh", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tar", "tee", "test", "timeout", "touch", "tr", "true",
    "umount", "uname", "wc", "wget", "which", "xargs",
)  # fmt: skip


def architecture() -> str:
    """Return the architecture of this machine as in image platforms."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def coredns_image() -> str:
    """Return the image name of CoreDNS."""
    return f"trellis.local/coredns:{products()['coredns'].version}"


def node_images(coredns: Path, how: How) -> dict[str, Path]:
    """Return the archives of every real node: pause, box, CoreDNS.

    Raises:
        ToolError: the Debian tree cannot be built.
    """
    busybox = {"bin/busybox": debian.tree("node", how) / "bin/busybox"}
    shell = {f"bin/{applet}": "busybox" for applet in _APPLETS}
    of = architecture()
    return {
        "pause": _archive(Image(PAUSE, ["/bin/busybox", "sleep", "infinity"], of), busybox, how),
        "box": _archive(Image(BOX, ["/bin/sh"], of, links=shell, open_directories=("tmp",)), busybox, how),
        "coredns": _archive(Image(coredns_image(), ["/coredns"], of), {"coredns": coredns}, how),
    }


def hello_wasm_image(module: Path, how: How) -> Path:
    """Return the archive of :data:`HELLO_WASM`, with the compiled module."""
    return _archive(Image(HELLO_WASM, ["/hello.wasm"], architecture()), {"hello.wasm": module}, how)


def nats_image(how: How) -> Path:
    """Return the archive of :data:`NATS`."""
    server = {"bin/nats-server": tools.ensure("nats-server", how.progress)}
    return _archive(Image(NATS, ["/bin/nats-server"], architecture()), server, how)


def python_image(how: How) -> Path:
    """Return the archive of :data:`PYTHON`.

    Raises:
        ToolError: the Debian tree cannot be built.
    """
    tree = debian.tree("python", how)
    image = Image(PYTHON, ["/usr/bin/python3"], architecture())
    target = cache_root() / "images" / f"{tree.name}.tar"
    return make_once(target, f"write image {PYTHON}", how, lambda path, _: write_tree(path, image, tree))


def _archive(image: Image, files: Mapping[str, Path], how: How) -> Path:
    made_of = hashlib.sha256(repr((image, sorted(files))).encode())
    for _, source in sorted(files.items()):
        made_of.update(source.read_bytes())
    name = image.name.rpartition("/")[2].replace(":", "-")
    target = cache_root() / "images" / f"{name}-{made_of.hexdigest()[:12]}.tar"
    return make_once(target, f"write image {image.name}", how, lambda path, _: write_image(path, image, files))
