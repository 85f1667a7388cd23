"""Runs the real installer on a real node: its image in a privileged Job, as the provisioner makes one."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.nodes.installer_image import INSTALLER
from support.nodes.node_trees import tree
from support.nodes.real_nodes import Kubectl, RealNode, containerd_restarts, eventually
from trellis.installer_api.result import InstallResult, parse_result
from trellis_dev.localcluster.realnode_faults import inspect

NODE: Final = "real-0"
MEMORY: Final = "128Mi"
"""What the provisioner allows an installer by default."""


@dataclass(frozen=True)
class Ended:
    """The end of a Job's container: its exit code, its termination message, and its output."""

    code: int
    result: InstallResult
    log: str


@dataclass(frozen=True)
class InstallerJobs:
    """Installer Jobs on one node of one cluster; those it starts itself are for the first node."""

    real: RealNode

    @property
    def kubectl(self) -> Kubectl:
        """Commands for its cluster."""
        return self.real.kubectl

    def run(self, name: str, *arguments: str, spec: Mapping[str, Any] | None = None) -> Ended:
        """Run the installer to its end; its Job is deleted afterwards."""
        self.start(name, *arguments, spec=spec)
        ended = self.ended(name)
        print(f"--- {name}: {ended.result}\n{ended.log}")  # noqa: T201 (for who reads a failure)
        self.kubectl("delete", "job", name, "--wait=false")
        return ended

    def start(self, name: str, *arguments: str, spec: Mapping[str, Any] | None = None) -> None:
        """Create the Job."""
        self.kubectl.create(installer_job(name, list(arguments), spec))

    def ended(self, name: str) -> Ended:
        """Wait until the Job's pod has ended."""

        def terminated() -> dict[str, Any]:
            pods = json.loads(self.kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json"))["items"]
            for pod in pods:
                for status in pod["status"].get("containerStatuses", []):
                    return dict(status["state"].get("terminated") or {})
            return {}

        eventually(terminated, f"the installer of Job {name} ends")
        state, log = terminated(), self.kubectl("logs", f"job/{name}")
        result = parse_result(state.get("message", ""))
        assert result is not None, f"no result in {state}, log: {log}"
        return Ended(state["exitCode"], result, log)

    def restarts(self) -> int:
        """Return how often containerd was started on the node; restarts are the difference."""
        return containerd_restarts(self.real)

    def root(self) -> Path:
        """Return the node's root as it sees it itself."""
        return Path(f"/proc/{inspect(self.real.cluster.name, self.real.name).pids['init']}/root")

    def tree(self) -> dict[str, str]:
        """Return what differs on the node's disk from what all nodes have."""
        return tree(self.real)


def hanging_program(architecture: str) -> bytes:
    """Return a program for a Linux machine that loops for ever, whatever it is asked."""
    machine, loop = {"amd64": (62, b"\xeb\xfe"), "arm64": (183, b"\x00\x00\x00\x14")}[architecture]
    base, start = 0x400000, 64 + 56
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, base + start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = start + len(loop)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000) + loop


def installer_job(name: str, arguments: list[str], spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an installer Job with all that the provisioner gives one."""
    env = [{"name": "NODE_ROOT", "value": "/mnt/node-root"}]
    if spec is not None:
        env.append({"name": "TRELLIS_INSTALLER_SPEC", "value": json.dumps(spec)})
    container = {
        "name": "installer",
        "image": INSTALLER,
        "args": arguments,
        "imagePullPolicy": "Never",
        "env": env,
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "50m", "memory": MEMORY}, "limits": {"memory": MEMORY}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "node-root", "mountPath": "/mnt/node-root"}],
    }
    pod = {
        "nodeName": NODE,
        "hostPID": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "node-root", "hostPath": {"path": "/", "type": "Directory"}}],
        "containers": [container],
    }
    job = {"backoffLimit": 0, "activeDeadlineSeconds": 300, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}
