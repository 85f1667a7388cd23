"""The lattice of an Application, and the namespace in which applications of wash are shown.

Pure. In: host groups, the label of an object. Out: a lattice's ID, a namespace. Called by ``cache`` and ``gather``.
Rule: an object may name only lattices of host groups of its own namespace; a lattice's home is the namespace of the
group that declares it, else of its oldest group. Invariant: objects in other namespaces stay when the home moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trellis.lattice.domain.group_views import GroupView


class Key(NamedTuple):
    """An application of a lattice; an object without lattice has ``lattice_id`` "" and ``name`` ``namespace/name``."""

    lattice_id: str
    name: str

    def __str__(self) -> str:
        """Return the key in readable form."""
        return f"{name_of(self.lattice_id)}/{self.name}" if self.lattice_id else self.name


def home_of(groups: Iterable[GroupView]) -> str:
    """Return the home namespace of the lattice of these host groups, "" if there is none."""
    senior = sorted(groups, key=lambda group: (not group.home, group.created, group.key))
    return senior[0].namespace if senior else ""


def lattice_of(groups: Iterable[GroupView], label: str, shown: str) -> str:
    """Return the mark of an object's lattice, "" if it has none.

    Args:
        groups: host groups of the object's namespace.
        label: the lattice that the object names, "" if it names none.
        shown: the last lattice of the object, "" if it had none; another group does not move it.
    """
    senior = sorted((group for group in groups if group.lattice), key=lambda group: (group.created, group.key))
    lattice_ids = list(dict.fromkeys(group.lattice for group in senior))
    for name in filter(None, (label, shown if not label else "")):
        return next((lattice_id for lattice_id in lattice_ids if name_of(lattice_id) == name), "")
    return lattice_ids[0] if len(lattice_ids) == 1 else ""


def name_of(lattice_id: str) -> str:
    """Return the name of a lattice from its mark."""
    return lattice_id.partition("/")[0]


def no_lattice_message(groups: Iterable[GroupView], label: str, shown: str) -> str:
    """Return why an object has no lattice, with the remedy, as a message for users."""
    names = sorted({name_of(group.lattice) for group in groups if group.lattice})
    wanted = label or shown
    if not names:
        of = f" of lattice {wanted}" if wanted else ""
        return f"there is no host group{of} in this namespace: create a WasmCloudHostConfig"
    if not wanted:
        return f"its namespace has hosts of {', '.join(names)}: select the lattice with the label trellis.dev/lattice"
    return f"no host group in this namespace is of lattice {wanted}: it has {', '.join(names)}"
