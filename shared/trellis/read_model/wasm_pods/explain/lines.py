"""Lines that several checks of Wasm pods create. Pure."""

from __future__ import annotations

from typing import Final

from trellis.read_model.explain.page import Line, Rank
from trellis.read_model.wasm_pods.pods import Pairs, WasmPod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

SHOWN: Final = 3
WORDS_SHOWN: Final = 400
"""Characters of an error of another program that a line has."""


def wrong(pod: WasmPod, about: str, text: str, do: str, reason: Reason) -> Line:
    """Return the line of a cause. A pod that works needs the step only for its next start, so it has no problem yet."""
    return Line(about, text, False, do, Rank.ASIDE if pod.works else Rank.CAUSE, reason)


def waits(about: str, text: str, reason: Reason = Reason.WAITING, do: str = "") -> Line:
    """Return the line of a step that is in progress."""
    return Line(about, text, False, do, Rank.SYMPTOM, reason)


def unknown(snapshot: Snapshot, about: str, what: str, part: Part) -> Line:
    """Return the line of a step that cannot be checked, because a part was not read."""
    return Line(about, f"{what} unknown: {snapshot.unread[part]}")


def labels_text(selector: Pairs) -> str:
    """Return labels as in a selector: ``a=1,b=2``."""
    return ",".join(f"{name}={value}" for name, value in selector)


def short(words: str) -> str:
    """Return the begin of an error of another program."""
    return words if len(words) <= WORDS_SHOWN else f"{words[: WORDS_SHOWN - 1]}…"


def see_shim(name: str) -> str:
    """Return the command that explains a Shim."""
    return f"`trellis explain shim/{name}`"


def see_node(name: str) -> str:
    """Return the command that explains a node."""
    return f"`trellis explain node/{name}`"


def runtime_log(node: str) -> str:
    """Return the place of the log of containerd, which is in no object of Kubernetes."""
    return f"the log of containerd on node {node} (`journalctl -u containerd`, on k3s `journalctl -u k3s`)"
