"""The services' image, built from its Dockerfile as for a release, on a base made here: no registry is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trellis_dev.localcluster import own_images
from trellis_dev.localcluster.building import How

SERVICES: Final = own_images.SERVICES.name
"""Its full name."""
_ROOT: Final = Path(__file__).parents[3]


def image_of(name: str) -> dict[str, str]:
    """Return the full name of an image as the values of the chart have it."""
    repository, _, tag = name.rpartition(":")
    registry, _, repository = repository.partition("/")
    return {"registry": registry, "repository": repository, "tag": tag}


def services_image(how: How) -> Path:
    """Return the archive of :data:`SERVICES`, built once for each state of its sources.

    Raises:
        ToolError: if the build fails, with the end of its output.
    """
    return own_images.own_image(own_images.SERVICES, _ROOT, how)
