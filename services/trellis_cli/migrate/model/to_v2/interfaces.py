"""The host interfaces of a workload, within the rules of the CRD.

Pure. In: the needs of links, in order. Out: entries of ``hostInterfaces``. Called by ``links``.
Invariants, which are the rules of the CRD: at most 64 entries; each has an interface; at most one entry of a package is
unnamed; no two have the same namespace, package, name and version; a name is ``[a-z0-9][a-z0-9-]*``.
Equal needs share an entry. A need with other settings than the unnamed entry of its package gets a name, so that no
component is connected to the backend of another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from trellis import names

ENTRIES_MOST: Final = 64
VERSION_MOST: Final = 64
_LINKED_MOST: Final = ENTRIES_MOST - 1
"""One entry is kept for ``wasi:http``, which a listener adds."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_NAME_MOST: Final = 63
OF_EXPORTS: Final = frozenset({"host", "subscriptions", "consumer_group"})
"""Settings of exports: a need without them, for imports of the same package, has the same backend."""


@dataclass(frozen=True, slots=True)
class Need:
    """The interfaces that one link needs.

    ``name``: "" for the default; ``secrets``: names of Secrets; ``by_host``: without a name, the host has the address
    of the backend, and no Secret is read.
    """

    namespace: str
    package: str
    interfaces: tuple[str, ...]
    version: str = ""
    name: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    by_host: bool = False


class Outcome(Enum):
    """Outcome of a need."""

    ADDED = auto()
    SHARED = auto()
    NAMED = auto()
    """An entry with other settings has the place without a name: this one has a name."""
    FULL = auto()


@dataclass(frozen=True, slots=True)
class Interfaces:
    """The entries so far, frozen: each need returns the next state."""

    entries: tuple[Need, ...] = ()

    def with_need(self, need: Need, other_name: str) -> tuple[Interfaces, Outcome, str]:
        """Return the entries with a need, its outcome, and the name of its entry.

        ``other_name``: a name for it if its place is taken.
        """
        name = interface_name(need.name) if need.name else ""
        found = self._at(need, name)
        if found is not None:
            if merged := _merged(self.entries[found], need):
                return self._replaced(found, merged), Outcome.SHARED, name
            name = self._free(need, interface_name(other_name))
        if len(self.entries) >= _LINKED_MOST:
            return self, Outcome.FULL, ""
        outcome = Outcome.ADDED if found is None else Outcome.NAMED
        return Interfaces((*self.entries, replace(need, name=name))), outcome, name

    def _at(self, need: Need, name: str) -> int | None:
        place = (need.namespace, need.package, name)
        found = [at for at, item in enumerate(self.entries) if (item.namespace, item.package, item.name) == place]
        return found[0] if found else None

    def _free(self, need: Need, name: str) -> str:
        taken = {item.name for item in self.entries if (item.namespace, item.package) == (need.namespace, need.package)}
        number, free = 2, name
        while free in taken:
            number, free = number + 1, f"{name[: _NAME_MOST - 3]}-{number}"
        return free

    def _replaced(self, at: int, entry: Need) -> Interfaces:
        return Interfaces((*self.entries[:at], entry, *self.entries[at + 1 :]))

    def manifests(self) -> list[dict[str, Any]]:
        """Return the entries of ``hostInterfaces``."""
        return [make_interface(entry) for entry in self.entries]


def interface_name(name: str) -> str:
    """Return a valid name of an entry: a valid one is unchanged, another one is converted and ends with a hash."""
    if _NAME.fullmatch(name) and len(name) <= _NAME_MOST:
        return name
    part = re.sub(r"[^a-z0-9-]", "-", name.lower())[:50].strip("-")
    return f"{part or 'link'}-{names.short_hash(name)}"


def _merged(entry: Need, need: Need) -> Need | None:
    """Return an entry that serves both, None if their settings differ."""
    versions = {entry.version, need.version} - {""}
    compared = (entry.config.keys() | need.config.keys()) - OF_EXPORTS
    compared |= entry.config.keys() & need.config.keys()
    if any(entry.config.get(key) != need.config.get(key) for key in compared):
        return None
    if len(versions) > 1 or entry.secrets != need.secrets:
        return None
    return replace(
        entry,
        interfaces=tuple(dict.fromkeys((*entry.interfaces, *need.interfaces))),
        version=next(iter(versions), ""),
        config={**entry.config, **need.config},
    )


def make_interface(entry: Need) -> dict[str, Any]:
    """Return the entry of ``hostInterfaces`` of a need."""
    found: dict[str, Any] = {"namespace": entry.namespace, "package": entry.package}
    if entry.name:
        found["name"] = entry.name
    if entry.version:
        found["version"] = entry.version
    found["interfaces"] = list(entry.interfaces)
    if entry.config:
        found["config"] = dict(entry.config)
    if entry.secrets and (entry.name or not entry.by_host):
        found["secretFrom"] = [{"name": name} for name in entry.secrets]
    return found
