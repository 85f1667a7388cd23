"""Trellis under load: all services in one process, or each in its own; their memory, CPU, writes and events.

In: where the servers are, a directory. Out: processes, and counts of what they did so far. Called by ``run``.
Invariant: a count is of the processes that run now; it contains nothing of other processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from prometheus_client.parser import text_string_to_metric_families

from provision import free_port
from trellis.services import SERVICES
from trellis_dev.localcluster.ports import LOOPBACK

MIB: Final = 2**20
TOGETHER: Final = ""
_READS: Final = frozenset({"get", "list", "watch"})
_LEASES: Final = "leases"
_REVIEWS: Final = frozenset({"subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews", "tokenreviews"})
"""Questions that are asked by POST: nothing is stored."""
_END_SECONDS: Final = 60.0
_EVERYTHING: Final = (
    "from trellis.services import SERVICES; import trellis_cli.run.command, controller_host.guest.runtime; "
    "[one.load('app') for one in SERVICES.values()]"
)
_PAUSE: Final = 0.05


@dataclass(frozen=True)
class Count:
    """The work up to a moment. ``writes``: by verb and resource; ``messages``: to and from both NATS servers."""

    at: float
    processor: float
    writes: Counter[str]
    messages: int

    def since(self, former: Count) -> Count:
        """Return what was done from a moment to this one."""
        done = self.writes.copy()
        done.subtract(former.writes)
        return Count(self.at - former.at, self.processor - former.processor, +done, self.messages - former.messages)


@dataclass
class Bundle:
    """Processes by the service that runs in each, "" for all in one. ``monitors``: ports of the NATS servers' own."""

    processes: dict[str, psutil.Process]
    ports: dict[str, int]
    monitors: tuple[int, ...]
    began: float = field(default_factory=time.monotonic)

    def memory(self) -> tuple[float, float]:
        """Return MiB that are resident now, and the most that were."""
        now = sum(process.memory_info().rss for process in self.processes.values())
        return now / MIB, sum(_peak(process.pid) for process in self.processes.values())

    def count(self) -> Count:
        """Return what was done so far."""
        processor = sum(sum(process.cpu_times()[:2]) for process in self.processes.values())
        writes: Counter[str] = Counter()
        for labels, value in self._samples("trellis_kube_requests_total"):
            verb, resource = labels["verb"].lower(), labels["resource"]
            if verb not in _READS and resource != _LEASES and resource not in _REVIEWS:
                writes[f"{verb} {resource}"] += int(value)
        return Count(time.monotonic(), processor, writes, sum(map(_messages, self.monitors)))

    def waiting(self) -> float:
        """Return how many keys wait or run."""
        return sum(value for _, value in self._samples("trellis_queue_depth"))

    def ready(self) -> bool:
        """Return whether all are ready. Raises SystemExit if one ended."""
        for name, item in self.processes.items():
            if not item.is_running() or item.status() == psutil.STATUS_ZOMBIE:
                raise SystemExit(f"{name or 'the bundle'} ended by itself: see its log")
        return all(_ready(port) for port in self.ports.values())

    def _samples(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for port in self.ports.values():
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            wanted = "\n".join(line for line in text.splitlines() if line.startswith(name))
            for family in text_string_to_metric_families(wanted):
                for sample in family.samples:
                    yield sample.labels, sample.value


@contextlib.contextmanager
def running(
    environment: dict[str, str], directory: Path, monitors: tuple[int, ...], *, separate: bool
) -> Iterator[Bundle]:
    """Have it run for the time of a block; its logs are in the directory."""
    parts = (
        {service.name: [service.name] for service in SERVICES.values() if not service.only_if_named}
        if separate
        else {TOGETHER: []}
    )
    ports = {name: free_port() for name in parts}
    started: dict[str, subprocess.Popen[bytes]] = {}
    compiled = as_in_the_images(directory / "bytecode")
    began = time.monotonic()
    try:
        for name, services in parts.items():
            given = {**compiled, **environment, "TRELLIS_HEALTH_PORT": str(ports[name])}
            with (directory / f"{name or 'bundle'}.log").open("ab") as log:
                command = [sys.executable, "-m", "trellis_cli", "run", *services]
                started[name] = subprocess.Popen(command, env=given, stdout=log, stderr=log)
        yield Bundle({name: psutil.Process(item.pid) for name, item in started.items()}, ports, monitors, began)
    finally:
        for item in started.values():
            item.terminate()
        for item in started.values():
            item.wait(_END_SECONDS)


def as_in_the_images(directory: Path, python: str = sys.executable) -> dict[str, str]:
    """Return an environment in which all modules are compiled, as they are in the images; compiles them, once.

    A process that has to do that itself starts more than a second later, and keeps 15 MiB more.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory)
    if not directory.exists():
        subprocess.run([python, "-c", _EVERYTHING], env=environment, check=True)
    return environment


def until_ready(bundle: Bundle, seconds: float = 300) -> float:
    """Return how long it took from the start until all were ready.

    Raises:
        TimeoutError: they are not.
    """
    while not bundle.ready():
        if time.monotonic() > bundle.began + seconds:
            raise TimeoutError(f"not ready within {seconds} s")
        time.sleep(_PAUSE)
    return time.monotonic() - bundle.began


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=10):
            return True
    except OSError:
        return False


def _peak(pid: int) -> float:
    """Return the most MiB that were ever resident, as the kernel counted."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def _messages(port: int) -> int:
    """Return the messages that a NATS server took from connections of Trellis and sent to them, so far."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/connz?limit=4096", timeout=10) as answer:
        connections = json.load(answer)["connections"]
    ours = [connection for connection in connections if str(connection.get("name", "")).startswith("trellis-")]
    return sum(int(item["in_msgs"]) + int(item["out_msgs"]) for item in ours)
