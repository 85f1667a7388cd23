"""Configurations of NATS servers that are joined as leaf nodes.

Pure: names, addresses and ports in, text out. Called by whoever joins servers. Invariant: what is on a bus
(``trellis.>``) crosses no leaf connection: both sides may have a stream for it, and a fact would be stored twice.
"""

from __future__ import annotations

from typing import Final

from trellis_dev.localcluster.ports import LOOPBACK

CLIENT_PORT: Final = 4222
LEAFNODE_PORT: Final = 7422
_BUS: Final = '["trellis.>"]'
_BUS_AND_JETSTREAM: Final = '["trellis.>", "$JS.>", "$KV.>", "$O.>"]'


def hub_config(domain: str, port: int) -> str:
    """Return the configuration of a nats-server that takes leaf nodes on a port.

    It does not tell them of its address: one that was given a way through something else would leave it.
    """
    leaves = f'listen: "{LOOPBACK}:{port}", no_advertise: true'
    return f'server_name: "{domain}"\njetstream {{ domain: "{domain}" }}\nleafnodes {{ {leaves} }}\n'


def leaf_config(domain: str, hub_port: int) -> str:
    """Return the configuration of a nats-server that is a leaf node of the hub with this port."""
    remote = _remote(hub_port, _BUS)
    return f'server_name: "{domain}"\njetstream {{ domain: "{domain}" }}\nleafnodes {{ remotes: [{{ {remote} }}] }}\n'


def lattice_config(name: str, address: str, hub_port: int) -> str:
    """Return the configuration of a nats-server through which others are in the hub's lattices, and have nothing else.

    It listens at an address, on NATS' own ports for clients and leaf nodes, and is itself a leaf node of the hub.
    """
    remote = _remote(hub_port, _BUS_AND_JETSTREAM)
    leaves = f'leafnodes {{ listen: "{address}:{LEAFNODE_PORT}", remotes: [{{ {remote} }}] }}'
    return f'server_name: "{name}-lattices"\nlisten: "{address}:{CLIENT_PORT}"\n{leaves}\n'


def _remote(port: int, kept: str) -> str:
    return f'url: "nats-leaf://{LOOPBACK}:{port}", deny_imports: {kept}, deny_exports: {kept}'
