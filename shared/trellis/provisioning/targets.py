"""The target state of each node, from all Shims together.

Pure. In: views of Shims and Nodes. Out: names, specifications and targets. Called by ``provisioner`` (plans, Jobs,
status), ``node_watcher`` (labels) and the command line. Invariants: a target depends on the Shims and the Node only, so
all readers derive the same; a handler belongs to one Shim; a Shim that cannot be installed now keeps what is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from trellis import names
from trellis.crds.shim import RemovalPolicy
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import Refusal, ShimView, is_for, wanted_shim_for
from trellis.provisioning.views import KWASM, SUPPORTED_OS, NodeView, OptIn, Target, opt_in_of


def rival_of(shim: ShimView, node: NodeView, shims: Iterable[ShimView], *, auto_provision: bool) -> str:
    """Return the name of another Shim that has the handler of this one on a node; "" if there is none.

    A handler belongs to one Shim. Of several candidates on a node the installed one keeps it, else the oldest gets it,
    and of equally old ones the first by name (ADR 108): a new Shim must not stop the rollout of an older one.
    """
    installed = node.installed
    others = [
        other
        for other in shims
        if other.handler == shim.handler
        and other.name != shim.name
        and (is_for(other, node, auto_provision=auto_provision) or stays_on(other, node))
    ]
    first = min([*others, shim], key=lambda item: (item.name not in installed, item.created_at, item.name))
    return "" if first.name == shim.name else first.name


def class_rival_of(shim: ShimView, shims: Iterable[ShimView]) -> str:
    """Return the name of an older Shim with the same RuntimeClass; "" if there is none.

    A RuntimeClass belongs to one Shim: its owner keeps it, else the oldest gets it, as for handlers (ADR 122).
    """
    sharing = [
        other
        for other in shims
        if other.runtime_class == shim.runtime_class
        and other.name != shim.name
        and not (other.invalid or other.deleting)
    ]
    first = min([*sharing, shim], key=lambda item: (item.created_at, item.name))
    return "" if first.name == shim.name else first.name


def label_rival_of(shim: ShimView, node: NodeView, shims: Iterable[ShimView], *, auto_provision: bool) -> str:
    """Return the name of another Shim that selects a node by the label that this one would overwrite; "" if none does.

    A node that gets Shim ``spin`` gets the label ``spin=provisioned``: a Shim that selects ``spin=true``, as samples of
    runtime-class-manager do, would then be removed from it.
    """
    label = names.shim_label(shim.name)
    if shim.name in node.installed:
        return ""
    for other in shims:
        wanted = dict(other.selector or ()).get(label, names.SHIM_PROVISIONED)
        overwritten = wanted != names.SHIM_PROVISIONED and other.name != shim.name
        if overwritten and is_for(other, node, auto_provision=auto_provision):
            return other.name
    return ""


def stays_on(shim: ShimView, node: NodeView) -> bool:
    """Return True if a node keeps an invalid Shim: an error in a spec must not remove it from every node."""
    may = node.opt_in is None or opt_in_of(node, auto_provision=False) is OptIn.IN
    return bool(shim.invalid) and not shim.deleting and may and shim.name in node.installed.keys() - {KWASM}


def wanted_shim_on(
    shim: ShimView, node: NodeView, shims: Iterable[ShimView], *, auto_provision: bool, require_checksum: bool
) -> WantedShim | Refusal:
    """Return the specification of a Shim for one of its nodes, considering all Shims, or the reason for none."""
    shims = tuple(shims)
    if not shim.invalid and rival_of(shim, node, shims, auto_provision=auto_provision):
        return Refusal.HANDLER_CONFLICT
    if not shim.invalid and label_rival_of(shim, node, shims, auto_provision=auto_provision):
        return Refusal.LABEL_CONFLICT
    return wanted_shim_for(shim, node.architecture, require_checksum=require_checksum)


def wanted_on(
    node: NodeView, shims: Iterable[ShimView], *, auto_provision: bool, legacy: bool = True
) -> frozenset[str]:
    """Return the names of the Shims that select a node, even if they cannot be installed.

    ``kwasm`` represents the legacy installer image: opted-in Linux nodes get it, if it is configured, unless a Shim is
    labelled as KWasm's default.
    """
    shims = tuple(shims)
    wanted = {shim.name for shim in shims if is_for(shim, node, auto_provision=auto_provision) or stays_on(shim, node)}
    without = not legacy or any(shim.default for shim in shims)
    opted_in = opt_in_of(node, auto_provision=auto_provision) is OptIn.IN and node.operating_system == SUPPORTED_OS
    return frozenset(wanted if without or not opted_in else wanted | {KWASM})


def target_of(
    node: NodeView, shims: Iterable[ShimView], kwasm: str | None, *, auto_provision: bool, require_checksum: bool
) -> Target | None:
    """Return the target of a node, or None if it has none and Trellis has nothing to remove from it.

    A refused Shim (no checksum, no source for the platform, handler of another Shim) changes nothing: an installed
    version stays. Removals come first, in a separate run. ``kwasm`` is the digest of the legacy installer image, or
    None; it runs only on nodes without Shims and cannot be uninstalled, so it never results in a removal.
    """
    shims = tuple(shims)
    installed = node.installed
    names_wanted = wanted_on(node, shims, auto_provision=auto_provision, legacy=kwasm is not None)
    deleting = {name for name in installed if name not in names_wanted and name != KWASM}
    if deleting:
        # Separately: an installer with the option force would use it on pods of all Shims.
        forced = {shim.name for shim in shims if shim.removal_policy is RemovalPolicy.FORCE}
        now = (deleting & forced) or deleting
        return Target(tuple(sorted((name, digest) for name, digest in installed.items() if name not in now)))
    wanted: dict[str, str] = {}
    for shim in shims:
        if shim.name in names_wanted:
            wanted_shim = wanted_shim_on(
                shim, node, shims, auto_provision=auto_provision, require_checksum=require_checksum
            )
            digest = wanted_shim.digest if isinstance(wanted_shim, WantedShim) else installed.get(shim.name)
            wanted |= {shim.name: digest} if digest else {}
    # Beside Shims only if installed: a Job runs one installer, and annotations must not record what it did not do.
    legacy = installed.get(KWASM) if wanted else kwasm
    if legacy is not None and (kwasm is None or KWASM in names_wanted):
        wanted[KWASM] = legacy
    return _shared(tuple(sorted(wanted.items()))) if wanted else None


@lru_cache(maxsize=4096)  # few targets for many nodes
def _shared(shims: tuple[tuple[str, str], ...]) -> Target:
    return Target(shims)
