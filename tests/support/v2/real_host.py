"""Types of the fixtures in tests/e2e/v2: hosts of the real runtime, and the recorded images in a registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trellis_dev.localcluster.v2host import V2Host, V2HostOptions

StartHost = Callable[[V2HostOptions], V2Host]


@dataclass(frozen=True)
class Images:
    """A registry ``host:port`` without TLS, and the digest of each recorded image in it."""

    registry: str
    digests: dict[str, str]
