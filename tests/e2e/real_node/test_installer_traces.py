"""A Shim's way onto a real node and off it again is one trace each, the installer's steps on the node included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.nodes.installer_runs import NODE
from support.nodes.real_nodes import eventually
from support.nodes.rollouts import INSTALLERS, World, rollout_world

INSTALLER, PROVISIONER, WATCHER = "trellis-node-installer", "trellis-provisioner", "trellis-node-watcher"
Named = tuple[str, str]
"""A span: its service and its name."""


@pytest.fixture(scope="module")
def world(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node, and a collector by https whose CA only the installers' Jobs get."""
    assert machine
    settings = {"installer_otlp_endpoint": "{collector}", "installer_ca_config_map": "collector/root.pem"}
    with rollout_world(tmp_path_factory.mktemp("world"), real_nodes=1, collector=True, **settings) as world:
        assert world.collector is not None
        eventually(lambda: not world.deleted("namespace", INSTALLERS), "the installers' namespace is there", 60)
        authority = {"data": {"root.pem": world.collector.authority}}
        named = {"metadata": {"name": "collector", "namespace": INSTALLERS}}
        world.kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", **named, **authority})
        yield world


def installer_traces(world: World) -> dict[str, dict[str, Any]]:
    """Return the traces with an installer's spans that are whole, by the name of the installer's first span."""
    assert world.collector is not None
    found = {}
    for trace in world.collector.traces(INSTALLER):
        tree = parents(trace)
        known = {span["spanID"] for span in trace["spans"]}
        if set(tree.values()) - {""} <= known:
            found |= {name: trace for service, name in names(trace) if service == INSTALLER and " " in name}
    return found


def names(trace: dict[str, Any]) -> set[Named]:
    """Return the spans of a trace."""
    return {named(trace, span) for span in trace["spans"]}


def named(trace: dict[str, Any], span: dict[str, Any]) -> Named:
    return trace["processes"][span["processID"]]["serviceName"], span["operationName"]


def parents(trace: dict[str, Any]) -> dict[str, str]:
    """Return the parent of each span, "" at the root."""
    return {span["spanID"]: next((ref["spanID"] for ref in span["references"]), "") for span in trace["spans"]}


def chain(trace: dict[str, Any], last: Named) -> list[Named]:
    """Return the spans from the root of a trace to a span."""
    by_id = {span["spanID"]: span for span in trace["spans"]}
    tree = parents(trace)
    at = next(span["spanID"] for span in trace["spans"] if named(trace, span) == last)
    path = [at]
    while tree[path[-1]]:
        path.append(tree[path[-1]])
    return [named(trace, by_id[identity]) for identity in reversed(path)]


def steps(trace: dict[str, Any], first: Named) -> set[str]:
    """Return the names of the spans that are right below one."""
    [top] = [span["spanID"] for span in trace["spans"] if named(trace, span) == first]
    below = {identity for identity, parent in parents(trace).items() if parent == top}
    return {span["operationName"] for span in trace["spans"] if span["spanID"] in below}


def test_the_installers_spans_are_in_the_trace_of_their_cause(world: World) -> None:
    world.label("traced", NODE)
    world.apply(world.shim("traced", "v1"))
    eventually(lambda: world.has("traced", NODE), "the node has the shim")
    eventually(lambda: "installer install" in installer_traces(world), "the installation's trace is whole", 60)
    world.kubectl("delete", "shim", "traced", "--timeout=300s")
    eventually(lambda: "installer uninstall" in installer_traces(world), "so is the removal's", 60)
    traces = installer_traces(world)
    install, uninstall = (INSTALLER, "installer install"), (INSTALLER, "installer uninstall")
    assert chain(traces[install[1]], install) == [
        (WATCHER, f"reconcile node {NODE}"),
        (WATCHER, "publish node.opted_in"),
        (PROVISIONER, "receive node.opted_in"),
        (PROVISIONER, f"reconcile jobs {NODE}"),
        (PROVISIONER, "create installer job"),
        install,
    ]
    wanted = {"Inspect", "Fetch", "PutShim", "ProbeShim", "WriteFile", "RestartRuntime", "Verify"}
    assert wanted <= steps(traces[install[1]], install)
    assert (WATCHER, "kubernetes PATCH nodes") in names(traces[install[1]])
    assert chain(traces[uninstall[1]], uninstall)[-2:] == [(PROVISIONER, "create installer job"), uninstall]
    assert {"Inspect", "RestartRuntime", "RemoveFile"} <= steps(traces[uninstall[1]], uninstall)
