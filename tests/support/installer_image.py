"""The installer's image, built from its Dockerfile as for a release, on a base made here: no registry is asked.

The two packages it holds are put into the build's context with uv, which asks this machine's package index.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from trellis.localcluster.building import How, make_once
from trellis.localcluster.imagebuild import Recipe, build_image
from trellis.localcluster.node_images import PYTHON, python_image
from trellis.localcluster.paths import cache_root

INSTALLER: Final = "trellis.local/node-installer:1"
_ROOT: Final = Path(__file__).parents[2]
_DOCKERFILE: Final = "deploy/images/installer.Dockerfile"
_LOCK: Final = "requirements-installer.lock"
_TRELLIS: Final = ("__init__.py", "installing.py", "install_results.py", "redaction.py")


def installer_image(how: How) -> Path:
    """Return the archive of :data:`INSTALLER`, built once for each state of its sources.

    Raises:
        ToolError: if the build fails, with what it said last.
    """
    base = python_image(how)
    digest = hashlib.sha256(base.name.encode())
    for source in _sources():
        digest.update(f"{source}\0".encode() + (_ROOT / source).read_bytes())
    target = cache_root() / "images" / f"node-installer-{digest.hexdigest()[:12]}.tar"

    def make(path: Path, _: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            context = Path(folder)
            _fill(context)
            arguments = {"BASE": PYTHON}
            recipe = Recipe(INSTALLER, context, _DOCKERFILE, arguments, base=base, base_name=PYTHON)
            build_image(recipe, path, how)

    return make_once(target, f"write image {INSTALLER}", how, make)


def _sources() -> list[str]:
    program = sorted(str(path.relative_to(_ROOT)) for path in (_ROOT / "services/node_installer").glob("*.py"))
    return [_DOCKERFILE, _LOCK, "pyproject.toml", *(f"shared/trellis/{name}" for name in _TRELLIS), *program]


def _fill(context: Path) -> None:
    for source in _sources():
        (context / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_ROOT / source, context / source)
    packages = ["--target", str(context / "installer-packages"), "--require-hashes", "-r", str(_ROOT / _LOCK)]
    # The interpreter of the image's Debian, whatever runs the tests.
    version = ["--python-version", "3.11", "--only-binary", ":all:"]
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "pip", "install", "--quiet", *version, *packages], check=True)
