"""The RuntimeClasses whose pods are Wasm pods.

Pure. In: Shims, RuntimeClasses. Out: names. Called by the watch of pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.provisioning.shims import ShimView


def provided_classes(shims: Iterable[ShimView], classes: Iterable[RuntimeClassView]) -> frozenset[str]:
    """Return the RuntimeClasses that Shims name, or whose handler is that of a Shim, without those of canaries.

    One that a Shim names counts while it does not exist: the pods of a deleted RuntimeClass remain.
    """
    each = [*shims]
    handlers = {shim.handler for shim in each if shim.handler}
    named = {shim.runtime_class for shim in each if shim.runtime_class}
    others = (item for item in classes if (names.LABEL_CANARY, "true") not in item.labels)
    return frozenset(named | {item.name for item in others if item.handler in handlers})
