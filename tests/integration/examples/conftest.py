"""Worlds that examples are applied to. Nodes are simulated, so no image is fetched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.examples.applied_examples import Kubectl
from support.examples.example_worlds import hello, kubectl
from support.examples.folders import EXAMPLES
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import HostWorld
from support.wadm.application_world import ApplicationWorld, application_world
from trellis.kube.resources import HOST_CONFIGS
from trellis_dev.localcluster.nats import NatsServer

__all__ = ["hello", "kubectl"]


@pytest.fixture
def elsewhere(hello: HostWorld, kubectl: Kubectl, nats_server: NatsServer, tmp_path: Path) -> HostWorld:
    """The group of the example on the test's NATS, by a kustomization over it: the one thing that is changed.

    The lattice has a name of the test's, too: a cluster claims a lattice, and here each test is a cluster.
    """
    address = {"natsAddress": "nats://127.0.0.1", "natsClientPort": nats_server.port, "lattice": own_lattice()}
    patch = [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in address.items()]
    over = {
        "resources": [os.path.relpath(EXAMPLES / "host-group", tmp_path.resolve())],
        "patches": [{"target": {"kind": HOST_CONFIGS.kind}, "patch": yaml.safe_dump(patch)}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(over))
    kubectl("apply", "-k", str(tmp_path))
    return hello


@pytest.fixture
def apps(elsewhere: HostWorld, nats_server: NatsServer) -> Iterator[ApplicationWorld]:
    lattice = elsewhere.call("GET", HOST_CONFIGS, "hosts")["spec"]["lattice"]
    with application_world(elsewhere, nats_server.port, lattice) as made:
        yield made
