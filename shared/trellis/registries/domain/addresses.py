"""Check of the addresses that files are fetched from.

Pure. In: an address, resolved from a name or given, and the networks that the caller allows. Out: the reason why a
connection is forbidden. Called by ``web`` for every connection, also after a redirect. Allowed are addresses of the
public internet and of the allowed networks. So no user can reach internal addresses through this service: the machine
itself, the metadata service of a cloud, Services and pods.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.IPv6Network("64:ff9b:1::/48")


def forbidden(address: str, allowed: Sequence[Network]) -> str:
    """Return the reason why a connection to an address is forbidden, "" if it is allowed."""
    found = ipaddress.ip_address(address.partition("%")[0])
    for item in _meant(found):
        if any(item.version == network.version and item in network for network in allowed):
            continue
        if what := _kind(item):
            return f"{address} is {what}"
    return ""


def is_address(host: str) -> bool:
    """Return whether a host is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _meant(address: Address) -> list[Address]:
    """Return the address, or the IPv4 addresses that are embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    embedded = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if embedded is None and (address in _NAT64 or address in _NAT64_LOCAL):
        embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return [address] if embedded is None else [embedded]


def _kind(address: Address) -> str:
    if address.is_loopback or address.is_unspecified:
        return "this machine's own"
    if address.is_link_local:
        return "link-local, where clouds have their metadata"
    if address.is_multicast:
        return "multicast"
    if not address.is_global:
        return "private"
    return ""
