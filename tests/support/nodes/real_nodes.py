"""Parts of tests of real nodes: run pods and Jobs on them, read their output, read the remains on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.node_images import BOX, HELLO_WASM
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.supervisor import marked, trunk

INSTALLER = {"securityContext": {"privileged": True}, "volumeMounts": [{"name": "node", "mountPath": "/mnt/node-root"}]}
"""How an installer's container sees its node."""

SHIM_IMAGE = "trellis.local/shim:1"
"""An image with the shim's program at its top."""
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "wasi"},
    "handler": "wasi",
}
# The kubelet runs the container again if containerd was restarted before it had recorded that the container runs.
_INSTALL_SHIM = """
case "$(cat /mnt/node-root/etc/containerd/config.toml)" in *containerd-shim-wasi-v1*) exit ;; esac
bin=/mnt/node-root/opt/kwasm/bin
mkdir -p $bin
cp /containerd-shim-wasi-v1 $bin/.new
mv $bin/.new $bin/containerd-shim-wasi-v1
cat >> /mnt/node-root/etc/containerd/config.toml <<END

[plugins.'{plugin}'.containerd.runtimes.wasi]
runtime_type = '/opt/kwasm/bin/containerd-shim-wasi-v1'
END
nsenter -t 1 -m -u -i -n -p -- systemctl restart containerd
"""


