"""Builds container images from a Dockerfile without a container engine: buildah in a separate Debian tree.

In: a context directory with a Dockerfile, build arguments, a base image as an archive. Out: an archive for
:func:`trellis_dev.localcluster.realnode_faults.load_image`. Called by tests of images. Needs root.
Invariant: what buildah mounts and stores is in a mount namespace and a directory that are removed after the build.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import PRIVATE, How, LoggedBuild
from trellis_dev.localcluster.progress import stepping

_HINT: Final = "Fix the reported error and retry; nothing was kept."


@dataclass(frozen=True)
class Recipe:
    """Input of a build: the full name of the image, the context, the Dockerfile in it, its arguments.

    ``base``: an archive whose image the Dockerfile can use as ``base_name``, so that no registry is needed.
    """

    name: str
    context: Path
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict)
    base: Path | None = None
    base_name: str = ""


def build_image(recipe: Recipe, target: Path, how: How) -> Path:
    """Build an image and return ``target``, an archive of it.

    Raises:
        ToolError: the build failed; with the last output of buildah. AbortedError: stop was requested.
    """
    step = f"build image {recipe.name}"
    tree = debian.tree("buildah", how)
    work = target.with_name(f".{target.name}.build")
    shutil.rmtree(work, ignore_errors=True)
    for part in ("upper", "work", "root", "out"):
        (work / part).mkdir(parents=True)
    settings = {
        "TREE": str(tree),
        "WORK": str(work),
        "CONTEXT": str(recipe.context.resolve()),
        "BASE": str(recipe.base.resolve()) if recipe.base is not None else "",
        "BASE_NAME": recipe.base_name,
        "NAME": recipe.name,
        "DOCKERFILE": recipe.dockerfile,
    }
    script = str(resources.files("trellis_dev.localcluster").joinpath("node", "build.sh"))
    arguments = [f"--build-arg={name}={value}" for name, value in recipe.arguments.items()]
    argv = [*PRIVATE, "/bin/sh", script]
    try:
        with stepping(how.progress, step):
            log = target.with_name(f"{target.name}.log")
            build = LoggedBuild(work, log, how.abort, {**os.environ, **settings}, _HINT)
            build.run([*argv, *arguments], lambda line: how.progress.note(step, line))
            (work / "out" / "image.tar").replace(target)
            log.unlink()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target
