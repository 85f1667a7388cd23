"""The files of a real node's disk, compared before and after an installer, which is to leave no trace."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

from support.nodes.real_nodes import RealNode
from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.progress import Quiet

_CHANGES_BY_ITSELF = frozenset({"dev", "proc", "run", "sys", "tmp", "var"})
_OVERLAYS_OWN = frozenset({"trusted.overlay.origin", "trusted.overlay.impure", "trusted.overlay.uuid"})
"""What an overlay notes on files without saying anything of them; ``opaque`` and ``redirect`` do."""


def tree(node: RealNode) -> dict[str, str]:
    """Return what differs on a node's disk from the root that all nodes share: path → mode, owner, attributes, content.

    Read from its overlay's upper directory, without what changes by itself (/var, /run, /tmp); the node may be off. A
    file that was changed and changed back differs in nothing and is left out, though it lies there from then on.
    """
    layout = Layout.of(node.cluster.name)
    below = (layout.root / "node-root", debian.tree("node", How(Quiet(), threading.Event())))
    upper, found = layout.node(node.name) / "upper", {}
    for top, directories, files in os.walk(upper):
        if Path(top) == upper:
            directories[:] = [name for name in directories if name not in _CHANGES_BY_ITSELF]
        for path in (Path(top, name) for name in (*directories, *files)):
            inside = path.relative_to(upper)
            before = next((_attributes(lower / inside) for lower in below if os.path.lexists(lower / inside)), None)
            if (now := _attributes(path)) != before:
                found[f"/{inside}"] = now
    return found


def tree_hash(node: RealNode) -> str:
    """Return the hash over :func:`tree`: the same if and only if the node's files are."""
    return hashlib.sha256(json.dumps(tree(node), sort_keys=True).encode()).hexdigest()


def _attributes(path: Path) -> str:
    """Return what a file is, in a layer of an overlay: a device with number 0 says that it is deleted."""
    status = path.lstat()
    names = [name for name in os.listxattr(path, follow_symlinks=False) if name not in _OVERLAYS_OWN]
    attributes = {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names}
    if path.is_symlink():
        content = str(path.readlink())
    else:
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(status.st_rdev)
    return f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {json.dumps(attributes, sort_keys=True)} {content}"
