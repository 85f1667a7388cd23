"""Broken situations, each by the first line that ``trellis explain`` has for it; ``<…>`` stands for what differs.

The integration suite makes each for real, and docs/troubleshooting.md has each line in its table: a contract test sees
to that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Situation:
    """A first line, and the row of ``trellis status`` that counts it."""

    line: str
    row: str

    def fits(self, headline: str) -> bool:
        """Say whether an answer is this one."""
        pattern = "".join(".+" if part.startswith("<") else re.escape(part) for part in _parts(self.line))
        return re.fullmatch(pattern, headline, re.DOTALL) is not None


def _parts(line: str) -> list[str]:
    return [part for part in re.split(r"(<[^>]+>)", line) if part]


SITUATIONS: Final = {
    "image cannot be pulled": Situation(
        "node <name> is not ready to run Wasm: the image of the installer cannot be pulled: <reason>. Check "
        "the image's "
        "name, that its registry is reached, and the pull secret of namespace <namespace>",
        "rollout",
    ),
    "pull secret missing": Situation(
        "node <name> is not ready to run Wasm: the image of the installer cannot be pulled, Secret "
        "<namespace>/<secret> is missing: <reason>. Create it, of type kubernetes.io/dockerconfigjson, or name "
        "another: TRELLIS_INSTALLER_PULL_SECRETS of provisioner",
        "rollout",
    ),
    "wrong checksum": Situation(
        "node <name> is not ready to run Wasm: ChecksumMismatch: <file> should have the SHA-256 <wanted> and has "
        "<found>: it is another file, or was changed. Give the Shim the sha256 of the file that is to be "
        "there, or mend "
        "its source",
        "rollout",
    ),
    "loopback address": Situation(
        "service <name> is not ready: LoopbackAddress on <namespace>/<group>: application <name> of lattice <lattice>: "
        "<capability> listens on 127.0.0.1:<port>, which only its own host reaches: let it listen on 0.0.0.0:<port>",
        "mirrors",
    ),
    "missing Secret": Situation(
        "hostgroup <namespace>/<name> is not ready: Secret <namespace>/<secret> is missing. Create it, or name another "
        "in the spec",
        "hosts",
    ),
    "NATS credentials wrong": Situation(
        "hostgroup <namespace>/<name> is not ready: LatticeAway: the lattice's NATS cannot be heard: NATS refused the "
        "user: its nkey, credentials, password or token <address>; nothing is taken away because of that. "
        "Check <where> "
        "against the users of that NATS",
        "hosts",
    ),
    "wadm away": Situation(
        "application <namespace>/<name> is not ready: wadm of lattice <lattice> does not answer: <reason>. Start wadm, "
        "or see its log<more>",
        "applications",
    ),
    "node not ready": Situation(
        "node <name> is not ready to run Wasm: its kubelet does not report it ready, so nothing is begun on it: "
        "<reason>. Mend the kubelet: `kubectl describe node <name>`; work goes on by itself once it is ready",
        "rollout",
    ),
    "handler missing": Situation(
        "node <name> is not ready to run Wasm: HandlerMissing: <reason> the runtime handler '<handler>' <more>. See "
        "that the shim installs a handler of this name, and the container runtime's log on the node",
        "rollout",
    ),
    "quota": Situation(
        "node <name> is not ready to run Wasm: the API server refuses the installer's pod: exceeded quota: <quota>, "
        "<numbers>. Raise ResourceQuota <quota> of namespace <namespace>: `kubectl describe resourcequota <quota> -n "
        "<namespace>`",
        "rollout",
    ),
    "quota of Jobs": Situation(
        "node <name> is not ready to run Wasm: the API server refuses the installer's Job: exceeded quota: <quota>, "
        "<numbers>. Raise ResourceQuota <quota> of namespace <namespace>: `kubectl describe resourcequota <quota> -n "
        "<namespace>`",
        "rollout",
    ),
    "unknown lattice": Situation(
        "application <namespace>/<name> is not ready: namespace <namespace> has no group of hosts of lattice "
        "<lattice>, "
        "only of <others>. Create a WasmCloudHostConfig with spec.lattice: <lattice>, or set the label "
        "trellis.dev/lattice to <others>",
        "applications",
    ),
    "trap in a controller": Situation(
        "controller <namespace>/<name> is not ready: its last call was ended, Trapped: <reason> (at <time>; <count> "
        "traps<more>). Mend the module, or take its former version: spec.module",
        "controllers",
    ),
    "dead letter": Situation(
        "letter <sequence> is not delivered: <reader> gave up on it after <count>, <reason>: <cause>. "
        "`trellis dead show "
        "<sequence>` shows it; once its cause is mended, `trellis dead replay <sequence>` sends it again",
        "bus",
    ),
}
