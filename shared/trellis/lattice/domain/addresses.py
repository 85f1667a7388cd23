"""Parses listen addresses of providers: ``0.0.0.0:8080``, ``[::]:8080``, ``:8080``, a port alone.

Pure. In: the text of a configuration. Out: port, IP family, and whether it is a loopback address. Called by
``trellis.lattice.domain.manifests``. Source: the ``address`` of an http-server is a Rust ``SocketAddr``; 0.0.0.0 is
IPv4 only, ``::`` both, as in Linux.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum

_PORT = re.compile(r"[0-9]{1,5}")
_PORT_MAX = 65_535
_LOCALHOST = "localhost"


class AddressError(ValueError):
    """An invalid listen address; the message has the reason, for users."""


class Family(StrEnum):
    """IP family of a listen address."""

    ANY = "Any"
    IPV4 = "IPv4"
    IPV6 = "IPv6"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A port, and the addresses of its host on which it listens. ``loopback``: on the loopback address only."""

    port: int
    family: Family = Family.ANY
    loopback: bool = False


def read_address(address: str, port: str = "") -> ListenAddress:
    """Return the listen address of a provider; ``port`` is used if the address has none.

    Raises:
        AddressError: the address is invalid, or has no port.
    """
    host, found = _split(address.strip())
    number = read_port(found or port.strip(), address or port)
    if not host:
        return ListenAddress(number)
    if host.lower() == _LOCALHOST:
        return ListenAddress(number, loopback=True)
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        raise AddressError(f"{address!r} is not an address: set an IP address and a port, as 0.0.0.0:8080") from None
    if isinstance(ip, ipaddress.IPv6Address):
        mapped = ip.ipv4_mapped
        if mapped is not None:
            return ListenAddress(number, Family.IPV4, mapped.is_loopback)
        return ListenAddress(number, Family.ANY if ip.is_unspecified else Family.IPV6, ip.is_loopback)
    return ListenAddress(number, Family.IPV4, ip.is_loopback)


def read_port(text: str, whole: str) -> int:
    """Parse a port; ``whole``: the complete address, for the message.

    Raises:
        AddressError: the text is not a port from 1 to 65535.
    """
    if not text:
        raise AddressError(f"{whole!r} has no port")
    number = int(text) if _PORT.fullmatch(text) else 0
    if not 1 <= number <= _PORT_MAX:
        raise AddressError(f"{whole!r}: {text!r} is not a port from 1 to 65535")
    return number


def _split(address: str) -> tuple[str, str]:
    """Return host and port, each "" if it is missing."""
    if address.startswith("["):
        host, closed, rest = address[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise AddressError(f"{address!r} is not an address: write an IPv6 address in [ ]")
        return host, rest[1:]
    if _PORT.fullmatch(address):
        return "", address
    if address.count(":") > 1:
        return address, ""
    host, _, port = address.partition(":")
    return host, port
