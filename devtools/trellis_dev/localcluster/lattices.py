"""wasmCloud lattices of a local cluster: one wadm for all, and hosts, on the NATS of the cluster.

In: names of lattices, number of hosts each. Out: ready processes, ``wadm`` and ``host-<lattice>-<n>``. Called by `up`
and, with a separate NATS, by tests. Invariant: each started host has a new id, like that of a pod, which is in the
state before the readiness check; its seed is in a file that only the owner can read.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from trellis.config.nkey import Prefix, encode_public, encode_seed
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.certs import write_private
from trellis_dev.localcluster.errors import LocalClusterError
from trellis_dev.localcluster.lattice_servers import HOST, WADM
from trellis_dev.localcluster.nats_requests import request
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.processes import ProcessRecord, alive, spawn
from trellis_dev.localcluster.progress import stepping
from trellis_dev.localcluster.readiness import wait_ready
from trellis_dev.localcluster.state import ClusterState, LatticeHost, save

_READY_SECONDS: Final = 90.0
_SECRETS_TOPIC: Final = "wasmcloud.secrets"  # as for host groups
# Part of subjects, of the names of KV buckets, and of names of processes and files.
_LATTICE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_LABEL: Final = re.compile(r"[^=\s]+")


@dataclass(frozen=True)
class Lattices:
    """Lattices of a cluster, the number of hosts of each, and the labels of new hosts."""

    names: tuple[str, ...] = ("default",)
    hosts: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Reject names and labels that the servers do not accept.

        Raises:
            LocalClusterError: a lattice name or a label key is invalid.
        """
        for name in self.names:
            if _LATTICE.fullmatch(name) is None:
                raise LocalClusterError(
                    f"'{name}' is not a valid lattice name: use 1 to 40 letters, digits, '-' and '_'"
                )
        for key in self.labels:
            if _LABEL.fullmatch(key) is None or key.lower().startswith("hostcore."):
                raise LocalClusterError(f"'{key}' is not a valid host label: use no space, no '=', and not hostcore.…")


@dataclass(frozen=True)
class Place:
    """Environment of lattice servers: their programs, the port of a NATS server, directories, the process token."""

    programs: Path
    port: int
    logs: Path
    private: Path
    token: str
    abort: threading.Event

    def start(self, name: str, argv: list[str], started: Callable[[ProcessRecord], None]) -> Callable[[Check], None]:
        """Start a program, pass its record to ``started``, and return a function that waits until a check succeeds."""
        log = self.logs / f"{name}.log"
        position = log.stat().st_size if log.exists() else 0
        process = spawn([str(self.programs / argv[0]), *argv[1:]], log=log, token=self.token)
        started(process)
        return lambda check: wait_ready(name, check, process, (log, position), _READY_SECONDS, self.abort)


Check = Callable[[], bool]
Started = Callable[[ProcessRecord], None]
Wait = Callable[[], None]


def start_wadm(place: Place, started: Started, arguments: Sequence[str] = ()) -> Wait:
    """Start wadm; return a function that waits until it responds to clients without NATS credentials.

    ``arguments`` replace those for a NATS without authentication.

    The function raises StartError if wadm ends or does not respond within 90 s, AbortedError if stop was requested.
    """
    given = arguments or ["--nats-server", f"{LOOPBACK}:{place.port}"]
    waiting = place.start(WADM, [WADM, *given], started)
    return lambda: waiting(lambda: _succeeds(place.port, "wadm.api.default.model.get", "result", "success"))


def start_host(
    place: Place,
    host: LatticeHost,
    started: Callable[[LatticeHost, ProcessRecord], None],
    arguments: Sequence[str] = (),
) -> Wait:
    """Start a host with a new id; ``started`` receives both. Return a function that waits until it responds.

    ``arguments``: further options of the host. The function raises the errors of :func:`start_wadm`.
    """
    key = SigningKey.generate()
    new = host.model_copy(update={"id": encode_public(Prefix.HOST, key.verify_key.encode())})
    seed_file = place.private / f"{host.name}.seed"
    seed_file.unlink(missing_ok=True)
    write_private(seed_file, encode_seed(Prefix.HOST, key.encode()).encode())
    argv = [HOST, "--nats", f"nats://{LOOPBACK}:{place.port}", "--lattice", host.lattice, "--allow-file-load"]
    argv += ["--heartbeat", str(host.heartbeat), "--seed-file", str(seed_file)]
    argv += ["--secrets-topic", _SECRETS_TOPIC]
    argv += [*(f"--label={key}={value}" for key, value in host.labels.items()), *arguments]
    waiting = place.start(host.name, argv, lambda process: started(new, process))
    subject = f"wasmbus.ctl.v1.{host.lattice}.host.get.{new.id}"
    return lambda: waiting(lambda: _succeeds(place.port, subject, "success", True))


def ensure_lattices(layout: Layout, state: ClusterState, wanted: Lattices | None, how: How) -> None:
    """Start wadm and the wanted hosts, and those that ran before; wait until all respond.

    Raises:
        StartError: one ended, or does not respond in time; with the end of its log.
    """
    if wanted is not None:
        state.lattices = sorted({*state.lattices, *wanted.names})
        for host in _hosts(wanted):
            state.hosts.setdefault(host.name, host)
    names = [WADM, *state.hosts] if state.lattices else []
    ended = [name for name in names if name not in state.processes or not alive(state.processes[name])]
    start_parts(layout, state, ended, how)


def start_parts(layout: Layout, state: ClusterState, names: Iterable[str], how: How) -> None:
    """Start stopped wadm and hosts concurrently; wait until all respond. Raise as :func:`ensure_lattices`."""
    place = Place(layout.bin, state.ports["nats"], layout.logs, layout.data, state.token, how.abort)

    def record(name: str, process: ProcessRecord) -> None:
        state.processes[name] = process
        save(layout, state)

    def record_host(host: LatticeHost, process: ProcessRecord) -> None:
        state.hosts[host.name] = host
        record(host.name, process)

    waits: list[tuple[str, Wait]] = []
    for name in names:
        if name == WADM:
            waits.append((name, start_wadm(place, lambda process: record(WADM, process))))
        else:
            waits.append((name, start_host(place, state.hosts[name], record_host)))
    for name, wait in waits:
        with stepping(how.progress, f"start {name}"):
            wait()


def is_part(state: ClusterState, name: str) -> bool:
    """Return whether a component is wadm or a host of this cluster."""
    return name == WADM or name in state.hosts


def _hosts(wanted: Lattices) -> list[LatticeHost]:
    labels = dict(wanted.labels)
    return [
        LatticeHost(name=f"host-{lattice}-{number}", lattice=lattice, labels=labels)
        for lattice in wanted.names
        for number in range(wanted.hosts)
    ]


def _succeeds(port: int, subject: str, key: str, value: object) -> bool:
    reply = request(port, subject)
    if reply is None:
        return False
    try:
        answer = json.loads(reply)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get(key) == value
