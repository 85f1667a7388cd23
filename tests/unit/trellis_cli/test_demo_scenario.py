"""The Shims of the demo, the node that fails, and the commands that it prints."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from provisioner.domain.canary import canary_of
from support.examples.folders import manifest
from trellis.crds.shim import Shim
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import ShimView, is_for, view_shim, wanted_shim_for
from trellis_dev.demo import viewing
from trellis_dev.demo.commands import export_lines, own_command, write_manifest
from trellis_dev.demo.scenario import faulty_of
from trellis_dev.demo.shims import LABEL, make_hello_pod, make_real_shim, make_shim
from trellis_dev.demo.viewing import Page
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nodes import node_name
from trellis_dev.testing.builders import a_node


def viewed(shim: dict[str, Any]) -> ShimView:
    found = view_shim(shim | {"metadata": {**shim["metadata"], "uid": "u", "resourceVersion": "1"}})
    assert not found.invalid
    return found


def version(shim: ShimView) -> str:
    wanted = wanted_shim_for(shim, "amd64", require_checksum=True)
    assert isinstance(wanted, WantedShim)
    return wanted.digest


def test_the_shim_installs_what_the_example_installs() -> None:
    assert make_shim()["spec"]["fetchStrategy"] == manifest("shim", "Shim")["spec"]["fetchStrategy"]


def test_the_shim_is_verified_by_its_handler_alone_as_no_pod_runs_on_a_simulated_node() -> None:
    assert canary_of(viewed(make_shim()), "installer:1") is None


def test_the_second_version_is_another_one_for_the_same_nodes() -> None:
    first, second = viewed(make_shim()), viewed(make_shim(options={"SystemdCgroup": "true"}))
    assert version(first) != version(second)
    for shim in (first, second):
        assert is_for(shim, a_node("n", labels=(LABEL,)), auto_provision=False)
        assert not is_for(shim, a_node("n"), auto_provision=False)


def test_the_shim_of_the_real_node_is_the_default_of_annotated_nodes_and_is_tried_by_a_pod() -> None:
    shim = viewed(make_real_shim("wasmi", "/opt/shim", "ab" * 32))
    assert is_for(shim, a_node("n", opt_in="true"), auto_provision=False)
    assert not is_for(shim, a_node("n", labels=(LABEL,)), auto_provision=False)
    assert canary_of(shim, "installer:1") is not None
    assert make_hello_pod(shim.runtime_class)["spec"]["runtimeClassName"] == shim.runtime_class


@pytest.mark.parametrize("count", [1, 2, 20])
def test_one_of_the_nodes_fails(count: int) -> None:
    nodes = tuple(map(node_name, range(count)))
    assert faulty_of(nodes) in nodes


def test_manifests_are_files_for_kubectl(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, "spin", make_shim())
    assert Shim.model_validate(yaml.safe_load(path.read_text())).spec is not None


def test_the_variables_are_quoted_and_the_path_is_extended() -> None:
    cluster = ClusterInfo(
        name="demo",
        kubeconfig=Path("/some where/kubeconfig"),
        nats_url="nats://127.0.0.1:1",
        jaeger_url="http://127.0.0.1:2",
        otlp_endpoint="http://127.0.0.1:3",
        bin_dir=Path("/some where/bin"),
        pids={},
    )
    variables, path = export_lines(cluster)
    assert shlex.split(variables) == [
        "export",
        "KUBECONFIG=/some where/kubeconfig",
        "TRELLIS_NATS_URL=nats://127.0.0.1:1",
        "TRELLIS_JAEGER_URL=http://127.0.0.1:2",
    ]
    assert "/some where/bin:$PATH" in shlex.split(path)[1]


def test_trellis_is_named_by_its_path_unless_a_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, program = tmp_path / "bin dir" / "python", tmp_path / "bin dir" / "trellis"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shlex.split(own_command()) == [str(program)]
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command() == "trellis"


def test_a_trace_is_shown_where_it_can_be_seen() -> None:
    assert Page("http://c", ()).trace("a1") is None
    assert Page("http://c", (), traces=True).trace("a1") == "http://c/traces?trace=a1"
    assert Page("http://c", (), "http://j", traces=True).trace("a1") == "http://j/trace/a1"


@pytest.mark.parametrize(
    ("served", "pages"),
    [('<div id="jaeger-ui-root"></div>', True), ("<title>Test Page</title>", False), (None, False)],
    ids=["a release", "built from the module", "not answering"],
)
async def test_a_jaeger_without_pages_is_not_linked(served: str | None, pages: bool, unused_tcp_port: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=served, content_type="text/html")

    app = web.Application()
    app.router.add_get("/search", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    if served is not None:
        await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    try:
        assert await viewing.has_pages(f"http://127.0.0.1:{unused_tcp_port}") is pages
    finally:
        await runner.cleanup()
