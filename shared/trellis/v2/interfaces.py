"""WIT interfaces: those that hosts offer, workloads request and errors name.

Pure. In: ``WitInterface`` of messages and specs, texts of errors. Out: sets of single interfaces. Called by messages,
views and causes. Invariants: nothing raises; lists are compared as sets, because a host repeats entries and changes
their order with each heartbeat. Source: ``wash host`` 2.7; the texts are its ``Debug`` output and wasmtime's linker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trellis.v2.fields import Json, items, text, words

BUILT_IN: Final = frozenset({"http", "cli", "io", "clocks", "random", "filesystem", "sockets"})
"""Packages of ``wasi`` that each host has and that no heartbeat lists: heartbeats list the plugins only."""
_MOST: Final = 2000
_WIT: Final = re.compile(
    r'WitInterface \{ namespace: "(?P<namespace>[^"]{1,200})", package: "(?P<package>[^"]{1,200})", '
    r"interfaces: \{(?P<interfaces>[^{}]{0,2000})\}, version: (?P<version>None|Some\(Version \{[^{}]{0,300}\}\))"
)
_NUMBERS: Final = re.compile(r"major: (\d{1,9}), minor: (\d{1,9}), patch: (\d{1,9})")
_PRERELEASE: Final = re.compile(r'pre: Prerelease\("([^"]{1,100})"\)')
_QUOTED: Final = re.compile(r'"([^"]{1,200})"')
_NAMED: Final = re.compile(
    r"(?P<namespace>[a-z][a-z0-9-]{0,100}):(?P<package>[a-z][a-z0-9-]{0,100})/(?P<name>[a-z][a-z0-9-]{0,100})"
    r"(?:@(?P<version>[0-9A-Za-z.+-]{1,100}))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Interface:
    """One interface of a package; ``version`` "" if none is given."""

    namespace: str
    package: str
    name: str
    version: str = ""

    def __str__(self) -> str:
        """Return the name in WIT: ``acme:widgets/gizmo@1.0.0``."""
        return f"{self.namespace}:{self.package}/{self.name}" + (f"@{self.version}" if self.version else "")

    @property
    def built_in(self) -> bool:
        """True if each host has the package, without a plugin."""
        return self.namespace == "wasi" and self.package in BUILT_IN

    def fits(self, other: Interface) -> bool:
        """Return whether two are the same interface in any version."""
        return (self.namespace, self.package, self.name) == (other.namespace, other.package, other.name)


def interfaces_of(entry: Json) -> frozenset[Interface]:
    """Return the interfaces of one ``WitInterface``."""
    namespace, package, version = text(entry, "namespace"), text(entry, "package"), text(entry, "version")
    if not (namespace and package):
        return frozenset()
    return frozenset(Interface(namespace, package, name, version) for name in words(entry, "interfaces"))


def interfaces_in(data: Json, key: str) -> frozenset[Interface]:
    """Return the interfaces of a list of ``WitInterface``, at most 2,000."""
    found: set[Interface] = set()
    for entry in items(data, key):
        found |= interfaces_of(entry)
        if len(found) > _MOST:
            break
    return frozenset(sorted(found)[:_MOST])


def without_plugin(wanted: Iterable[Interface], offered: frozenset[Interface]) -> list[Interface]:
    """Return the interfaces that need a plugin and that no plugin has in any version, sorted."""
    return sorted({item for item in wanted if not item.built_in and not any(item.fits(each) for each in offered)})


def debugged_interfaces(message: str) -> list[Interface]:
    """Return the interfaces in the ``Debug`` output of ``WitInterface``s, sorted."""
    found: set[Interface] = set()
    for entry in _WIT.finditer(message):
        version = _version(entry["version"])
        names = _QUOTED.findall(entry["interfaces"])
        found |= {Interface(entry["namespace"], entry["package"], name, version) for name in names}
    return sorted(found)


def named_interface(name: str) -> Interface | None:
    """Return the interface of a name in WIT, None if it is not one."""
    found = _NAMED.fullmatch(name)
    if found is None:
        return None
    return Interface(found["namespace"], found["package"], found["name"], found["version"] or "")


def _version(debugged: str) -> str:
    numbers = _NUMBERS.search(debugged)
    if numbers is None:
        return ""
    prerelease = _PRERELEASE.search(debugged)
    return ".".join(numbers.groups()) + (f"-{prerelease[1]}" if prerelease else "")
