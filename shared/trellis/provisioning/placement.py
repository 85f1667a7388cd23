"""The placement of pods by a RuntimeClass: the labels that their nodes need, and the taints that they tolerate.

Pure. In: ``spec.runtimeClass.scheduling`` of a Shim, ``scheduling`` of a RuntimeClass. Out: a frozen view, and back.
Called by ``shims`` and ``provisioner``. Invariant: an empty field is a missing one, as the API server returns it.
Source: RuntimeClass of node.k8s.io/v1; its admission plugin merges both into each new pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty text is a missing field. ``seconds``: for effect NoExecute, None for no limit."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Toleration:
        """Return the view of a toleration."""
        key, operator, value, effect = (
            str(manifest.get(name) or "") for name in ("key", "operator", "value", "effect")
        )
        return cls(key, operator, value, effect, manifest.get("tolerationSeconds"))

    def manifest(self) -> Manifest:
        """Return the toleration in the form of the API server."""
        texts = {"key": self.key, "operator": self.operator, "value": self.value, "effect": self.effect}
        seconds = {} if self.seconds is None else {"tolerationSeconds": self.seconds}
        return {name: text for name, text in texts.items() if text} | seconds


@dataclass(frozen=True, slots=True)
class Placement:
    """Labels of nodes, sorted by key, and tolerations, in their order."""

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @classmethod
    def of(cls, scheduling: Mapping[str, Any] | None) -> Placement:
        """Return the view of ``scheduling``."""
        found = scheduling or {}
        selector: Mapping[str, str] = found.get("nodeSelector") or {}
        return cls(tuple(sorted(selector.items())), tuple(map(Toleration.of, found.get("tolerations") or ())))

    def scheduling(self) -> Manifest:
        """Return ``scheduling`` of a RuntimeClass."""
        tolerations = [toleration.manifest() for toleration in self.tolerations]
        return {"nodeSelector": dict(self.selector)} | ({"tolerations": tolerations} if tolerations else {})

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels has all labels of the selector."""
        return all(labels.get(key) == value for key, value in self.selector)


ANYWHERE: Final = Placement()
"""The placement without labels and tolerations."""
