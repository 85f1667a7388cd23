"""Broken situations, each by what ``trellis explain`` has to name for it; ``<…>`` stands for what differs.

The integration suite makes each for real, and docs/troubleshooting.md has a section for each, in this order: a contract
test sees to that. The wording is free: a situation is known by the step that is the answer, the reason in the cause,
and the names, fields and commands of the first line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trellis.bus.connection.connection import REFUSED

PULLING: Final = "ErrImagePull|ImagePullBackOff"
QUOTA: Final = (
    "node <name>",
    "exceeded quota: <quota>",
    "ResourceQuota <quota>",
    "namespace <namespace>",
    "`kubectl describe resourcequota <quota> -n <namespace>`",
)


@dataclass(frozen=True)
class Situation:
    """The step that is the answer, and the row of ``trellis status`` that counts it.

    ``named``: what the first line names, in this order. ``reason``: a pattern of the reason in the cause, in
    Kubernetes' or in Trellis' words.
    """

    step: str
    row: str
    named: tuple[str, ...]
    reason: str = ""

    def fits(self, page: Mapping[str, Any]) -> bool:
        """Say whether the JSON of an answer is this situation."""
        cause = page["cause"]
        steps = [line["about"] for line in page["lines"] if line["ok"] is False and line["text"] == cause]
        return self.step in steps and bool(re.search(self.reason, cause, re.DOTALL)) and self.names(page["headline"])

    def names(self, headline: str) -> bool:
        """Say whether a first line names all that it has to."""
        pattern = ".*".join(rf"(?<![\w-]){_pattern(part)}" for part in self.named)
        return re.search(pattern, headline, re.DOTALL) is not None


def _pattern(template: str) -> str:
    parts = re.split(r"(<[^>]+>)", template)
    return "".join(r"[^\s/`]+" if part.startswith("<") else re.escape(part) for part in parts)


SITUATIONS: Final = {
    "image cannot be pulled": Situation("pod", "rollout", ("node <name>", "namespace <namespace>"), PULLING),
    "pull secret missing": Situation(
        "pod",
        "rollout",
        (
            "node <name>",
            "Secret <namespace>/<secret>",
            "kubernetes.io/dockerconfigjson",
            "TRELLIS_INSTALLER_PULL_SECRETS",
        ),
        PULLING,
    ),
    "wrong checksum": Situation(
        "last failure", "rollout", ("node <name>", "ChecksumMismatch", "SHA-256 <wanted>", "sha256")
    ),
    "handler missing": Situation("last failure", "rollout", ("node <name>", "HandlerMissing", "'<handler>'")),
    "node not ready": Situation("kubelet", "rollout", ("node <name>", "`kubectl describe node <name>`")),
    "quota": Situation("pod", "rollout", QUOTA),
    "quota of Jobs": Situation("job", "rollout", QUOTA),
    "missing Secret": Situation("degraded", "hosts", ("hostgroup <namespace>/<name>", "Secret <namespace>/<secret>")),
    "NATS credentials wrong": Situation(
        "lattice", "hosts", ("hostgroup <namespace>/<name>", "LatticeUnreachable"), re.escape(REFUSED)
    ),
    "wadm away": Situation("sync", "applications", ("application <namespace>/<name>", "wadm", "lattice <lattice>")),
    "unknown lattice": Situation(
        "hosts",
        "applications",
        (
            "application <namespace>/<name>",
            "namespace <namespace>",
            "lattice <lattice>",
            "WasmCloudHostConfig",
            "spec.lattice: <lattice>",
            "trellis.dev/lattice",
        ),
    ),
    "loopback address": Situation(
        "event",
        "reflected_services",
        (
            "service <name>",
            "LoopbackAddress",
            "application <name>",
            "lattice <lattice>",
            "127.0.0.1:<port>",
            "0.0.0.0:<port>",
        ),
    ),
    "trap in a controller": Situation(
        "last fault", "controllers", ("controller <namespace>/<name>", "Trapped", "spec.module")
    ),
    "dead letter": Situation(
        "dead letter",
        "bus",
        (
            "dead letter <sequence>",
            "`trellis dead-letters show <sequence>`",
            "`trellis dead-letters replay <sequence>`",
        ),
    ),
}
