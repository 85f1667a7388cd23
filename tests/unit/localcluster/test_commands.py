"""The arguments of the components of a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from trellis_dev.localcluster.commands import command
from trellis_dev.localcluster.paths import Layout

_LAYOUT = Layout(Path("/x"))


def test_nodes_that_rarely_give_a_sign_of_life_are_waited_for_as_long() -> None:
    leases = command("kwok", _LAYOUT, {}, audit=False, long_leases=True)
    manager = command("kube-controller-manager", _LAYOUT, {}, audit=False, long_leases=True)
    assert "--node-lease-duration-seconds=1200" in leases
    assert "--node-monitor-grace-period=1200s" in manager


@pytest.mark.parametrize("tool", ["kwok", "kube-controller-manager"])
def test_leases_are_as_in_any_cluster_unless_asked(tool: str) -> None:
    argv = " ".join(command(tool, _LAYOUT, {}, audit=False))
    assert "grace-period" not in argv
    assert ("--node-lease-duration-seconds=40" in argv) == (tool == "kwok")
