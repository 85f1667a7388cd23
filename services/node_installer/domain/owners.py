"""Owners of a handler on a node: the handler is removed with the last of them.

Pure: the state's shims and a requested shim in, owners out. Called by ``plan`` and ``removal``.
Source of the second name: states of nodes on which all Shims had the owner ``trellis``; there the name of a shim
identifies its owner. A Shim that is reinstalled gets an owner of its own.
"""

from __future__ import annotations

from node_installer.domain.state import ShimState
from trellis.installer_api.spec import SHARED_OWNER, WantedShim, shim_owner


def others(shim: ShimState, wanted: WantedShim) -> tuple[str, ...]:
    """Return the owners of an installed shim, without the one of this request."""
    return tuple(owner for owner in shim.owners if owner not in _names(shim, wanted))


def owners_with(shim: ShimState | None, wanted: WantedShim) -> tuple[str, ...]:
    """Return the owners of a shim after this request."""
    if shim is None:
        return (wanted.owner,)
    rest = others(shim, wanted)
    return shim.owners if {*shim.owners} == {*rest, wanted.owner} else (*rest, wanted.owner)


def is_meant(handler: str, shim: ShimState, wanted: WantedShim) -> bool:
    """Return whether the request of a removal refers to this installed shim."""
    if wanted.handler and wanted.handler != handler:
        return False
    by_name = wanted.owner == SHARED_OWNER and not wanted.handler
    return bool(_names(shim, wanted) & {*shim.owners}) and (not by_name or shim.name == wanted.name)


def _names(shim: ShimState, wanted: WantedShim) -> frozenset[str]:
    if shim.name == wanted.name and wanted.owner == shim_owner(wanted.name):
        return frozenset({wanted.owner, SHARED_OWNER})
    return frozenset({wanted.owner})
