"""An address of this machine that is no loopback address, which the API server refuses in EndpointSlices.

It is in a range for tests (RFC 2544) and on the loopback interface: only this machine reaches it. Needs root, or
CAP_NET_ADMIN.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def missing() -> str | None:
    """Return in one line why this machine cannot have such an address, found by trial; None if it can."""
    if sys.platform != "linux":
        return "Linux is missing, whose ip gives the machine an address"
    if shutil.which("ip") is None:
        return "ip is missing (package iproute2), which gives the machine an address"
    try:
        with local_address():
            return None
    except subprocess.CalledProcessError as error:
        return f"permission to give the machine an address is missing: {error.stderr.strip()}"


@contextmanager
def local_address() -> Iterator[str]:
    """Have an address for the time of a block.

    Raises:
        CalledProcessError: the machine does not permit it.
    """
    address = f"198.18.{random.randrange(256)}.{random.randrange(1, 255)}"
    _ip("add", address)
    try:
        yield address
    finally:
        _ip("delete", address)


def _ip(command: str, address: str) -> None:
    command_line = ["ip", "address", command, f"{address}/32", "dev", "lo"]
    subprocess.run(command_line, check=True, capture_output=True, text=True)
