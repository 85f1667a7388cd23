"""The metadata of the Helm chart for Artifact Hub that follow from its files: images and CRDs.

Pure. In: ``Chart.yaml``, default values, CRDs. Out: lines of ``annotations`` in ``Chart.yaml``. Called by ``chart``.
Source: Artifact Hub, "Supported annotations in Chart.yaml": each value is a text that contains YAML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

MARKS: Final = ("  # Written by `make generate`.", "  # End of the generated annotations.")
_INDENT: Final = "    "

Manifest = dict[str, Any]


def metadata_part(chart: Manifest, values: Manifest, definitions: Iterable[Manifest]) -> str:
    """Return the generated lines of ``annotations``."""
    crds = sorted(map(_crd, definitions), key=lambda item: str(item["name"]))
    return _annotation("artifacthub.io/images", images(chart, values)) + _annotation("artifacthub.io/crds", crds)


def images(chart: Manifest, values: Manifest) -> list[dict[str, str]]:
    """Return the images of the default values by name, those of optional components included."""
    found = {name_of(image, str(chart["appVersion"])): str(image["repository"]) for image in _images(values)}
    return [{"name": repository.rpartition("/")[2], "image": name} for name, repository in sorted(found.items())]


def name_of(image: Manifest, version: str) -> str:
    """Return the full name of an image; ``version`` is the tag of an image without one."""
    name = "/".join(part for part in (image["registry"], image["repository"]) if part)
    return f"{name}@{image['digest']}" if image["digest"] else f"{name}:{image['tag'] or version}"


def _images(values: Manifest) -> Iterator[Manifest]:
    for value in values.values():
        if isinstance(value, dict):
            if {"registry", "repository"} <= value.keys():
                yield value
            yield from _images(value)


def _crd(definition: Manifest) -> dict[str, str]:
    [version] = [item for item in definition["spec"]["versions"] if item["storage"]]
    kind = definition["spec"]["names"]["kind"]
    description = " ".join(version["schema"]["openAPIV3Schema"].get("description", "").split())
    return {
        "kind": kind,
        "version": version["name"],
        "name": definition["metadata"]["name"],
        "displayName": kind,
        "description": description,
    }


def _annotation(name: str, content: list[dict[str, str]]) -> str:
    text = yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
    return f"  {name}: |\n" + "".join(f"{_INDENT}{line}\n" for line in text.splitlines())
