"""A network of a test's own: a namespace joined by a cable that can be cut without notice to either side.

Needs root and the ``ip`` command; tests that use it are skipped where these are missing.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Cable:
    """From this machine's network (``near``, an address) into namespace ``namespace``."""

    namespace: str
    near: str
    device: str

    @property
    def inside(self) -> list[str]:
        """Return the words before a command that run it in the namespace."""
        return ["ip", "netns", "exec", self.namespace]

    def cut(self) -> None:
        """Drop every packet from now on; connections stay open, as no side is notified."""
        _ip("link", "set", self.device, "down")

    def mend(self) -> None:
        """Let packets through again."""
        _ip("link", "set", self.device, "up")


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    """A namespace and the cable to it."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the ip command")
    token = secrets.token_hex(3)
    subnet = f"10.{random.randint(200, 250)}.{random.randint(0, 255)}"
    made = Cable(f"trellis-{token}", f"{subnet}.1", f"trl{token}a")
    try:
        _ip("netns", "add", made.namespace)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    try:
        far = f"trl{token}b"
        _ip("link", "add", made.device, "type", "veth", "peer", "name", far, "netns", made.namespace)
        _ip("address", "add", f"{made.near}/30", "dev", made.device)
        _ip("link", "set", made.device, "up")
        for command in (("address", "add", f"{subnet}.2/30", "dev", far), ("link", "set", far, "up")):
            _ip("-netns", made.namespace, *command)
        yield made
    finally:
        _ip("netns", "delete", made.namespace)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
