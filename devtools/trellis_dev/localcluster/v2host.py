"""A host of wasmCloud v2 for tests: the published runtime of v2 with the NATS half of v2's protocol.

In: the Cargo project in ``v2host``, the address of a NATS server. Out: a running host that pulls images, serves HTTP
and answers the operator. Called by tests. Needs a Rust toolchain and a C compiler for the build, which happens once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.crates import CrateBuild, lacking, source_file, sources_digest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.owned_process import OwnedProcess
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.processes import alive, spawn
from trellis_dev.localcluster.readiness import wait_ready

PROGRAM: Final = "trellis-v2-host"
_PROJECT: Final = "v2host"
_SOURCES: Final = (
    "Cargo.toml",
    "crates.lock",
    *(f"src/{name}.rs" for name in ("http", "main", "messages", "workloads")),
)
_HINT: Final = "The host is built once, from crates: this needs a crate registry, a C compiler and 3 GB of free disk."
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_STARTED: Final = re.compile(r'Host started host_id="([^"]+)" friendly_name="([^"]+)"')


def missing() -> str | None:
    """Return in one line why this machine cannot build the host; None if it can, or it is built."""
    if _path().exists():
        return None
    lacks = lacking(("cargo", "cc"))
    return f"a wasmCloud v2 host cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def v2_host(how: How) -> Path:
    """Return the program; build it if it is not in the cache.

    Raises:
        ToolError: a build dependency is missing, or the build fails. AbortedError: stop was requested.
    """
    reason = missing()
    if reason is not None:
        raise ToolError(reason)
    step = f"build {PROGRAM}"
    return make_once(_path(), step, how, lambda target, log: _build(target, log, step, how))


@dataclass(frozen=True)
class V2HostOptions:
    """Options of a host.

    ``address``: of its HTTP server and in its heartbeats. It receives a free port. ``environment``: the namespace whose
    workloads it runs. ``heartbeat``: seconds between heartbeats. ``pull_timeout``: seconds after which a pull fails.
    """

    nats_url: str
    host_group: str = "default"
    environment: str = ""
    address: str = LOOPBACK
    heartbeat: float = 15.0
    pull_timeout: float = 30.0


class V2Host(OwnedProcess):
    """One host. A graceful stop ends it at once and it reports nothing, as the real one.

    ``id`` and ``friendly_name`` are new at each start, as those of a pod; ``port`` is that of HTTP.
    """

    def __init__(self, program: Path, directory: Path, options: V2HostOptions) -> None:
        super().__init__(directory, _STOP_SECONDS)
        self._program = program
        self.options = options
        self.id = ""
        self.friendly_name = ""

    @property
    def log(self) -> Path:
        """File with the log of all starts."""
        return self._directory / f"{PROGRAM}.log"

    @property
    def runs(self) -> bool:
        """True while its process exists."""
        return self._process is not None and alive(self._process)

    def start(self) -> None:
        """Start the host on its port, and wait until it answers requests.

        Raises:
            StartError: it ended, for example because NATS is unreachable, or is not ready within 30 s.
        """
        if self.runs:
            return
        position = self.log.stat().st_size if self.log.exists() else 0
        self._process = spawn(self._arguments(), log=self.log, token=self._token)
        wait_ready(PROGRAM, lambda: self._read_identity(position), self._process, (self.log, position), _START_SECONDS)

    def _arguments(self) -> list[str]:
        options = self.options
        return [
            str(self._program),
            *("--nats-url", options.nats_url),
            *("--host-group", options.host_group),
            *("--http-addr", f"{options.address}:{self.port}"),
            *("--host-name", options.address),
            *("--environment", options.environment),
            *("--heartbeat", str(options.heartbeat)),
            *("--registry-pull-timeout", str(options.pull_timeout)),
        ]

    def _read_identity(self, position: int) -> bool:
        with self.log.open("rb") as file:
            file.seek(position)
            found = _STARTED.search(file.read().decode(errors="replace"))
        if found is not None:
            self.id, self.friendly_name = found.groups()
        return found is not None


def _build(target: Path, log: Path, step: str, how: How) -> None:
    work = cache_root() / "build" / f"{_path().name}.work"
    build = CrateBuild(source_file(_PROJECT), work, log, step, _HINT, how)
    try:
        (build.run([]) / "debug" / PROGRAM).rename(target)
    finally:
        build.clean()


def _path() -> Path:
    """Return the cache path of the program; its name contains a digest of its sources."""
    return cache_root() / "bin" / f"{PROGRAM}-{sources_digest(source_file(_PROJECT), _SOURCES)}"
