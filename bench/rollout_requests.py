"""Requests that are lost while a Shim changes beneath a Wasm HTTP server: ``python bench/rollout_requests.py``.

In: nothing; it starts three real nodes on this machine (root, Linux) with kubelet, containerd and kube-proxy, and the
services beside them. Out: requests and losses of each rollout, with ``drain`` and without, and the machine, on stdout;
exit status 1 if a rollout that is to lose none loses one, or is halted. The server is a component with a listening
socket. Requests go from the network of one node to the address of a Service, each with a connection of its own, at a
fixed rate; a request is lost if it has no answer with status 200 within three seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from machine import describe
from provisioner.timings import RolloutPodTimings
from support.nodes.http_wasm import PORT, http_deployment, http_image, http_service, missing
from support.nodes.real_nodes import eventually
from support.nodes.rollouts import World, rollout_world
from trellis.provisioning.shim_status import Reason
from trellis_dev.localcluster import requirements, wasmshim
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import inspect, load_image

SHIM: Final = "http"
VERSIONS: Final = ("v1", "v2")
INTERVAL: Final = 0.05
"""Seconds between two requests to a Service."""
TIMEOUT: Final = 3.0
AROUND: Final = 3.0
"""Seconds of requests before and after a rollout."""
SETTLE: Final = RolloutPodTimings().settle
WORKLOAD_TIMEOUT: Final = "60s"


@dataclass(frozen=True)
class Workload:
    """A Deployment with its Service. ``apart``: its pods are on different nodes, and one node has none."""

    name: str
    replicas: int
    apart: bool
    text: str


WORKLOADS: Final = (
    Workload("spread", 6, apart=False, text="6 pods, placed by default"),
    Workload("apart", 2, apart=True, text="2 pods, on different nodes of three"),
)


@dataclass(frozen=True)
class Change:
    """A rollout. ``restart``: containerd's configuration changes, too.

    ``limited``: it must be complete, and no request may be lost.
    """

    drain: bool
    restart: bool
    limited: bool = False

    @property
    def text(self) -> str:
        """Its name in the table."""
        return f"{'program and options' if self.restart else 'program'}, {'drain' if self.drain else 'no drain'}"


CHANGES: Final = (
    Change(drain=False, restart=False, limited=True),
    Change(drain=True, restart=False, limited=True),
    Change(drain=True, restart=True, limited=True),
    Change(drain=False, restart=True),
)


@dataclass
class Answers:
    """Results of the requests to one Service. ``lost``: by error."""

    sent: int = 0
    lost: Counter[str] = field(default_factory=Counter)


async def request(host: str) -> str:
    """Send one request; return why it is lost, "" if it is answered."""
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(host, PORT)
            try:
                writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
                return "" if b" 200 " in status else f"answer {status.decode(errors='replace').strip()!r}"
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        return type(error).__name__


async def send(hosts: list[str]) -> dict[str, Any]:
    """Send requests to each host at a fixed rate until standard input ends."""
    answers = {host: Answers() for host in hosts}
    over = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    running: set[asyncio.Task[None]] = set()

    async def one(host: str) -> None:
        answers[host].sent += 1
        if error := await request(host):
            answers[host].lost[error] += 1

    due = time.monotonic()
    while not over.done():
        for host in hosts:
            task = asyncio.create_task(one(host))
            running.add(task)
            task.add_done_callback(running.discard)
        due += INTERVAL
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.gather(*running)
    return {host: vars(found) for host, found in answers.items()}


@contextmanager
def requests(world: World, hosts: list[str]) -> Iterator[dict[str, Answers]]:
    """Send requests from the network of a node while the block runs; then what came of them is in the dictionary."""
    pid = inspect(world.info.name, world.nodes[0]).pids["init"]
    command = ["nsenter", "--target", str(pid), "--net", "--", sys.executable, __file__, "--send", *hosts]
    found: dict[str, Answers] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield found
            output, _ = process.communicate(timeout=2 * TIMEOUT + 10)
        finally:
            process.kill()
    for host, of in json.loads(output).items():
        found[host] = Answers(of["sent"], Counter(of["lost"]))


def shim(world: World, version: str, change: Change, number: int) -> dict[str, Any]:
    """Return the Shim of a rollout; other options of the runtime, which it ignores, restart containerd."""
    rolling = {"maxUpdate": 1, "drain": change.drain, "workloadTimeout": WORKLOAD_TIMEOUT}
    strategy = {"type": "rolling", "rolling": rolling}
    options = {"SystemdCgroup": "false", "Number": str(number)}  # runwasi accepts none without the first
    return world.shim(SHIM, version, rolloutStrategy=strategy, containerdRuntimeOptions=options)


def pods(world: World, name: str) -> list[dict[str, Any]]:
    """Return the pods of a workload."""
    return list(json.loads(world.kubectl("get", "pods", "-l", f"app={name}", "-o", "json"))["items"])


def ready(world: World, workload: Workload, replicas: int, seconds: float = 0.0) -> bool:
    """Return whether a workload has so many pods, all ready for so many seconds, and no further pods."""
    found = pods(world, workload.name)
    conditions = [c for pod in found for c in pod["status"].get("conditions", []) if c["type"] == "Ready"]
    now = datetime.now(UTC)
    since = [now - datetime.fromisoformat(c["lastTransitionTime"]) for c in conditions if c["status"] == "True"]
    waited = min((item.total_seconds() for item in since), default=seconds + 1)
    return len(found) == len(since) == replicas and waited > seconds


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod is ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def settle(world: World) -> None:
    """Wait until exactly the pods of both workloads are ready for long enough to be recorded."""
    eventually(lambda: all(ready(world, of, of.replicas, SETTLE) for of in WORKLOADS), "all pods are ready")


def outcome(world: World, version: str) -> str:
    """Return how a rollout ended: complete, or halted; "" while it is in progress."""
    wanted = world.files.sha256(version)
    if world.condition(SHIM, "Degraded").startswith(f"True {Reason.WORKLOAD_NOT_READY}"):
        return "halted"
    everywhere = all(world.installed(SHIM, node) == wanted for node in world.nodes)
    complete = world.condition(SHIM, "Progressing").startswith(f"False {Reason.UPDATED}: {len(world.nodes)} of")
    return "complete" if everywhere and complete else ""


def repair(world: World, version: str) -> None:
    """Replace the pods that do not become ready again, until the rollout is complete."""
    deadline = time.monotonic() + 600
    while outcome(world, version) != "complete":
        assert time.monotonic() < deadline, "the rollout does not become complete"
        for workload in WORKLOADS:
            for pod in pods(world, workload.name):
                status = pod["status"].get("containerStatuses", [{}])[0]
                if status.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff":
                    world.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
        time.sleep(2)


def restart_counts(world: World, workload: Workload) -> dict[str, int]:
    """Return how often the containers of each pod were restarted, by its UID."""
    return {
        pod["metadata"]["uid"]: sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))
        for pod in pods(world, workload.name)
    }


@dataclass(frozen=True)
class Result:
    """Effect of one rollout on one workload. ``outcome``: complete or halted.

    ``ended``: containers that ended in remaining pods. ``unready``: pods that are not ready after it.
    """

    change: Change
    outcome: str
    workload: Workload
    answers: Answers
    ended: int
    unready: int

    @property
    def kept(self) -> bool:
        """Return whether the limit is kept."""
        return not self.change.limited or (self.outcome == "complete" and not self.answers.lost)

    def __str__(self) -> str:
        """Return the line of the table."""
        lost = self.answers.lost
        errors = f" ({', '.join(f'{count} {error}' for error, count in sorted(lost.items()))})" if lost else ""
        return (
            f"{self.workload.text:<36} containers restarted {self.ended:2d}   pods not ready after {self.unready}   "
            f"requests {self.answers.sent:5d}   lost {lost.total():4d}{errors}{'' if self.kept else '   MISSED'}"
        )


def roll_out(world: World, hosts: dict[str, str], number: int, change: Change) -> tuple[str, list[Result]]:
    """Roll out a version; return a heading, and what it did to each workload."""
    version = VERSIONS[number % len(VERSIONS)]
    settle(world)
    before = {workload: restart_counts(world, workload) for workload in WORKLOADS}
    restarts = sum(world.node(node).restarts() for node in world.nodes)
    with requests(world, [hosts[workload.name] for workload in WORKLOADS]) as answers:
        time.sleep(AROUND)
        began = time.monotonic()
        world.apply(shim(world, version, change, number if change.restart else 0))
        eventually(lambda: outcome(world, version), f"version {version} is on all nodes, or halted", 600)
        ended, seconds = outcome(world, version), time.monotonic() - began
        time.sleep(AROUND)
    restarts = sum(world.node(node).restarts() for node in world.nodes) - restarts
    results = []
    for workload in WORKLOADS:
        counts = restart_counts(world, workload)
        again = sum(count - before[workload].get(uid, 0) for uid, count in counts.items())
        unready = sum(1 for pod in pods(world, workload.name) if not is_ready(pod))
        results.append(Result(change, ended, workload, answers[hosts[workload.name]], again, unready))
    heading = f"{change.text}: {ended} after {seconds:.0f} s, {restarts} restarts of containerd"
    print(heading, *(f"  {result}" for result in results), sep="\n", flush=True)
    if change is not CHANGES[-1]:
        repair(world, version)
    return heading, results


def measure(folder: Path) -> list[tuple[str, list[Result]]]:
    """Start the nodes with the workloads, and roll out each change."""
    how = How(Lines(), threading.Event())
    (folder / "world").mkdir()
    with redirect_stdout(sys.stderr), rollout_world(folder / "world", real_nodes=3) as world:
        archive = http_image(folder, how)
        for node in world.nodes:
            load_image(world.info.name, node, archive)
        world.label(SHIM, *world.nodes)
        world.apply(shim(world, VERSIONS[0], CHANGES[0], 0))
        eventually(lambda: world.has(SHIM, *world.nodes), "every node has the first version")
        hosts = {}
        for workload in WORKLOADS:
            world.kubectl.create(http_deployment(workload.name, SHIM, workload.replicas, apart=workload.apart))
            world.kubectl.create(http_service(workload.name))
            hosts[workload.name] = str(world.kubectl.get("service", workload.name)["spec"]["clusterIP"])
        return [roll_out(world, hosts, number, change) for number, change in enumerate(CHANGES, 1)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--send", nargs="+", metavar="HOST", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        print(json.dumps(asyncio.run(send(options.send))))
        return 0
    if (reason := requirements.missing() or wasmshim.missing() or missing()) is not None:
        print(f"NOT RUN: {reason}", file=sys.stderr)
        return 2
    print(f"machine: {describe()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        rollouts = measure(Path(folder))
    for heading, results in rollouts:
        print(heading, *(f"  {result}" for result in results), sep="\n")
    kept = all(result.kept for _, results in rollouts for result in results)
    print(f"limit, 0 lost with drain, and without a restart: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
