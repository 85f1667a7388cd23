"""The command line of `trellis dev`, as far as it needs no cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.suite.naming import lacking
from trellis.kube.lease import new_lease, released, with_holder
from trellis.kube.resources import Manifest
from trellis_dev.commands import local
from trellis_dev.commands.dev import app
from trellis_dev.commands.local import leading, summary
from trellis_dev.localcluster import ClusterInfo

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--wadm-hosts", "2"], ["--wadm"]),
        (["--wadm-lattice", "blue"], ["--wadm"]),
        (["--wadm", "--wadm-label", "zone"], ["'zone'", "--wadm-label KEY=VALUE"]),
        (["--wadm", "--wadm-label", "=a"], ["'=a'", "--wadm-label KEY=VALUE"]),
    ],
)
def test_lattices_that_make_no_sense_are_refused_in_one_line(options: list[str], named: list[str]) -> None:
    result = CliRunner().invoke(app, ["up", *options])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert lacking(result.stderr, *named) == []
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--wadm-lattice", "a.b"], ["'a.b'", "1 to 40"]),
        (["--wadm-lattice", ""], ["''"]),
        (["--wadm-label", "hostcore.os=x"], ["'hostcore.os'"]),
        (["--wadm-label", "a b=x"], ["'a b'"]),
    ],
)
def test_lattices_that_cannot_be_are_refused_before_anything_is_built(options: list[str], named: list[str]) -> None:
    result = CliRunner().invoke(app, ["up", "--wadm", *options])
    assert result.exit_code == 1
    assert lacking(result.stderr, *named) == []
    assert result.stderr.count("\n") == 1


def test_a_name_that_cannot_be_is_refused_with_the_rule() -> None:
    result = CliRunner().invoke(app, ["down", "--name", "../else"])
    assert result.exit_code == 1
    assert "'../else'" in result.stderr


def test_without_clusters_status_is_an_empty_list_and_down_reports_it() -> None:
    assert json.loads(CliRunner().invoke(app, ["status", "-o", "json"]).stdout) == []
    assert "'default'" in CliRunner().invoke(app, ["down"]).stdout


def test_json_is_one_line_without_the_option_for_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    info = ClusterInfo(
        name="default",
        kubeconfig=Path("/config"),
        nats_url="nats://127.0.0.1:4222",
        jaeger_url=None,
        otlp_endpoint=None,
        bin_dir=Path("/bin"),
        pids={"etcd": 1},
    )
    monkeypatch.setattr(local.cluster, "up", lambda *_, **__: info)
    monkeypatch.setattr(local, "define_kinds", lambda *_: None)
    monkeypatch.setattr(local, "running_services", lambda *_: [])
    *_, line = CliRunner().invoke(app, ["up", "--json"]).stdout.splitlines()
    assert json.loads(line)["pids"] == {"etcd": 1}
    monkeypatch.setattr(local.cluster, "status", lambda: [info])
    *_, line = CliRunner().invoke(app, ["status", "--json"]).stdout.splitlines()
    assert [each["name"] for each in json.loads(line)] == ["default"]


def test_the_former_option_for_json_is_refused_with_the_present_one() -> None:
    result = CliRunner().invoke(app, ["image", "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert lacking(result.stderr, '"--json"', "-o json") == []


def test_images_are_built_from_a_checkout_and_from_nothing_else(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["image", "--source", str(tmp_path)])
    assert result.exit_code == 1
    assert lacking(result.stderr, str(tmp_path), "deploy/images/services.Dockerfile") == []


def lease(name: str, seconds_ago: float = 1.0) -> Manifest:
    renewed = NOW - timedelta(seconds=seconds_ago)
    return with_holder(new_lease(name, "trellis-system"), identity="pod-1", duration=10, now=renewed)


def test_services_run_whose_leases_are_renewed() -> None:
    leases = [
        lease("trellis-provisioner"),
        lease("trellis-node-watcher"),
        lease("trellis-host-manager", seconds_ago=11.0),
        released(lease("trellis-service-reflector"), now=NOW),
        new_lease("trellis-application-manager", "trellis-system"),
        lease("trellis-nodes"),
        lease("kube-scheduler"),
    ]
    assert leading(leases, NOW) == ["node-watcher", "provisioner"]


@pytest.mark.parametrize(("running", "start"), [([], True), (["node-watcher", "provisioner"], False)])
def test_services_that_run_are_named_and_not_to_be_started(tmp_path: Path, running: list[str], start: bool) -> None:
    info = ClusterInfo(
        name="default",
        kubeconfig=tmp_path / "kubeconfig",
        nats_url="nats://127.0.0.1:4222",
        jaeger_url=None,
        otlp_endpoint=None,
        bin_dir=tmp_path / "bin",
        pids={},
    )
    shown = summary(info, running)
    assert ("trellis run" in shown) is start
    assert lacking(shown, *running) == []
    assert ("Lease" in shown) is not start  # nothing shows whether a service without one runs
