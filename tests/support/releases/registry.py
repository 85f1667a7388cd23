"""A registry: distribution, as most registries run it, on one address, with its data in a folder.

In: an empty folder, or one that another registry with the same content uses. Out: host and port. Called by tests of
releases. It ends with its block; its log is in the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.nodes.real_nodes import eventually
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.readiness import http_ok


@contextmanager
def registry(folder: Path, address: str = LOOPBACK) -> Iterator[str]:
    """Serve the data in a folder without TLS; yield ``host:port``."""
    [port] = free_ports(1)
    host = f"{address}:{port}"
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": host},
    }
    file = folder / f"{port}.yml"
    file.write_text(json.dumps(settings))
    environment = os.environ | {"OTEL_TRACES_EXPORTER": "none"}
    with (folder / f"{port}.log").open("wb") as log:
        program = str(tools.ensure("registry", Lines()))
        process = subprocess.Popen([program, "serve", str(file)], env=environment, stdout=log, stderr=log)
        try:
            eventually(lambda: process.poll() is not None or http_ok(f"http://{host}/v2/"), f"{host} answers", 60)
            assert process.poll() is None, (folder / f"{port}.log").read_text()
            yield host
        finally:
            process.terminate()
            process.wait(20)
