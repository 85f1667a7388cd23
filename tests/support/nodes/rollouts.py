"""The services beside a cluster of real nodes, and a Shim that is applied, changed, deleted and watched.

In: a number of nodes and settings of the services. Out: a world in which Shims can be applied, while a block runs.
What a test concludes about order it reads from watches, which miss no state in between, never from polling.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.nodes.busy_wasm import busy_image
from support.nodes.https_files import HttpsFiles, http_files, machine_address
from support.nodes.installer_image import INSTALLER, installer_image
from support.nodes.installer_runs import NODE, InstallerJobs
from support.nodes.real_nodes import Kubectl, RealNode
from support.nodes.shim_archives import BROKEN
from support.nodes.shim_archives import program as broken_program
from support.suite.collectors import Collector, https_collector
from trellis import names
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import ClusterInfo, debian, owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import hello_wasm_image
from trellis_dev.localcluster.progress import Lines, Quiet
from trellis_dev.localcluster.realnode_faults import load_image
from trellis_dev.localcluster.wasmshim import hello_module, shim

INSTALLERS: Final = "trellis-installers"
SYSTEM: Final = "trellis-system"
SHIM_FOLDER: Final = "opt/trellis/bin"
_ENDED: Final = ("Complete", "Failed")


@dataclass(frozen=True)
class World:
    """A cluster of real nodes, the services at work, and a web server with the versions of a shim.

    ``log``: what the services say. ``collector``: where the installers' spans may go, if one was asked for.
    """

    info: ClusterInfo
    kubectl: Kubectl
    files: HttpsFiles
    log: Path
    collector: Collector | None = None

    def node(self, name: str = NODE) -> InstallerJobs:
        """Return what can be asked of a node."""
        return InstallerJobs(RealNode(self.info, name))

    @property
    def nodes(self) -> list[str]:
        """The nodes' names."""
        return [node.name for node in self.info.real_nodes]

    def shim(self, name: str, file: str, max_update: int = 1, **spec: Any) -> dict[str, Any]:
        """Return a Shim of a version, for the nodes labelled ``wasm=<name>`` unless ``spec`` says otherwise."""
        source = {"location": self.files.url(file), "sha256": self.files.sha256(file)}
        spec = {
            "nodeSelector": {"wasm": name},
            "fetchStrategy": {"type": "annonymousHttp", "anonHttp": source},
            "runtimeClass": {"name": name, "handler": name},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": max_update}},
            "verify": {"canary": True},  # these handlers' names do not say that they run WASI commands
            **spec,
        }
        return {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name}, "spec": spec}

    def apply(self, *shims: Mapping[str, Any]) -> None:
        """Apply Shims, all in one command."""
        given = {"apiVersion": "v1", "kind": "List", "items": list(shims)}
        self.kubectl("apply", "--server-side", "-f", "-", given=given)

    def conditions(self, name: str) -> dict[str, str]:
        """Return a Shim's conditions: status, reason and message of each."""
        status = self.kubectl.get("shim", name).get("status") or {}
        return {c["type"]: f"{c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions") or []}

    def condition(self, name: str, kind: str) -> str:
        """Return one of them, "" if there is none."""
        return self.conditions(name).get(kind, "")

    def label(self, value: str, *nodes: str) -> None:
        """Label nodes with ``wasm=<value>``."""
        self.kubectl("label", "node", *nodes, f"wasm={value}", "--overwrite")

    def labels(self, node: str = NODE) -> dict[str, str]:
        """Return a node's labels."""
        return dict(self.kubectl.get("node", node)["metadata"]["labels"])

    def annotations(self, node: str = NODE) -> dict[str, str]:
        """Return a node's annotations."""
        return dict(self.kubectl.get("node", node)["metadata"].get("annotations") or {})

    def has(self, name: str, *nodes: str) -> bool:
        """Return whether these nodes are labelled with a Shim."""
        return all(self.labels(node).get(name) == names.SHIM_PROVISIONED for node in nodes)

    def installed(self, name: str, node: str) -> str:
        """Return the checksum of the shim that is on a node's disk, "" if none is."""
        path = self.node(node).root() / SHIM_FOLDER / f"containerd-shim-{name}"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    def events(self, kind: str, name: str) -> list[str]:
        """Return reason and message of an object's Events."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = json.loads(self.kubectl("get", "events", "-A", "--field-selector", selector, "-o", "json"))
        return [f"{event.get('reason')}: {event.get('message')}" for event in found["items"]]

    def deleted(self, kind: str, name: str) -> bool:
        """Return whether the object does not exist."""
        return not self.kubectl("get", kind, name, "--ignore-not-found", "-o", "name")

    def jobs(self) -> list[dict[str, Any]]:
        """Return the installer Jobs."""
        return list(json.loads(self.kubectl("get", "jobs", "-n", INSTALLERS, "-o", "json"))["items"])

    @contextmanager
    def recorded(self) -> Iterator[Record]:
        """Watch the ledger and the Jobs while the block runs."""
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            record = Record(Path(folder, "ledger"), Path(folder, "jobs"))
            ledger = ["configmaps", "-n", SYSTEM, f"--field-selector=metadata.name={names.LEDGER}"]
            stack.enter_context(self.kubectl.watching(record.ledger, *ledger))
            stack.enter_context(self.kubectl.watching(record.jobs, "jobs", "-n", INSTALLERS))
            yield record


@dataclass(frozen=True)
class Record:
    """Changes that two watches reported, each in the order of its objects. ``ledger``, ``jobs``: files with them."""

    ledger: Path
    jobs: Path

    def most_in_progress(self) -> tuple[int, int]:
        """Return the most nodes in progress at a time: by the ledger's entries, and by Jobs that had not ended."""
        by_ledger = max((len(event["object"].get("data") or {}) for event in events(self.ledger)), default=0)
        active: set[str] = set()
        most = 0
        for event in events(self.jobs):
            job = event["object"]
            node = job["metadata"]["annotations"][names.ANNOTATION_NODE]
            conditions = job.get("status", {}).get("conditions") or []
            ended = any(c["type"] in _ENDED and c["status"] == "True" for c in conditions)
            (active.discard if ended or event["type"] == "DELETED" else active.add)(node)
            most = max(most, len(active))
        return by_ledger, most

    def created(self) -> list[str]:
        """Return the nodes of the Jobs that were made, in order."""
        made = (event["object"]["metadata"] for event in events(self.jobs) if event["type"] == "ADDED")
        return [metadata["annotations"][names.ANNOTATION_NODE] for metadata in made]


