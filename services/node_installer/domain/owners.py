"""Owners of a handler on a node: the handler is removed with the last of them.

Pure: the state's shims and a requested shim in, owners out. Called by ``plan`` and ``removal``.
Source of the second name: states of nodes on which all Shims had the owner ``trellis``; there the name of a shim
identifies its owner. A Shim that is reinstalled gets an owner of its own.
"""

from __future__ import annotations

from node_installer.domain.state import ShimState
from trellis.installer_api.spec import SHARED_OWNER, WantedShim, shim_owner


def others(shim: ShimState, wish: WantedShim) -> tuple[str, ...]:
    """Return the owners of an installed shim, without the one of this request."""
    return tuple(owner for owner in shim.owners if owner not in _names(shim, wish))


def owners_with(shim: ShimState | None, wish: WantedShim) -> tuple[str, ...]:
    """Return the owners of a shim after this request."""
    if shim is None:
        return (wish.owner,)
    rest = others(shim, wish)
    return shim.owners if {*shim.owners} == {*rest, wish.owner} else (*rest, wish.owner)


def is_meant(handler: str, shim: ShimState, wish: WantedShim) -> bool:
    """Return whether the request of a removal refers to this installed shim."""
    if wish.handler and wish.handler != handler:
        return False
    by_name = wish.owner == SHARED_OWNER and not wish.handler
    return bool(_names(shim, wish) & {*shim.owners}) and (not by_name or shim.name == wish.name)


def _names(shim: ShimState, wish: WantedShim) -> frozenset[str]:
    if shim.name == wish.name and wish.owner == shim_owner(wish.name):
        return frozenset({wish.owner, SHARED_OWNER})
    return frozenset({wish.owner})
