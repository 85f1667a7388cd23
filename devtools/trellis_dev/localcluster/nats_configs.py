"""Configurations of NATS servers that are joined as leaf nodes.

Pure: names, addresses and ports in, text out. Called by code that joins servers. Invariant: subjects of the bus
(``trellis.>``) cross no leaf node connection: both sides can have a stream for them, which would store an event twice.
"""

from __future__ import annotations

from typing import Final

from trellis_dev.localcluster.ports import LOOPBACK

CLIENT_PORT: Final = 4222
LEAFNODE_PORT: Final = 7422
_BUS: Final = '["trellis.>"]'
_BUS_AND_JETSTREAM: Final = '["trellis.>", "$JS.>", "$KV.>", "$O.>"]'


def hub_config(domain: str, port: int) -> str:
    """Return the configuration of a nats-server that accepts leaf nodes on a port.

    It does not advertise its address: a leaf node that connects through a proxy would bypass the proxy.
    """
    leaves = f'listen: "{LOOPBACK}:{port}", no_advertise: true'
    return f'server_name: "{domain}"\njetstream {{ domain: "{domain}" }}\nleafnodes {{ {leaves} }}\n'


def leaf_config(domain: str, hub_port: int) -> str:
    """Return the configuration of a nats-server that is a leaf node of the hub at this port."""
    remote = _remote(hub_port, _BUS)
    return f'server_name: "{domain}"\njetstream {{ domain: "{domain}" }}\nleafnodes {{ remotes: [{{ {remote} }}] }}\n'


def lattice_config(name: str, address: str, hub_port: int) -> str:
    """Return the configuration of a nats-server that gives its clients access to the lattices of the hub only.

    It listens at an address, on the default NATS ports for clients and leaf nodes, and is a leaf node of the hub.
    """
    remote = _remote(hub_port, _BUS_AND_JETSTREAM)
    leaves = f'leafnodes {{ listen: "{address}:{LEAFNODE_PORT}", remotes: [{{ {remote} }}] }}'
    return f'server_name: "{name}-lattices"\nlisten: "{address}:{CLIENT_PORT}"\n{leaves}\n'


def _remote(port: int, kept: str) -> str:
    return f'url: "nats-leaf://{LOOPBACK}:{port}", deny_imports: {kept}, deny_exports: {kept}'
