"""The chart's NATS for lattices and its wadm: wadm keeps applications there, and hosts' leaves reach it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_manager.domain.group import ADOPTED
from host_manager.domain.resources import make_nats_conf
from support.chart.chart_parts import container, lattice_server, running, variables
from support.chart.rendered import of, rendered
from support.lattices.host_groups import desired
from support.nodes.fleet import eventually
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.lattice_servers import WADM, lattice_servers
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.nats_requests import request
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.progress import Lines

LATTICE = "shop"
SERVICE = "trellis-lattice-nats.trellis-system"
MANIFEST = {
    "apiVersion": "core.oam.dev/v1beta1",
    "kind": "Application",
    "metadata": {"name": "hello", "annotations": {"version": "v1"}},
    "spec": {"components": []},
}


@pytest.fixture
def lattice(tmp_path: Path) -> Iterator[tuple[NatsServer, int]]:
    """Run both as the chart does; the server, and its port for leaves."""
    found = of(rendered(latticeNats={"enabled": True}, wadm={"enabled": True}))
    conf = found["ConfigMap", "trellis-system", "trellis-lattice-nats"]["data"]["nats.conf"]
    server, leaf = lattice_server(conf, tmp_path / "nats")
    wadm = lattice_servers(How(Lines(), threading.Event()))[WADM]
    reported = [
        variable.replace(f"nats://{SERVICE}:4222", f"nats://{LOOPBACK}:{{port}}")
        for variable in variables(container(found, "Deployment", "trellis-wadm"))
    ]
    assert any("{port}" in item for item in reported)
    with server:
        argv = ["/usr/bin/env", *(item.replace("{port}", str(server.port)) for item in reported), str(wadm)]
        with running(argv, tmp_path / "wadm", lambda: requested(server.port, "list") is not None):
            yield server, leaf


def requested(port: int, what: str, body: Any = None) -> Any:
    """Return wadm's answer, None if there is none yet."""
    reply = request(port, f"wadm.api.{LATTICE}.model.{what}", b"" if body is None else json.dumps(body).encode())
    return None if reply is None else json.loads(reply)


async def test_wadm_takes_an_application_and_a_hosts_leaf_sees_it(
    lattice: tuple[NatsServer, int], tmp_path: Path
) -> None:
    server, leaf = lattice
    assert requested(server.port, "list") == []
    assert requested(server.port, "put", MANIFEST)["result"] == "created"
    # The configuration of a host's leaf, as host_manager makes it for this natsAddress.
    conf = make_nats_conf(desired(ADOPTED, natsAddress=f"nats://{LOOPBACK}", natsLeafnodePort=leaf))
    file = tmp_path / "leaf.conf"
    file.write_text(conf)
    with NatsServer(tmp_path / "leaf", config=file) as beside_a_host:

        def names() -> list[str]:
            return [model["name"] for model in requested(beside_a_host.port, "list") or ()]

        await eventually(lambda: names() == ["hello"], "the application on the side of a host")
