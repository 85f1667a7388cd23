"""The size and the layout of a world: the table that all other modules of the load read.

Pure. In: a share of the planned sizes. Out: numbers and names. Invariants: what a share has, every larger share has
under the same name, so that a world grows; what a change does concerns as much in a large world as in a small one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

CONTROLLERS_NAMESPACE: Final = "load-controllers"
REQUESTS_NAMESPACE: Final = "default"
REQUEST: Final = "load-request"
"""Name of the Lease that only this benchmark writes and watches: it measures the API server alone."""
SHARES: Final = tuple(Fraction(1, number) for number in (8, 4, 2, 1))


@dataclass(frozen=True, slots=True)
class Size:
    """The number of objects of each kind."""

    nodes: int
    applications: int
    lattices: int
    controllers: int

    def of(self, share: Fraction) -> Size:
        """Return a part of it, at least one of each."""
        parts = (self.nodes, self.applications, self.lattices, self.controllers)
        return Size(*(math.ceil(part * share) for part in parts))

    def lattice_of(self, application: int) -> int:
        """Return the lattice of an application of this, the whole size: they fill one after the other, all alike."""
        return application * self.lattices // self.applications


FULL: Final = Size(nodes=5000, applications=1000, lattices=100, controllers=1000)
"""The sizes that Trellis is planned for."""
EMPTY: Final = Size(0, 0, 0, 0)


def node(number: int) -> str:
    """Name of a node that is opted in from its first moment."""
    return f"load-{number:05d}"


def spare(share: Fraction, number: int) -> str:
    """Name of a node that is opted in as a change, in the world of a share."""
    return f"spare-{share.denominator}-{number:03d}"


def lattice(number: int) -> str:
    """Name of a lattice, and of the namespace of its hosts and applications."""
    return f"lattice-{number:03d}"


def application(number: int) -> str:
    """Name of an application, and of its Service."""
    return f"application-{number:04d}"


def is_application(name: str) -> bool:
    """Return whether a Service of this name is an application's."""
    return name.startswith("application-")


def watched(number: int) -> str:
    """Name of the ConfigMap that a controller watches; it has its number as the label ``ring``."""
    return f"watched-{number:04d}"


def copied(number: int) -> str:
    """Name of the ConfigMap that a controller writes to, which none watches."""
    return f"copied-{number:04d}"
