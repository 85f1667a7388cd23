"""Permitted addresses of modules, in every notation."""

from __future__ import annotations

import ipaddress

import pytest

from trellis.registries.domain.addresses import forbidden, is_address

NEVER = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "169.254.169.254",
    "10.96.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.100.100.200",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
]


@pytest.mark.parametrize("address", NEVER)
def test_an_address_that_only_this_machine_reaches_is_forbidden(address: str) -> None:
    assert forbidden(address, ()).startswith(f"{address} is ")


@pytest.mark.parametrize("address", ["1.1.1.1", "140.82.112.3", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_the_internet_is_not(address: str) -> None:
    assert forbidden(address, ()) == ""


def test_only_named_networks_are_allowed() -> None:
    allowed = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00:1::/64")]
    assert forbidden("10.1.2.3", allowed) == ""
    assert forbidden("::ffff:10.1.2.3", allowed) == ""
    assert forbidden("fd00:1::7", allowed) == ""
    assert forbidden("11.0.0.1", allowed) == ""
    assert forbidden("192.168.1.1", allowed)
    assert forbidden("fd00:2::7", allowed)
    assert forbidden("169.254.169.254", allowed)


@pytest.mark.parametrize(
    ("host", "yes"), [("10.0.0.1", True), ("::1", True), ("fe80::1%2", True), ("1.1", False), ("a.example", False)]
)
def test_an_address_is_distinguished_from_a_name(host: str, yes: bool) -> None:
    assert is_address(host) is yes
