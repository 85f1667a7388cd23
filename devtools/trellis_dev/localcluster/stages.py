"""Stages of kwok for simulated nodes and pods: its own "fast" stages, and stages of the caller.

In: the module of kwok (downloaded once), texts of the caller. Out: the text of one YAML file for ``--config`` of kwok.
Called by `up`. Invariant: a stage of the caller with a weight above 0 has precedence over those of kwok with weight 0:
kwok draws from the matching stages with a weight, if there are any.
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

# The four default workers of kwok mostly wait for the API server: with 16, a thousand nodes are Ready in half the time.
_OPTIONS: Final = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {nodePlayStageParallelism: 16, podPlayStageParallelism: 16, nodeLeaseParallelism: 16}
"""


def folder() -> Path:
    """Return the cache directory of the stages, even if it does not exist."""
    return cache_root() / f"kwok-stages-{products()['kwok'].version}"


def ensure_stages(progress: Progress, abort: threading.Event) -> Path:
    """Return the folder with the stages of kwok, copied from its module once.

    Raises:
        ToolError: the module cannot be downloaded.
    """
    target = folder()
    if target.is_dir():
        return target
    with stepping(progress, "download the stages of kwok"):
        source = module_folder("kwok", progress, abort) / "kustomize" / "stage"
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        temporary.mkdir(parents=True)
        for file in _FILES:
            (temporary / Path(file).name).write_bytes((source / file).read_bytes())
        try:
            temporary.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(temporary)
    return target


def merge(directory: Path, extra: Sequence[str]) -> str:
    """Return the options and stages of kwok and the stages of the caller as one text of YAML documents."""
    texts = [(directory / Path(file).name).read_text(encoding="utf-8") for file in _FILES]
    return "\n---\n".join([_OPTIONS, *texts, *extra])
