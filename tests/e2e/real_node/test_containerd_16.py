"""The same with containerd 1.6, which lists no handlers: there only a pod verifies a runtime."""

from __future__ import annotations

from support.nodes.real_nodes import RUNTIME_CLASS, Kubectl, eventually, shim_job, wasm_pod

CLUSTER = "old_node"
NODE = "real-0"


def test_the_node_runs_containerd_16(kubectl: Kubectl) -> None:
    version = kubectl.get("node", NODE)["status"]["nodeInfo"]["containerRuntimeVersion"]
    assert version.startswith("containerd://1.6.")
    assert kubectl.handlers(NODE) == set()


def test_a_runtime_an_installer_adds_runs_wasm(kubectl: Kubectl) -> None:
    kubectl.create(shim_job(NODE, "io.containerd.grpc.v1.cri"))
    eventually(lambda: kubectl.succeeded("install"), "the Job survives the restart of containerd, and is done")
    kubectl.create(RUNTIME_CLASS)
    kubectl.create(wasm_pod("hello", NODE, "wasi"))
    assert kubectl.ended("hello") == "hello from wasm\n"
    assert kubectl.handlers(NODE) == set()
