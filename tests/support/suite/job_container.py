"""The container of a Job's pod as a kubelet creates it: environment and mounted files.

Enough of it for the installer's Jobs: values, references to Secrets, ConfigMap and projected Secret volumes. Absolute
paths of the container lie under a directory of the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Objects = Mapping[str, Mapping[str, str]]


class CannotStartError(Exception):
    """The kubelet would leave the container waiting; the text is its message."""


@dataclass(frozen=True)
class Kubelet:
    """Starts containers under ``root``; Secrets and ConfigMaps are plain text, by name and key."""

    root: Path
    secrets: Objects = field(default_factory=dict)
    config_maps: Objects = field(default_factory=dict)

    def environment(self, job: Mapping[str, Any]) -> dict[str, str]:
        """Mount the volumes and return the environment; paths of mounts in it are where the files are."""
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        places: dict[str, str] = {}
        for mount in container["volumeMounts"]:
            place = self.root / mount["mountPath"].lstrip("/")
            self._mount(volumes[mount["name"]], place)
            places[mount["mountPath"]] = str(place)
        found: dict[str, str] = {}
        for variable in container["env"]:
            value = self._value(variable)
            if value is None:
                continue
            for path, place in places.items():
                value = place + value.removeprefix(path) if value.startswith(path) else value
            found[variable["name"]] = value
        return found

    def _value(self, variable: Mapping[str, Any]) -> str | None:
        if "value" in variable:
            return str(variable["value"])
        reference = variable["valueFrom"]["secretKeyRef"]
        value = self.secrets.get(reference["name"], {}).get(reference["key"])
        if value is None and not reference.get("optional"):
            raise CannotStartError(f"secret {reference['name']!r} or its key {reference['key']} not found")
        return value

    def _mount(self, volume: Mapping[str, Any], place: Path) -> None:
        place.mkdir(parents=True)
        if "configMap" in volume:
            source = volume["configMap"]
            self._files(self.config_maps.get(source["name"]), source, place)
        for part in volume.get("projected", {}).get("sources", ()):
            source = part["secret"]
            self._files(self.secrets.get(source["name"]), source, place)

    def _files(self, content: Mapping[str, str] | None, source: Mapping[str, Any], place: Path) -> None:
        for item in source["items"]:
            if content is None or item["key"] not in content:
                if not source.get("optional"):
                    raise CannotStartError(f"{source['name']!r} or its key {item['key']} not found")
                continue
            path = place / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content[item["key"]])
