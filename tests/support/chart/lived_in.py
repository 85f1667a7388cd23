"""An installation of the chart that is used: the examples applied as people apply them, and whether all is well.

In: a cluster with an installation. Out: the objects of the examples, what they say of themselves, and the containers
that run. Called by tests. The examples are those of ``deploy/examples``: kustomize overlays say what a cluster without
registries has in place of what would be fetched, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.chart.chart_cluster import ChartCluster, Inventory
from support.chart.forwarded import Outside
from support.chart.rendered import SYSTEM, Manifest
from support.lattices.host_images import NATS
from support.lattices.wasmcloud_image import COMPONENT, WASMCLOUD
from support.nodes.https_files import HttpsFiles
from support.nodes.real_nodes import eventually, pod
from support.nodes.rollouts import events

EXAMPLES: Final = Path(__file__).parents[3] / "deploy" / "examples"
HELLO: Final = "hello"
HOSTS: Final = "hosts"
PAYMENTS: Final = "payments"
WATCHED: Final = {
    "shims": "Ready",
    "whc": "Ready",
    "applications.core.oam.dev": "Ready",
    "wasmcontrollers": "Ready",
}
"""Kind → the condition that says that an object of it is well."""
_OURS: Final = frozenset({SYSTEM, "trellis-installers", "kube-system"})
_ASKS: Final = f"""
import pathlib, time, urllib.request
good, bad, begun = 0, 0, time.time()
while not pathlib.Path("/tmp/enough").exists():
    try:
        urllib.request.urlopen("http://{HELLO}.{HELLO}.svc.cluster.local:8080/", timeout=5).close()
        good += 1
        pathlib.Path("/tmp/good").touch()
    except OSError as error:
        bad += good > 0
        print(time.strftime("%X"), error, flush=True)
    time.sleep(0.1)
print(good, "good,", bad, "bad")
"""
"""Asks the application by the name of its Service until it is told to end; failures count from the first answer on."""


@dataclass(frozen=True)
class Life:
    """The cluster with its one installation, a folder, files that nodes may fetch, and what there was before it all."""

    cluster: ChartCluster
    folder: Path
    files: HttpsFiles
    before: Inventory

    @property
    def outside(self) -> Outside:
        """The command line beside the cluster."""
        return Outside(self.cluster.info)

    def apply(self, example: str, *patches: Manifest, images: Sequence[Mapping[str, str]] = ()) -> None:
        """Apply an example by an overlay with these patches and images, as ``kubectl apply -k`` does."""
        overlay = self.folder / example
        overlay.mkdir()
        base = os.path.relpath(EXAMPLES / example, overlay)
        kustomization = {"resources": [base], "patches": list(patches), "images": list(images)}
        (overlay / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
        self.cluster.kubectl("apply", "-k", str(overlay))

    def condition(self, kind: str, name: str, *place: str) -> str:
        """Return status and reason of the condition that says that an object is well."""
        found = json.loads(self.cluster.kubectl("get", kind, name, *place, "-o", "json"))
        return _state_text(found, WATCHED[kind])

    def until_healthy(self, kind: str, name: str, *place: str, seconds: float = 180) -> None:
        """Wait until an object says that it is well; fail with all that it says."""
        try:
            eventually(lambda: self.condition(kind, name, *place).startswith("True"), f"{kind} {name}", seconds)
        except AssertionError:
            pytest.fail(self.cluster.kubectl("get", kind, name, *place, "-o", "yaml"))

    def running(self) -> dict[str, int]:
        """Return the containers outside the installation, by pod and its uid, and how often each was restarted."""
        found = {}
        for item in self.cluster.listed("pods", "-A"):
            metadata = item["metadata"]
            for status in item["status"].get("containerStatuses", ()) if metadata["namespace"] not in _OURS else ():
                found[f"{metadata['name']}/{metadata['uid']}/{status['name']}"] = status["restartCount"]
        return found

    @contextmanager
    def all_healthy(self) -> Iterator[None]:
        """Fail if an object of any kind says meanwhile, be it for a moment, that it is not well.

        Of controllers it may be unknown: each release has one replica.
        """
        with ExitStack() as stack:
            for kind in WATCHED:
                stack.enter_context(self.cluster.kubectl.watching(self.folder / f"{kind}.seen", kind, "-A"))
            yield
        assert [line for kind in WATCHED for line in self._unwell(kind)] == []

    def _unwell(self, kind: str) -> list[str]:
        well = ("True", "Unknown") if kind == "wasmcontrollers" else ("True",)
        seen = [event["object"] for event in events(self.folder / f"{kind}.seen")]
        assert seen, f"there is nothing of {kind}"
        states = [(item["metadata"]["name"], _state_text(item, WATCHED[kind])) for item in seen]
        return [f"{kind} {name}: {text}" for name, text in states if not text.startswith(well)]

    @contextmanager
    def answering(self, node: str) -> Iterator[None]:
        """Have a pod ask the application ``hello`` all the time; fail if after the first answer one is not 200."""
        kubectl = self.cluster.kubectl
        asks = pod("asks", "", node, image=WASMCLOUD, command=["python3", "-c", _ASKS])
        asks["spec"]["containers"][0]["readinessProbe"] = {"exec": {"command": ["test", "-e", "/tmp/good"]}}
        kubectl.create(asks)
        try:
            kubectl.running("asks")
            yield
            kubectl("exec", "asks", "--", "touch", "/tmp/enough")
            assert kubectl.ended("asks").splitlines()[-1].endswith(" good, 0 bad"), kubectl("logs", "asks")
        finally:
            kubectl("delete", "pod", "asks", "--now")


def _state_text(found: Manifest, kind: str) -> str:
    """Return status, reason and message of a condition, "" if there is none."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((f"{c['status']} {c['reason']}: {c['message']}" for c in conditions if c["type"] == kind), "")


