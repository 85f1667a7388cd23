"""The parts of ``bench/watch.py``: Nodes as large as real ones, processes that answer, the peer's compilation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil

from trellis.kube.resources import Manifest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.gotoolchain import Go

HERE = Path(__file__).parent


def note(text: str) -> None:
    print(f"    … {text}", file=sys.stderr, flush=True)


def real_node(name: str) -> Manifest:
    """A Node as large as kubelets make them (6.7 kB): labels of a cloud, conditions, addresses, 30 images."""
    capacity = {"cpu": "8", "ephemeral-storage": "104845292Ki", "hugepages-2Mi": "0", "memory": "32Gi", "pods": "110"}
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": "eu-central-1a",
    }
    annotations = {
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "csi.volume.kubernetes.io/nodeid": json.dumps({"ebs.csi.aws.com": f"i-{name}"}),
    }
    moment = "2026-01-01T00:00:00Z"
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": f"Kubelet{kind}",
            "message": f"kubelet has sufficient resources: {kind}",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }
        for kind, status in (
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        )
    ]
    images = [
        {
            "names": [
                f"registry.example.com/team-{index}/service@sha256:{index:064x}",
                f"registry.example.com/s:{index}",
            ],
            "sizeBytes": 10_000_000 + index,
        }
        for index in range(30)
    ]
    status = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
        "allocatable": capacity,
        "capacity": capacity,
        "conditions": conditions,
        "images": images,
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "b9cf1d0d-0000-0000-0000-000000000000",
            "containerRuntimeVersion": "containerd://2.0.0",
            "kernelVersion": "6.8.0-1021-aws",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3",
            "machineID": "ec2f9d2b0d1b4e0f8a0a1b2c3d4e5f60",
            "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.1 LTS",
            "systemUUID": "ec2f9d2b-0d1b-4e0f-8a0a-1b2c3d4e5f60",
        },
    }
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


class Process:
    """A process that answers commands, and what it holds."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._memory = psutil.Process(process.pid)

    async def ask(self, *command: object) -> dict[str, Any]:
        """Give a command and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, command)) + "\n").encode())
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        """Return its next message."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise SystemExit("a process of the benchmark ended by itself; its output is above")
        found: dict[str, Any] = json.loads(line)
        return found

    def resident(self) -> float:
        """MiB now."""
        return self._memory.memory_info().rss / 2**20

    def forget_peak(self) -> None:
        """Reset the peak: man 5 proc, clear_refs."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def peak(self) -> float:
        """MiB at most since then."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def processor_seconds(self) -> float:
        """Return the processor time so far."""
        times = self._memory.cpu_times()
        return times.user + times.system


@contextlib.asynccontextmanager
async def process(command: list[str]) -> AsyncIterator[Process]:
    started = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26
    )
    try:
        found = Process(started)
        await found.answer()
        yield found
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def build_peer(folder: Path) -> Path | None:
    """Compile the peer with the versions and hashes beside it; None, with a word, where that cannot be."""
    go = shutil.which("go")
    if go is None:
        note("no Go on the PATH: client-go is left out")
        return None
    module = folder / "clientgo"
    shutil.copytree(HERE / "peers" / "clientgo", module)
    try:
        Go(Path(go), module, folder / "go.log", threading.Event()).run(
            ["build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", str(folder / "peer"), "."]
        )
    except ToolError as error:
        note(f"client-go is left out: {error}")
        return None
    return folder / "peer"
