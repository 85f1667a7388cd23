"""An address of this machine that is no loopback address, which the API server refuses in EndpointSlices.

It is in a range for tests (RFC 2544) and on the loopback interface: only this machine reaches it. Needs root.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def missing() -> str | None:
    """Return in one line why this machine cannot have such an address; None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "Linux and root are missing, which give the machine an address"
    return None if shutil.which("ip") else "ip is missing (package iproute2), which gives the machine an address"


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
    subprocess.run(["ip", "address", command, f"{address}/32", "dev", "lo"], check=True)
