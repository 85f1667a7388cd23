"""The installer's image, built from its Dockerfile as for a release, on a base made here: no registry is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trellis_dev.localcluster import own_images
from trellis_dev.localcluster.building import How

INSTALLER: Final = own_images.INSTALLER.name
_ROOT: Final = Path(__file__).parents[3]


def installer_image(how: How) -> Path:
    """Return the archive of :data:`INSTALLER`, built once for each state of its sources.

    Raises:
        ToolError: if the build fails, with the end of its output.
    """
    return own_images.own_image(own_images.INSTALLER, _ROOT, how)
