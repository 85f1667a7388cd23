"""Fixtures for examples: the namespace ``hello`` that they name, on simulated nodes, so no image is fetched.

Imported by the conftest of whoever applies examples; not for all tests, as the names are short.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.examples.applied_examples import Kubectl, free
from support.examples.folders import EXAMPLES
from support.lattices.host_world import HostWorld, host_world
from support.nodes.fleet import Fleet
from support.secrets.secrets_world import define_grants
from support.wadm.application_world import define_applications
from trellis_dev.localcluster import ClusterInfo

HELLO = "hello"
"""The namespace, and the lattice."""


@pytest.fixture
def kubectl(cluster: ClusterInfo) -> Kubectl:
    return Kubectl(cluster)


@pytest.fixture
def hello(fleet: Fleet, kubectl: Kubectl) -> Iterator[HostWorld]:
    """The namespace of the lattice, where the kinds of all examples are served."""
    define_applications(fleet.api)
    define_grants(fleet.api)
    with free(fleet.api, HELLO):
        kubectl("apply", "-f", str(EXAMPLES / "host-group/namespace.yaml"))
        with host_world(fleet, HELLO) as made:
            yield made


__all__ = ["HELLO", "hello", "kubectl"]