def events(file: Path) -> list[dict[str, Any]]:
    """Return the watch events that kubectl wrote so far: an object after another, the last perhaps not whole yet."""
    text, at, found = file.read_text(encoding="utf-8"), 0, []
    decoder = json.JSONDecoder()
    while at < len(text):
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        found.append(event)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


class Services:
    """`trellis run` beside the cluster."""

    def __init__(self, info: ClusterInfo, log: Path, **settings: str) -> None:
        base: Mapping[str, str] = {
            "TRELLIS_KUBECONFIG": str(info.kubeconfig),
            "TRELLIS_NATS_URL": info.nats_url,
            "TRELLIS_HEALTH_PORT": "0",
            "TRELLIS_NODE_INSTALLER_IMAGE": INSTALLER,
            "TRELLIS_INSTALLER_PULL_POLICY": "Never",
            "TRELLIS_ALLOW_HTTP": "true",
            "TRELLIS_RETRY_MIN": "2s",
            "TRELLIS_RETRY_MAX": "5s",
            "TRELLIS_JOB_RETRIES": "0",
        }
        more = {f"TRELLIS_{name.upper()}": value for name, value in settings.items()}
        self._environment = {**os.environ, **base, **more}
        self._log = log

    def __enter__(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trellis_cli", "run"], env=self._environment, stdout=output, stderr=output
            )

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            assert self._process.wait(timeout=40) == 0
        finally:
            self._process.kill()
            print(self._log.read_text(encoding="utf-8")[-40_000:])  # noqa: T201 (for who reads a failure)


@contextmanager
def rollout_world(
    folder: Path, *, real_nodes: int, containerd: str = "2", collector: bool = False, **settings: str
) -> Iterator[World]:
    """Have a cluster and the services for the time of a block; ``folder`` is an empty one for files and logs.

    ``{machine}`` in a setting stands for this machine's address on the nodes' network. With a ``collector`` the
    services send their spans to its Jaeger; ``{collector}`` is its own address, which the nodes reach.
    """
    how = How(Lines(), threading.Event())
    archives = _filled(folder, how)
    with ExitStack() as stack:
        info = stack.enter_context(owned_cluster(real_nodes=real_nodes, containerd=containerd, jaeger=collector))
        served = stack.enter_context(http_files(info, folder / "files"))
        spans = stack.enter_context(https_collector(info, folder / "tls")) if collector else None
        for node in info.real_nodes:
            for archive in archives:
                load_image(info.name, node.name, archive)
        define_kinds(info, Quiet())
        places = {"machine": machine_address(info), "collector": spans.url if spans else ""}
        given = {name: value.format(**places) for name, value in settings.items()}
        if info.otlp_endpoint is not None:
            given["otlp_endpoint"] = info.otlp_endpoint
        stack.enter_context(Services(info, folder / "log", **given))
        yield World(info, Kubectl(info), served, folder / "log", spans)


def _filled(folder: Path, how: How) -> list[Path]:
    """Put the versions of a shim into ``files`` of a folder; return the archives of images that the nodes need."""
    files, images = folder / "files", folder / "images"
    for made in (files, images):
        made.mkdir()
    program = shim(how).read_bytes()
    (files / "v1").write_bytes(program)
    (files / "v2").write_bytes(program + b"behind its end a program may have anything")
    (files / "no-shim").write_bytes((debian.tree("node", how) / "bin/busybox").read_bytes())
    for name in BROKEN:
        (files / name).write_bytes(broken_program(name, how))
    return [installer_image(how), hello_wasm_image(hello_module(how), how), busy_image(images)]
