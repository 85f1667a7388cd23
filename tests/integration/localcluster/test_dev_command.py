"""`trellis dev up|status|down` as a script uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]
DOCUMENTED = {"name", "kubeconfig", "nats_url", "jaeger_url", "otlp_endpoint", "bin_dir", "pids"}


def trellis(*arguments: str, state: Path) -> str:
    """Run a command with a state directory of the test's own; return its standard output."""
    command = [sys.executable, "-m", "trellis_cli", *arguments]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply_shim(cluster: dict[str, str]) -> subprocess.CompletedProcess[str]:
    manifest = {
        "apiVersion": "runtime.spinkube.dev/v1alpha1",
        "kind": "Shim",
        "metadata": {"name": "spin"},
        "spec": {
            "fetchStrategy": {"type": "annonymousHttp", "anonHttp": {"location": "https://example.com/spin.tar.gz"}},
            "runtimeClass": {"name": "spin", "handler": "spin"},
            "rolloutStrategy": {"type": "recreate"},
        },
    }
    command = [f"{cluster['bin_dir']}/kubectl", "--kubeconfig", cluster["kubeconfig"], "apply", "-f", "-"]
    given = json.dumps(manifest)
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=30)


def runs(pid: int) -> bool:
    """Say whether a process runs; one that ended and that its adopter has not yet buried does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_up_prints_how_to_reach_the_cluster_and_down_leaves_no_process(tmp_path: Path) -> None:
    try:
        *_, line = trellis("dev", "up", "--name", "scripted", "--nodes", "2", "--json", state=tmp_path).splitlines()
        found = json.loads(line)
        assert set(found) == DOCUMENTED
        assert found["jaeger_url"] is None
        kubectl = [f"{found['bin_dir']}/kubectl", "--kubeconfig", found["kubeconfig"], "get", "nodes", "-o", "name"]
        nodes = subprocess.run(kubectl, capture_output=True, text=True, check=True, timeout=30).stdout.split()
        assert nodes == ["node/node-0000", "node/node-0001"]
        assert apply_shim(found).stdout == "shim.runtime.spinkube.dev/spin created\n"
        # Once more, as after an update of Trellis: the definitions are written again and objects stay.
        trellis("dev", "up", "--name", "scripted", "-o", "json", state=tmp_path)
        assert apply_shim(found).stdout == "shim.runtime.spinkube.dev/spin unchanged\n"
        [listed] = json.loads(trellis("dev", "status", "-o", "json", state=tmp_path))
        assert listed == found
    finally:
        trellis("dev", "down", "--name", "scripted", state=tmp_path)
    assert not any(map(runs, found["pids"].values()))
    assert json.loads(trellis("dev", "status", "-o", "json", state=tmp_path)) == []
