"""wasmCloud lattices of a local cluster: one wadm for all, and hosts, on the cluster's NATS.

In: names of lattices, how many hosts each. Out: processes that answer, ``wadm`` and ``host-<lattice>-<n>``. Called by
`up` and, with a NATS of their own, by tests. Invariant: a host that starts has a new id, as a pod's has, and the state
knows it before anyone waits for it; its seed is in a file of ours that nobody else can read.
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
_SECRETS_TOPIC: Final = "wasmcloud.secrets"  # as hosts of a group are started
# Part of subjects and of the names of KV buckets, and of processes and their files.
_LATTICE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_LABEL: Final = re.compile(r"[^=\s]+")


@dataclass(frozen=True)
class Lattices:
    """Which lattices a cluster is to have, with how many hosts each, and the labels of hosts that are made for it."""

    names: tuple[str, ...] = ("default",)
    hosts: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what the servers would stumble over later.

        Raises:
            LocalClusterError: if a name cannot be a lattice's, or a label's key is none.
        """
        for name in self.names:
            if _LATTICE.fullmatch(name) is None:
                raise LocalClusterError(
                    f"'{name}' cannot be the name of a lattice: use 1 to 40 letters, digits, '-' and '_'"
                )
        for key in self.labels:
            if _LABEL.fullmatch(key) is None or key.lower().startswith("hostcore."):
                raise LocalClusterError(f"'{key}' cannot be a host's label: no space, no '=', and not hostcore.…")


@dataclass(frozen=True)
class Place:
    """Where lattice servers run: their programs, a NATS server's port, the directories and the mark of processes."""

    programs: Path
    port: int
    logs: Path
    private: Path
    token: str
    abort: threading.Event

    def start(self, name: str, argv: list[str], started: Callable[[ProcessRecord], None]) -> Callable[[Check], None]:
        """Start a program, tell ``started``, and return what waits until a check says that it is ready."""
        log = self.logs / f"{name}.log"
        position = log.stat().st_size if log.exists() else 0
        process = spawn([str(self.programs / argv[0]), *argv[1:]], log=log, token=self.token)
        started(process)
        return lambda check: wait_ready(name, check, process, (log, position), _READY_SECONDS, self.abort)


Check = Callable[[], bool]
Started = Callable[[ProcessRecord], None]
Wait = Callable[[], None]


def start_wadm(place: Place, started: Started, arguments: Sequence[str] = ()) -> Wait:
    """Start wadm; return what waits until it answers those who give NATS no credentials.

    ``arguments``: in place of those for a NATS that asks for none.

    The wait raises StartError if it ends or does not answer within 90 s, AbortedError if asked to stop.
    """
    given = arguments or ["--nats-server", f"{LOOPBACK}:{place.port}"]
    waiting = place.start(WADM, [WADM, *given], started)
    return lambda: waiting(lambda: _succeeds(place.port, "wadm.api.default.model.get", "result", "success"))


def start_host(place: Place, host: LatticeHost, started: Callable[[LatticeHost, ProcessRecord], None]) -> Wait:
    """Start a host with a new id; ``started`` gets it with that id. Return what waits until it answers in its lattice.

    The wait raises as that of :func:`start_wadm`.
    """
    key = SigningKey.generate()
    new = host.model_copy(update={"id": encode_public(Prefix.HOST, key.verify_key.encode())})
    seed_file = place.private / f"{host.name}.seed"
    seed_file.unlink(missing_ok=True)
    write_private(seed_file, encode_seed(Prefix.HOST, key.encode()).encode())
    argv = [HOST, "--nats", f"nats://{LOOPBACK}:{place.port}", "--lattice", host.lattice, "--allow-file-load"]
    argv += ["--heartbeat", str(host.heartbeat), "--seed-file", str(seed_file)]
    argv += ["--secrets-topic", _SECRETS_TOPIC]
    argv += [f"--label={key}={value}" for key, value in host.labels.items()]
    waiting = place.start(host.name, argv, lambda process: started(new, process))
    subject = f"wasmbus.ctl.v1.{host.lattice}.host.get.{new.id}"
    return lambda: waiting(lambda: _succeeds(place.port, subject, "success", True))


def ensure_lattices(layout: Layout, state: ClusterState, wanted: Lattices | None, how: How) -> None:
    """Have wadm and the wanted hosts run, and those that ran before; wait until all answer.

    Raises:
        StartError: if one ends, or does not answer in time, with the end of its log.
    """
    if wanted is not None:
        state.lattices = sorted({*state.lattices, *wanted.names})
        for host in _hosts(wanted):
            state.hosts.setdefault(host.name, host)
    names = [WADM, *state.hosts] if state.lattices else []
    ended = [name for name in names if name not in state.processes or not alive(state.processes[name])]
    start_parts(layout, state, ended, how)


def start_parts(layout: Layout, state: ClusterState, names: Iterable[str], how: How) -> None:
    """Start wadm and hosts that do not run, at once; wait until all answer. Raises as :func:`ensure_lattices`."""
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
        said = json.loads(reply)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get(key) == value
