"""The network of the real nodes: a bridge in a separate network namespace, with a veth to this machine.

In: a token. Out: a process that holds the namespace, and a free address range. Called before the API server starts,
which listens on the end of the veth on this machine.

  this machine  trellis<N> 10.<N>.0.1 ──┐
                                      bridge  (namespace of the process "network")
  node i        eth0 10.<N>.0.<10+i> ──port<i>      pods of node i: 10.<N>.<1+i>.0/24

Invariant: nothing on this machine outlives that process: interface, addresses and routes are removed with it. The name
of the interface contains the range, and the kernel keeps names unique: no two clusters of any user share a range.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any, Final

from trellis_dev.localcluster.certs import SERVICE_RANGE
from trellis_dev.localcluster.errors import StartError
from trellis_dev.localcluster.processes import ProcessRecord, alive, end, spawn
from trellis_dev.localcluster.state import NODE_NAMES

_RANGES: Final = tuple(number for number in range(64, 128) if number != 96)  # 96: the Services
_SECONDS: Final = 20.0
_POLL: Final = 0.02


@dataclass(frozen=True)
class Addresses:
    """The addresses of one cluster's nodes and pods: the range 10.<number>.0.0/16."""

    number: int

    @property
    def interface(self) -> str:
        """Name of the veth end on this machine."""
        return f"trellis{self.number}"

    @property
    def machine(self) -> str:
        """Address of this machine, where the API server listens."""
        return f"10.{self.number}.0.1"

    def node(self, index: int) -> str:
        """Return the address of a node."""
        return f"10.{self.number}.0.{10 + index}"

    def pods(self, index: int) -> str:
        """Return the pod subnet of a node."""
        return f"10.{self.number}.{1 + index}.0/24"

    def settings(self, index: int) -> Mapping[str, str]:
        """Return the network settings for the start of a node."""
        peers = [f"{self.pods(peer)},{self.node(peer)}" for peer in range(len(NODE_NAMES)) if peer != index]
        return {
            "ADDRESS": self.node(index),
            # Fixed, so that the ARP caches of its peers stay valid after a reboot of the node.
            "MAC": f"02:74:72:{self.number:02x}:00:{10 + index:02x}",
            "PEERS": " ".join(peers),
            "SERVICES": SERVICE_RANGE,
        }


def start_network(token: str, log: Path, number: int | None = None) -> tuple[ProcessRecord, Addresses]:
    """Start the process that holds the bridge; return it and its range: ``number``, or a free one by default.

    Raises:
        StartError: no range is free, or the bridge cannot be created on this machine.
    """
    # By name, like a login shell: these two are part of every Linux.
    holder = spawn([_program("unshare"), "--net", _program("sleep"), "infinity"], log=log, token=token)
    try:
        _wait_for_namespace(holder)
        addresses = _plug(holder, [number] if number is not None else _free_ranges())
        routes = [f"route add {addresses.pods(i)} via {addresses.node(i)}" for i in range(len(NODE_NAMES))]
        _ip([], [f"address add {addresses.machine}/24 dev {addresses.interface}", f"link set {addresses.interface} up"])
        _ip(_inside(holder), ["link add bridge type bridge", "link set machine master bridge", "link set machine up",
                              "link set bridge up"])  # fmt: skip
        _ip([], routes)
    except BaseException:
        end([holder], grace=0)
        raise
    return holder, addresses


def switch(holder: ProcessRecord, index: int, *, connected: bool) -> None:
    """Disconnect or reconnect the veth of a node at the bridge.

    Raises:
        StartError: the veth does not exist: the node or the network is not running.
    """
    _ip(_inside(holder), [f"link set port{index} {'up' if connected else 'down'}"])


def _wait_for_namespace(holder: ProcessRecord) -> None:
    ours = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + _SECONDS
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
        if not alive(holder) or time.monotonic() > deadline:
            raise StartError("no network namespace can be created: real nodes need root and kernel support")
        time.sleep(_POLL)


def _plug(holder: ProcessRecord, numbers: Sequence[int]) -> Addresses:
    """Create the veth from this machine into the namespace, with the first free name."""
    for number in numbers:
        addresses = Addresses(number)
        try:
            _ip([], [f"link add {addresses.interface} type veth peer name machine netns {holder.pid}"])
        except StartError as error:
            if "File exists" not in str(error):
                raise
        else:
            return addresses
    raise StartError("no address range 10.64.0.0/16 to 10.127.0.0/16 is free for real nodes: see `ip route`")


def _free_ranges() -> list[int]:
    """Return the ranges without overlap with a route of this machine, in random order."""
    answer = subprocess.run([_program("ip"), "-4", "-json", "route"], capture_output=True, text=True, check=True)  # noqa: S603 - fixed arguments
    routes: list[dict[str, Any]] = json.loads(answer.stdout)
    used: list[IPv4Network] = []
    for route in routes:
        if route["dst"] != "default":
            network = ip_network(route["dst"])
            assert isinstance(network, IPv4Network)
            used.append(network)
    free = [n for n in _RANGES if not any(network.overlaps(IPv4Network(f"10.{n}.0.0/16")) for network in used)]
    random.shuffle(free)
    return free


def _inside(holder: ProcessRecord) -> list[str]:
    return [_program("nsenter"), f"--net=/proc/{holder.pid}/ns/net"]


def _ip(where: Sequence[str], lines: Sequence[str]) -> None:
    """Run commands of `ip` as one batch."""
    answer = subprocess.run(  # noqa: S603 - fixed arguments
        [*where, _program("ip"), "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise StartError(f"`ip {lines[0]}` failed: {answer.stderr.strip()}")


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise StartError(f"{name} is missing: real nodes need iproute2 and util-linux")
    return path
