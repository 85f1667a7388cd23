"""Two nats-servers, one a leaf node of the other: what a lattice over two clusters runs on, without the clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.nats_configs import hub_config, leaf_config
from trellis_dev.localcluster.ports import free_ports


@contextmanager
def joined_servers(directory: Path) -> Iterator[tuple[NatsServer, NatsServer]]:
    """Have a hub and a leaf for the time of a block; the leaf may need a moment to connect.

    Their JetStream domains are called ``hub`` and ``leaf``.
    """
    (port,) = free_ports(1)
    for name, text in {"hub": hub_config("hub", port), "leaf": leaf_config("leaf", port)}.items():
        (directory / f"{name}.conf").write_text(text, encoding="utf-8")
    with (
        NatsServer(directory / "hub", config=directory / "hub.conf") as hub,
        NatsServer(directory / "leaf", config=directory / "leaf.conf") as leaf,
    ):
        yield hub, leaf
