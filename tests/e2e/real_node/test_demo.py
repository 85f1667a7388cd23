"""``trellis demo --real-node``: after the simulated nodes, a Wasm pod runs on a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.suite import demos
from support.suite.demos import Machine
from trellis_dev.demo.real_node import NODE, OUTPUT


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(demos, "SECONDS", 1500.0)  # the first run builds a runtime and images
    machine = Machine(tmp_path)
    yield machine
    if machine.clusters:
        machine.run("dev", "down", "--name", "demo")


def test_a_pod_on_a_real_node_prints_a_greeting_from_wasm(own: Machine) -> None:
    status, out, err = own.run("demo", "--real-node", "--nodes", "3", "-o", "json")
    assert status == 0, err
    found = json.loads(out)
    assert found["commands"][-1] == {"command": ["kubectl", "logs", "hello"], "status": 0, "output": OUTPUT}
    verified = {node["name"]: node["verified"] for node in found["nodes"]}
    assert verified == {"node-0000": "handler", "node-0001": "handler", "node-0002": "handler", NODE: "canary"}
    own.assert_clean()
