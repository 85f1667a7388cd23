"""``trellis status`` and ``trellis explain`` with unavailable or refusing servers, and with missing objects.

Each is one line or one table that names what is wrong and what to do, ends with the documented status, and has no
traceback. Where some parts answer, those that do not hide none of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.lattices.host_world import HostWorld
from support.suite.typed import bare_environment, typed
from trellis_cli.status.command import API_UNAVAILABLE, UNACCEPTED
from trellis_dev.localcluster import ClusterInfo

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(420)]

Manifest = dict[str, Any]
NOWHERE = "nats://127.0.0.1:1"
ROWS = ("rollout", "circuit_breakers", "hosts", "applications", "reflected_services", "secrets", "controllers")


class Night:
    """A user on call: with a kubeconfig that may be invalid, and a bus that may be unavailable."""

    def __init__(self, info: ClusterInfo, folder: Path, namespace: str) -> None:
        self._kubeconfig = Path(info.kubeconfig).read_text(encoding="utf-8")
        self._folder = folder
        self.environment = bare_environment(
            TRELLIS_KUBECONFIG=str(info.kubeconfig),
            TRELLIS_NATS_URL=str(info.nats_url),
            TRELLIS_NAMESPACE=namespace,
            TRELLIS_CLAIM_NAMESPACE=namespace,
        )

    def spoil(self, key: str, value: str) -> None:
        """Write another kubeconfig, in which what stands under a key is this."""
        spoilt, times = re.subn(rf"(?m)^(\s*-?\s*){key}: .*$", rf"\g<1>{key}: {value}", self._kubeconfig)
        assert times
        path = self._folder / "kubeconfig"
        path.write_text(spoilt, encoding="utf-8")
        self.environment["TRELLIS_KUBECONFIG"] = str(path)

    def status(self) -> Manifest:
        """Return the JSON of a status in which something is wrong."""
        done = typed(self.environment, "status", "-o", "json")
        assert (done.returncode, done.stderr) == (1, "")
        found: Manifest = json.loads(done.stdout)
        assert found["ok"] is False
        return found

    def refused(self, *words: str, code: int = 1) -> str:
        """Return the one line that a command prints if it cannot answer."""
        done = typed(self.environment, *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def absent(self, *words: str) -> Manifest:
        """Return the JSON of the page of what is not there, which ends with 1."""
        done = typed(self.environment, "explain", *words, "-o", "json")
        assert (done.returncode, done.stderr) == (1, "")
        page: Manifest = json.loads(done.stdout)
        assert page["ok"] is False
        return page


@pytest.fixture
def night(cluster: ClusterInfo, namespace: str, tmp_path: Path) -> Night:
    return Night(cluster, tmp_path, namespace)


def test_an_api_server_that_is_unavailable_is_reported_once_and_the_bus_is_shown(night: Night) -> None:
    night.spoil("server", "https://127.0.0.1:1")
    found = night.status()
    assert "https://127.0.0.1:1" in found["kubernetes"]["problem"]
    assert [found[row]["problem"] for row in ROWS] == [API_UNAVAILABLE] * len(ROWS)
    assert {service["problem"] for service in found["services"]} == {API_UNAVAILABLE}
    assert found["bus"]["streams"] is not None
    refused = night.refused("explain", "node/x")
    assert "https://127.0.0.1:1" in refused
    assert "--kubeconfig" in refused


def test_if_both_are_unavailable_each_is_reported(night: Night) -> None:
    night.spoil("server", "https://127.0.0.1:1")
    night.environment["TRELLIS_NATS_URL"] = NOWHERE
    found = night.status()
    assert "https://127.0.0.1:1" in found["kubernetes"]["problem"]
    assert NOWHERE in found["bus"]["problem"]
    assert "--nats-url" in found["bus"]["problem"]
    assert found["bus"]["streams"] is None


def test_without_a_bus_the_cluster_is_shown_and_a_dead_letter_is_not(night: Night) -> None:
    night.environment["TRELLIS_NATS_URL"] = NOWHERE
    found = night.status()
    assert found["kubernetes"]["ok"]
    assert found["rollout"]["counts"] is not None
    assert NOWHERE in found["bus"]["problem"]
    assert NOWHERE in night.refused("explain", "deadletter/1")


def test_credentials_that_are_not_accepted_are_reported_once(night: Night) -> None:
    night.spoil("token", "long-since-withdrawn")
    found = night.status()
    assert "Unauthorized" in found["kubernetes"]["problem"]
    assert "--kubeconfig" in found["kubernetes"]["problem"]
    assert [found[row]["problem"] for row in ROWS] == [UNACCEPTED] * len(ROWS)
    refused = night.refused("explain", "node/x")
    assert "Unauthorized" in refused
    assert "--kubeconfig" in refused
    assert "long-since-withdrawn" not in json.dumps(found)


def test_a_missing_installation_is_reported_with_the_namespace_searched(night: Night) -> None:
    night.environment["TRELLIS_NAMESPACE"] = "no-such-place"
    services = {item["name"]: item["problem"] for item in night.status()["services"]}
    for service in ("node-watcher", "provisioner"):
        assert "namespace no-such-place (TRELLIS_NAMESPACE)" in services[service]


def test_a_kubeconfig_that_is_none_is_a_wrong_setting(night: Night) -> None:
    for command in (("status",), ("explain", "node/x")):
        done = typed(night.environment, *command, "--kubeconfig", "/does/not/exist")
        assert (done.returncode, done.stdout) == (2, "")
        assert "/does/not/exist" in done.stderr
        assert "Traceback" not in done.stderr


def test_misspelt_and_missing_names_are_reported_with_existing_ones(night: Night, hosts: HostWorld) -> None:
    hosts.create("group")
    assert '"node"' in night.refused("explain", "noed/x", code=2)
    assert "`trellis dead-letters list`" in night.refused("explain", "deadletter/x")
    nowhere = night.absent("node/no-such-node")
    assert (nowhere["subject"], nowhere["lines"][0]["about"]) == ("node no-such-node", "node")
    assert 'Node "no-such-node"' in nowhere["cause"]
    unplaced = night.absent("whc/group", "-n", "no-such-place")
    assert (unplaced["subject"], unplaced["lines"][0]["about"]) == ("hostgroup group", "hostgroup")
    assert 'namespace "no-such-place"' in unplaced["cause"]
    assert "`kubectl get namespaces`" in unplaced["do"]
    elsewhere = night.absent("whc/group", "-n", "default")
    for named in ('WasmCloudHostConfig "group"', "namespace default", hosts.namespace):
        assert named in elsewhere["cause"]
    alike = night.absent("whc/gruop", "-n", hosts.namespace)
    assert f"{hosts.namespace}/group" in alike["cause"]
    assert f"`trellis explain hostgroup/group -n {hosts.namespace}`" in alike["do"]