def _replace(kind: str, **fields: str) -> Manifest:
    """Return a patch of all objects of a kind: path, with _ for each slash, → value."""
    changes = [{"op": "add", "path": path.replace("_", "/"), "value": value} for path, value in fields.items()]
    return {"target": {"kind": kind}, "patch": json.dumps(changes)}


HERE: Final[Mapping[str, str]] = {"newName": WASMCLOUD.partition(":")[0], "newTag": WASMCLOUD.partition(":")[2]}
IMAGES: Final = (
    {"name": "ghcr.io/wasmcloud/wadm", **HERE},
    {"name": "docker.io/library/nats", "newName": NATS.partition(":")[0], "newTag": NATS.partition(":")[2]},
)
HOST_IMAGES: Final = _replace("WasmCloudHostConfig", _spec_image=WASMCLOUD, _spec_natsLeafImage=NATS)
APPLICATION: Final = _replace(
    "Application",
    _spec_components_0_properties_image=COMPONENT,
    _spec_components_1_properties_image="wasmcloud+builtin://http-server",
)


def shim_from(files: HttpsFiles, file: str) -> Manifest:
    """Return a patch of a Shim that is fetched for two platforms: from these files."""
    source = {"location": files.url(file), "sha256": files.sha256(file)}
    places = {f"_spec_fetchStrategy_platforms_{at}_{key}": value for at in (0, 1) for key, value in source.items()}
    return _replace("Shim", **places)


def payments(secret: str) -> list[Manifest]:
    """Return a Secret of another namespace, its owner's grant, and an application that asks for it."""
    metadata = {"name": "card-processor", "namespace": PAYMENTS}
    policy = {"backend": "kube", "namespace": PAYMENTS, "impersonate": "reader"}
    kind = "policy.secret.wasmcloud.dev/v1alpha1"
    requested = {"name": "token", "properties": {"policy": "granted", "key": "card-processor", "field": "token"}}
    component = {
        "name": "checkout",
        "type": "component",
        "properties": {"image": COMPONENT, "secrets": [requested]},
        "traits": [{"type": "spreadscaler", "properties": {"instances": 1}}],
    }
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": secret}},
        {
            "apiVersion": "trellis.dev/v1alpha1",
            "kind": "SecretGrant",
            "metadata": {"name": HELLO, "namespace": PAYMENTS},
            "spec": {"from": [{"namespace": HELLO}], "serviceAccounts": ["reader"]},
        },
        {
            "apiVersion": "core.oam.dev/v1beta1",
            "kind": "Application",
            "metadata": {"name": "checkout", "namespace": HELLO},
            "spec": {
                "policies": [{"name": "granted", "type": kind, "properties": policy}],
                "components": [component],
            },
        },
    ]
