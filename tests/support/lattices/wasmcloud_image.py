"""An image with the real servers of a lattice, wadm and a wasmCloud host, from the programs built for local clusters.

It stands for both published images: it runs wadm unless it is given another command, and the host as its pods start it,
by the command ``wasmcloud`` and by ``WASMCLOUD_`` variables. In it is a component, too, that answers HTTP.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

from support.secrets.secrets_client import SecretsClient
from trellis_dev.localcluster import lattice_servers
from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.imagebuild import Recipe, build_image
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.node_images import PYTHON, python_image
from trellis_dev.localcluster.paths import cache_root

WASMCLOUD: Final = "trellis.local/wasmcloud:1"
COMPONENT: Final = "file:///component.wasm"
"""A signed component in the image that answers every HTTP request with 200, in place of a published one."""
_SOURCE: Final = Path(__file__).with_name("hello_http.wat")
_DOCKERFILE: Final = """\
ARG BASE=docker.io/library/python:3.11
FROM $BASE
COPY component.wasm /component.wasm
COPY wadm wasmcloud-host wasmcloud /usr/local/bin/
ENTRYPOINT ["wadm"]
"""
_WASMCLOUD: Final = """\
#!/usr/bin/python3
import os

given, prefix = os.environ, "WASMCLOUD_LABEL_"
argv = ["wasmcloud-host", "--allow-file-load", "--heartbeat=5"]
argv += [f"--nats=nats://{given['WASMCLOUD_NATS_HOST']}:{given['WASMCLOUD_NATS_PORT']}"]
argv += [f"--lattice={given['WASMCLOUD_LATTICE']}", f"--js-domain={given['WASMCLOUD_JS_DOMAIN']}"]
if given.get("WASMCLOUD_SECRETS_TOPIC"):
    argv.append(f"--secrets-topic={given['WASMCLOUD_SECRETS_TOPIC']}")
argv += [f"--label={key.removeprefix(prefix)}={value}" for key, value in given.items() if key.startswith(prefix)]
os.execvp(argv[0], argv)
"""


def wasmcloud_image(how: How) -> Path:
    """Return the archive of :data:`WASMCLOUD`, built once for each state of its sources.

    Raises:
        ToolError: if a build fails, with the end of its output.
    """
    base, programs = python_image(how), lattice_servers.lattice_servers(how)
    component = _SOURCE.read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{base.name}\0{_DOCKERFILE}\0{_WASMCLOUD}\0{component}".encode())
    for name, program in sorted(programs.items()):
        digest.update(f"\0{name}\0{program}".encode())
    target = cache_root() / "images" / f"wasmcloud-{digest.hexdigest()[:12]}.tar"

    def make(path: Path, _: Path) -> None:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as work:
            context = Path(folder)
            (context / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
            (context / "component.wasm").write_bytes(_signed(component, Path(work)))
            (context / "wasmcloud").write_text(_WASMCLOUD, encoding="utf-8")
            (context / "wasmcloud").chmod(0o755)
            for name, program in programs.items():
                shutil.copy(program, context / name)
            recipe = Recipe(WASMCLOUD, context, arguments={"BASE": PYTHON}, base=base, base_name=PYTHON)
            build_image(recipe, path, how)

    return make_once(target, f"write image {WASMCLOUD}", how, make)


def _signed(text: str, directory: Path) -> bytes:
    """Return a component as `wash build` leaves it: a host asks for secrets only for what is signed."""
    with NatsServer(directory) as server, SecretsClient(server.url) as client:
        return client.make_component(text, client.make_key("account"), client.make_key("component").public)
