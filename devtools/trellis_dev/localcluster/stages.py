"""What kwok makes of simulated nodes and pods: its own "fast" stages, and stages of the caller.

In: kwok's module (downloaded once), texts of the caller. Out: the text of one YAML file for kwok's ``--config``.
Called by `up`. Invariant: a caller's stage with a weight above 0 wins over kwok's, whose weight is 0: among stages
that match an object kwok draws only from those with a weight, if there are any.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.gobuild import module_folder
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Progress, stepping
from trellis_dev.localcluster.versions import products

_FILES: Final = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)

# Kwok's four workers wait for the API server most of the time: with 16 a thousand nodes are Ready in half the time.
_OPTIONS: Final = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {nodePlayStageParallelism: 16, podPlayStageParallelism: 16, nodeLeaseParallelism: 16}
"""


def folder() -> Path:
    """Return where the cache keeps kwok's stages, whether or not they are there."""
    return cache_root() / f"kwok-stages-{products()['kwok'].version}"


def ensure_stages(progress: Progress, abort: threading.Event) -> Path:
    """Return the folder with kwok's stages, taken from its module once.

    Raises:
        ToolError: if the module cannot be downloaded.
    """
    target = folder()
    if target.is_dir():
        return target
    with stepping(progress, "fetch kwok's stages"):
        source = module_folder("kwok", progress, abort) / "kustomize" / "stage"
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        temporary.mkdir(parents=True)
        for file in _FILES:
            (temporary / Path(file).name).write_bytes((source / file).read_bytes())
        try:
            temporary.rename(target)
        except OSError:  # another process was quicker
            shutil.rmtree(temporary)
    return target


def merge(directory: Path, extra: Sequence[str]) -> str:
    """Return kwok's options and stages, and the caller's stages, as one text of YAML documents."""
    texts = [(directory / Path(file).name).read_text(encoding="utf-8") for file in _FILES]
    return "\n---\n".join([_OPTIONS, *texts, *extra])
