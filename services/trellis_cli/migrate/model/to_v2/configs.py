"""ConfigMaps of the named configurations of components.

Pure. In: configurations. Out: manifests of ConfigMaps and references to them. Called by ``convert``.
Invariants: a ConfigMap has only keys and sizes that the API server accepts; other entries are in the report by their
keys, and no line has a value. Source: validation of ConfigMaps in Kubernetes: keys of at most 253 letters, digits,
``-``, ``_`` and ``.``, data of at most 1 MiB; ``configFrom`` merges the ConfigMaps, and the last one wins, as in wadm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from trellis_cli.migrate.model.to_v2.object_names import part_name
from trellis_cli.migrate.model.to_v2.reading import Config
from trellis_cli.migrate.model.to_v2.report import Reason, Record, Way, reference

Manifest = dict[str, Any]

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DOTS: Final = frozenset({".", ".."})
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_LATTICE: Final = "lattice"
_BYTES_MOST: Final = 900_000
"""Below the limit of 1 MiB, with room for the metadata of the object."""


@dataclass(slots=True)
class ConfigMaps:
    """The ConfigMaps of one application, with their labels; a configuration that is used twice has one.

    A configuration of the lattice is another one than that of the application with the same name.
    """

    application: str
    namespace: str
    labels: dict[str, str]
    record: Record
    made: dict[str, Manifest] = field(default_factory=dict)

    def reference_to(self, config: Config) -> str:
        """Return the name of the ConfigMap of a configuration, "" if it has none; create it if it is new."""
        if config.entries is None:
            name = part_name(self.application, config.name, _OF_THE_LATTICE)
            self.record.note(
                config.place,
                Reason.NAMED_CONFIGURATION,
                f"configuration {config.name} is in the lattice and not in the application",
                f"Create ConfigMap {name} with the entries that `wash config get {config.name}` prints.",
                Way.OBJECT,
            )
            return name
        data = self._data(config)
        if sum(len(key.encode()) + len(value.encode()) for key, value in data.items()) > _BYTES_MOST:
            self.record.note(
                config.place,
                Reason.CONFIGURATION_TOO_LARGE,
                f"configuration {config.name} is larger than a ConfigMap can be",
                "Store it in an object that the component reads, or mount a volume.",
                Way.COMPONENT,
                Way.V1,
            )
            return ""
        name = part_name(self.application, config.name)
        if self.made.get(name, {"data": data})["data"] != data:
            name = part_name(self.application, config.name, config.place)
        self.made[name] = self._manifest(name, data)
        target = reference("ConfigMap", self.namespace, name)
        self.record.done(config.place, target)
        for key in data:
            self.record.done(config.entry(key), target)
        return name

    def _manifest(self, name: str, data: dict[str, str]) -> Manifest:
        metadata = {"name": name, "namespace": self.namespace, "labels": self.labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def _data(self, config: Config) -> dict[str, str]:
        """Return the entries that a ConfigMap can have, and record the remaining ones."""
        data: dict[str, str] = {}
        for key, value in (config.entries or {}).items():
            if not _KEY.fullmatch(key) or key in _DOTS:
                self.record.note(
                    config.entry(key),
                    Reason.CONFIGURATION_KEY,
                    f"a ConfigMap cannot have the key {key!r} of configuration {config.name}",
                    "Rename the key, in the component too.",
                    Way.COMPONENT,
                )
                continue
            data[key] = value
            if not _VARIABLE.fullmatch(key):
                self.record.note(
                    config.entry(key),
                    Reason.ENVIRONMENT_NAME,
                    f"key {key!r} of configuration {config.name} cannot be an environment variable",
                    "Read it by wasi:config/store, or rename it.",
                    Way.COMPONENT,
                )
        note_unreadable(config, self.record)
        return data


def note_unreadable(config: Config, record: Record) -> None:
    """Record the entries of a configuration whose values are not text."""
    for key in config.unreadable:
        record.note(
            config.entry(key),
            Reason.CONFIGURATION_VALUE,
            f"the value of key {key!r} of configuration {config.name} is not text",
            "Write the value as text.",
            Way.MANIFEST,
        )