def eventually(check: Callable[[], object], what: str, seconds: float = 300) -> None:
    """Wait until ``check`` holds, or fail with ``what``; waiting tests share this machine."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


class Kubectl:
    """The cluster as its administrator sees it."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._command = [str(cluster.bin_dir / "kubectl"), "--kubeconfig", str(cluster.kubeconfig)]

    def __call__(self, *arguments: str, given: Mapping[str, Any] | None = None) -> str:
        """Run kubectl; return its standard output."""
        text = json.dumps(given) if given is not None else None
        answer = subprocess.run([*self._command, *arguments], input=text, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, f"kubectl {' '.join(arguments)}: {answer.stderr}"
        return answer.stdout

    @contextmanager
    def watching(self, file: Path, *arguments: str) -> Iterator[None]:
        """Write each change of some objects into a file while the block runs, those that exist at its begin first.

        The API server ends the watches of a kind whose definition changes, as it does in an upgrade: it is restarted.
        """
        command = [*self._command, "get", *arguments, "--watch", "--output-watch-events", "-o", "json"]
        running: list[subprocess.Popen[bytes]] = []
        over, failed = threading.Event(), list[int]()

        def watch(output: BinaryIO) -> None:
            while not over.is_set():
                process = subprocess.Popen(command, stdout=output)
                running.append(process)
                if over.is_set():
                    process.terminate()
                status = process.wait()
                if status != 0 and not over.is_set():
                    failed.append(status)
                    return

        with file.open("wb") as output:
            thread = threading.Thread(target=watch, args=[output])
            thread.start()
            try:
                yield
                assert not failed, f"kubectl get {' '.join(arguments)} --watch ended by itself, with {failed}"
            finally:
                over.set()
                for process in running:
                    process.terminate()
                thread.join(timeout=20)

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create an object."""
        self("create", "-f", "-", given=manifest)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def phase(self, pod: str) -> str:
        """Return a pod's phase, with the reason while a container waits."""
        status = self.get("pod", pod)["status"]
        waiting = [c["state"].get("waiting", {}).get("reason", "") for c in status.get("containerStatuses", [])]
        return " ".join([str(status.get("phase")), *filter(None, waiting)])

    def succeeded(self, job: str) -> bool:
        """Return whether a Job is done; fail with its output if it failed."""
        status = self.get("job", job)["status"]
        assert not status.get("failed"), self("logs", f"job/{job}")
        return bool(status.get("succeeded"))

    def ended(self, pod: str) -> str:
        """Wait until a pod has succeeded; return its output."""
        eventually(lambda: self.phase(pod).startswith(("Succeeded", "Failed")), f"pod {pod} ends")
        log = self("logs", pod)
        assert self.phase(pod) == "Succeeded", f"pod {pod}: {log}"
        return log

    def running(self, pod: str) -> str:
        """Wait until a pod is ready; return its address."""

        def ready() -> bool:
            conditions = self.get("pod", pod)["status"].get("conditions", [])
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        eventually(ready, f"pod {pod} is ready")
        address: str = self.get("pod", pod)["status"]["podIP"]
        return address

    def ready(self, node: str) -> str:
        """Return the status of a node's Ready condition."""
        conditions = self.get("node", node)["status"]["conditions"]
        return next(str(c["status"]) for c in conditions if c["type"] == "Ready")

    def handlers(self, node: str) -> set[str]:
        """Return the runtime handlers that a node's status lists."""
        return {handler["name"] for handler in self.get("node", node)["status"].get("runtimeHandlers", [])}


def pod(name: str, script: str, node: str, **container: Any) -> dict[str, Any]:
    """Return a pod of one container that runs a shell script on a node."""
    main = {
        "name": "main",
        "image": BOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-euc", script],
        **container,
    }
    spec = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def installer_job(name: str, script: str, node: str, image: str = BOX) -> dict[str, Any]:
    """Return a privileged Job in the node's pid namespace with its root at /mnt/node-root, as installers are run."""
    spec = pod(name, script, node, image=image, **INSTALLER)["spec"]
    spec |= {"hostPID": True, "volumes": [{"name": "node", "hostPath": {"path": "/"}}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    job = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}


def shim_job(node: str, plugin: str) -> dict[str, Any]:
    """Return a Job that installs the shim, adds it to the configuration of this CRI plugin, and restarts containerd."""
    return installer_job("install", _INSTALL_SHIM.format(plugin=plugin), node, image=SHIM_IMAGE)


def wasm_pod(name: str, node: str, runtime_class: str | None = None) -> dict[str, Any]:
    """Return a pod that prints ``hello from wasm``, if what runs it can run Wasm."""
    manifest = pod(name, "", node, image=HELLO_WASM)
    del manifest["spec"]["containers"][0]["command"]
    if runtime_class is not None:
        manifest["spec"]["runtimeClassName"] = runtime_class
    return manifest


@dataclass(frozen=True)
class RealNode:
    """One real node of a cluster; what is asked of it below, but for pods, is answered while it is off, too."""

    cluster: ClusterInfo
    name: str = "real-0"

    @property
    def kubectl(self) -> Kubectl:
        """Commands for its cluster."""
        return Kubectl(self.cluster)


def containerd_restarts(node: RealNode) -> int:
    """Return how often containerd was started on a node since it was made, in vain too; restarts are the difference."""
    log = Layout.of(node.cluster.name).node(node.name) / "disk/log/containerd.log"
    return log.read_text(encoding="utf-8", errors="replace").count('msg="starting containerd"')


def runtime_handlers(node: RealNode) -> set[str]:
    """Return the runtime handlers in the Node's status; containerd 1.6 lists none."""
    return node.kubectl.handlers(node.name)


def run_wasm_pod(node: RealNode, runtime_class: str) -> str:
    """Return the output of the Wasm pod, once it has succeeded on a node, and delete it. The node has its image."""
    name = f"wasm-{secrets.token_hex(4)}"
    node.kubectl.create(wasm_pod(name, node.name, runtime_class))
    try:
        return node.kubectl.ended(name)
    finally:
        node.kubectl("delete", "pod", name, "--now", "--wait=false")


def wasm_pod_trouble(node: RealNode, runtime_class: str, seconds: float = 60) -> str:
    """Return why the Wasm pod cannot be started on a node: what the kubelet reports first; delete the pod."""
    name = f"wasm-{secrets.token_hex(4)}"
    node.kubectl.create(wasm_pod(name, node.name, runtime_class))
    selector = f"involvedObject.name={name},type=Warning"

    def warnings() -> list[str]:
        events = json.loads(node.kubectl("get", "events", "--field-selector", selector, "-o", "json"))["items"]
        return [f"{event['reason']}: {event['message']}" for event in events]

    try:
        eventually(warnings, f"pod {name} is in trouble, but is {node.kubectl.phase(name)}", seconds)
        return warnings()[0]
    finally:
        node.kubectl("delete", "pod", name, "--force", "--grace-period=0", "--wait=false")


def fingerprint(*roots: str) -> dict[str, str]:
    """Return what there is below these directories of this machine: path → kind, mode, owner and content."""
    found = {}
    for root in roots:
        for top, directories, files in os.walk(root):
            for name in (*directories, *files):
                path = Path(top, name)
                status = path.lstat()
                content = "" if path.is_symlink() or not path.is_file() else _digest(path)
                target = str(path.readlink()) if path.is_symlink() else ""
                found[str(path)] = f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {target}{content}"
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def namespaces(pids: Sequence[int]) -> set[str]:
    """Return the namespaces that these processes have and this one has not."""
    kinds = ("net", "mnt", "pid", "uts", "ipc", "cgroup")
    ours = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}
    return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for pid in pids for kind in kinds} - ours


def remains(token: str, root: Path, former: set[str]) -> list[str]:
    """Return what is left on this machine of a cluster with real nodes: nothing, if all is well."""
    left = [f"process {pid}" for pid in marked(token)]
    left += [f"file {path}" for path in (root, root.with_name(f".{token}")) if path.exists()]
    for top, names, _ in os.walk("/sys/fs/cgroup"):
        left += [f"control group {top}/{name}" for name in names if name == trunk(token)]
    for process in psutil.process_iter():
        for file in (f"/proc/{process.pid}/ns/{kind}" for kind in ("net", "mnt", "pid", "uts", "ipc", "cgroup")):
            try:
                namespace = str(Path(file).readlink())
            except OSError:
                continue  # it ended meanwhile, or is a zombie
            if namespace in former:
                left.append(f"namespace {namespace} of process {process.pid}")
    left += [f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(root) in line]
    return left


def interfaces() -> set[str]:
    """Return this machine's network interfaces."""
    return {path.name for path in Path("/sys/class/net").iterdir()}
