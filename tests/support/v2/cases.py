"""The recorded situations of the real wasmCloud v2, each with the cause that is to be in the first line.

Out: cases, their snapshots and pages. Called by tests of recordings and of variations of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from support.v2.recordings import deployment, host, recording
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot

SON: Final = "uppity-son-5573"
STOPPED: Final = "8c64c780-39e3-4226-9a67-cc8e2856b37c"
"""ID of a host whose process is stopped, so that NATS keeps its connection."""
END: Final = -1.0
"""The end of a recording."""


@dataclass(frozen=True)
class Case:
    """What is asked at a moment of a recording, and the expected first line."""

    situation: str
    at: float
    name: str
    reason: Reason | None
    health: Health = Health.DEGRADED
    named: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    kind: str = "workloaddeployment"

    @property
    def moment(self) -> float:
        """Seconds since the start of the recording."""
        return recording(self.situation).end if self.at == END else self.at


REPLIES: Final = {"listened": 65.0, "replies": True}
HEARTBEATS: Final = {"listened": 21.0}
CASES: Final = {
    "no host": Case("00", 5, "lonely", Reason.NO_HOST),
    "a host that starts": Case("01", 20, SON, None, Health.HEALTHY, kind="whost"),
    "a host before its conditions": Case("01", 0.035, SON, Reason.WAITING, Health.PROGRESSING, kind="whost"),
    "ready": Case("02", 6, "hello", None, Health.HEALTHY),
    "scaled to three": Case("03", 6, "hello", None, Health.HEALTHY),
    "a tag that is missing, with the reply": Case(
        "04", 64, "no-tag", Reason.IMAGE_NOT_FOUND, named=("127.0.0.1:25000/demo/hello:nine",), about=REPLIES
    ),
    "a tag that is missing, without the reply": Case(
        "04", 64, "no-tag", Reason.PULL_FAILED, named=("127.0.0.1:25000/demo/hello:nine", "--v2-replies")
    ),
    "a repository that is missing": Case("04", 64, "no-repo", Reason.IMAGE_NOT_FOUND, about=REPLIES),
    "a registry that refuses": Case(
        "04", 64, "refused", Reason.REGISTRY_UNREACHABLE, named=("127.0.0.1:25999",), about=REPLIES
    ),
    "a registry without an address": Case(
        "04", 64, "no-dns", Reason.REGISTRY_UNREACHABLE, named=("registry.invalid",), about=REPLIES
    ),
    "not a component": Case(
        "04", 64, "garbage", Reason.NOT_A_COMPONENT, named=("127.0.0.1:25000/demo/garbage:1",), about=REPLIES
    ),
    "a registry that does not answer, while it is asked": Case(
        "04b", 12, "blackhole", Reason.REGISTRY_TIMEOUT, Health.PROGRESSING, named=("127.0.0.1:25777",)
    ),
    "a bystander of that": Case(
        "04b", 12, "bystander", Reason.REGISTRY_TIMEOUT, Health.PROGRESSING, named=("127.0.0.1:25777", "apps/blackhole")
    ),
    "its host meanwhile": Case(
        "04b",
        29,
        SON,
        Reason.REGISTRY_TIMEOUT,
        Health.PROGRESSING,
        named=("127.0.0.1:25777",),
        kind="whost",
        about=HEARTBEATS,
    ),
    "a registry that does not answer, afterwards": Case(
        "04b", 40, "blackhole", Reason.REGISTRY_TIMEOUT, named=("127.0.0.1:25777",), about=REPLIES
    ),
    "the bystander afterwards": Case("04b", 40, "bystander", None, Health.HEALTHY),
    "an import that is not declared": Case(
        "06", 14, "widget-undeclared", Reason.INTERFACE_MISSING, named=("acme:widgets/gizmo@1.0.0",), about=REPLIES
    ),
    "an import that is declared and has no plugin": Case(
        "06", 14, "widget-declared", Reason.PLUGIN_MISSING, named=("acme:widgets/gizmo@1.0.0",), about=REPLIES
    ),
    "an old draft": Case(
        "06", 14, "old-draft", Reason.PLUGIN_MISSING, named=("wasi:config/runtime@0.2.0-draft",), about=REPLIES
    ),
    "an old draft, by heartbeats alone": Case(
        "06", 21, "old-draft", Reason.PLUGIN_MISSING, named=("wasi:config/runtime@0.2.0-draft",), about=HEARTBEATS
    ),
    "no host name, with the reply": Case("06", 14, "no-hostname", Reason.HTTP_HOST_MISSING, about=REPLIES),
    "no host name, computed": Case("06", 14, "no-hostname", Reason.HTTP_HOST_MISSING),
    "an undeclared import, without the reply": Case("06", 14, "widget-undeclared", Reason.START_FAILED),
    "no interface": Case("06", 14, "no-interface", None, Health.HEALTHY),
    "a selector that matches nothing": Case(
        "07", 15, "picky", Reason.NO_HOST_MATCHES, named=("hostgroup=gpu", "hostgroup=default")
    ),
    "an environment that matches nothing": Case("07", 15, "elsewhere", Reason.NO_HOST_MATCHES, named=("other", "apps")),
    "a host ID that does not exist": Case(
        "07", 15, "pinned", Reason.HOST_NOT_FOUND, named=("11111111-2222-3333-4444-555555555555", SON)
    ),
    "a ConfigMap that is missing": Case(
        "08", 6, "env-configmap", Reason.CONFIG_MISSING, named=("ConfigMap apps/settings",)
    ),
    "a Secret that is missing": Case("08", 6, "env-secret", Reason.CONFIG_MISSING, named=("Secret apps/credentials",)),
    "a Secret of an interface": Case(
        "08", 6, "iface-secret", Reason.CONFIG_MISSING, named=("Secret apps/credentials",)
    ),
    "configuration that was created": Case("08", 40, "env-configmap", None, Health.HEALTHY),
    "a named port": Case("09", 30, "svc-named", None, Health.HEALTHY),
    "a port without a name": Case("09", 30, "svc-unnamed", Reason.PORT_NOT_NAMED, named=("apps/svc-unnamed", "80")),
    "the port of the documentation": Case("09", 30, "svc-docs", Reason.PORT_NOT_NAMED),
    "a Service that was created later": Case("09", 45, "svc-late", Reason.SERVICE_NEWER, named=("apps/svc-late",)),
    "a host with a loopback address": Case(
        "09b", 20, "svc-loop", Reason.ADDRESS_NOT_ROUTABLE, named=("127.0.0.13", "--host-name")
    ),
    "a host that was killed, not noticed": Case("10", 40, "hello", Reason.HEARTBEAT_MISSING),
    "that host, by its missing heartbeat": Case(
        "10", 40, "@dead", Reason.HEARTBEAT_MISSING, kind="whost", about=HEARTBEATS
    ),
    "a host that was killed, reported": Case("10", 60, "@dead", Reason.HEARTBEAT_MISSING, kind="whost"),
    "a Workload on a host that does not answer a stop": Case(
        "10b", 0, "unnamed-port", Reason.DELETING, Health.PROGRESSING, named=(STOPPED, "30 s", "2 Workloads")
    ),
    "a Workload that waits for that stop": Case(
        "10b", 0, "gpu", Reason.NOT_OBSERVED, Health.UNKNOWN, named=(STOPPED, "the process of this host")
    ),
    "a host that was terminated": Case("11", 40, "hello", Reason.HEARTBEAT_MISSING),
    "a host that was interrupted": Case("11b", 40, "hello", Reason.HEARTBEAT_MISSING),
    "all replicas on the other host": Case("11b", 75, "hello", None, Health.HEALTHY),
    "all heartbeats stopped, before a request of the operator": Case(
        "12", 33.5, "hello", Reason.HEARTBEATS_STOPPED, Health.UNKNOWN, named=("2 hosts",)
    ),
    "a host meanwhile": Case("12", 33.5, SON, Reason.HEARTBEATS_STOPPED, Health.UNKNOWN, kind="whost"),
    "a host without a heartbeat of any host": Case(
        "12", 25, SON, Reason.HEARTBEATS_STOPPED, Health.UNKNOWN, kind="whost", about=HEARTBEATS
    ),
    "NATS away": Case("12", 45, "hello", Reason.NATS_UNREACHABLE, Health.UNKNOWN),
    "NATS away, before Hosts are deleted": Case("12", 66, "hello", Reason.NATS_UNREACHABLE, Health.UNKNOWN),
    "a host with zombies": Case(
        "12", 96, "uppity-country-8876", Reason.UNKNOWN_WORKLOADS, kind="whost", named=("2",), about=HEARTBEATS
    ),
    "hosts that connected after the operator": Case("12", 90, "hello", Reason.WAITING, Health.PROGRESSING),
    "NATS back": Case("12", 103, "hello", None, Health.HEALTHY),
    "no operator": Case("13", 12, "hello", Reason.NOT_OBSERVED, Health.PROGRESSING, named=("5", "4")),
    "an operator again": Case("13", 20, "hello", None, Health.HEALTHY),
    "a rollout": Case("14", 1.0, "hello", Reason.WAITING, Health.PROGRESSING),
    "a rollout that is done": Case("14", 3, "hello", None, Health.HEALTHY),
    "a rollout of a bad image": Case(
        "14b",
        40,
        "hello",
        Reason.IMAGE_NOT_FOUND,
        named=("127.0.0.1:25000/demo/hello:bad", "hello-8b6c99bb9"),
        about=REPLIES,
    ),
    "a rollout that was put back": Case("14b", 83, "hello", None, Health.HEALTHY),
    "an Artifact that does not exist": Case(
        "15", 3.1, "art-early", Reason.ARTIFACT_NOT_FOUND, named=("apps/hello-code",)
    ),
    "an Artifact that was created": Case("15", 20, "art-early", Reason.WAITING, Health.PROGRESSING),
    "the name of an Artifact as an image": Case(
        "15", 80, "art-name", Reason.ARTIFACT_NOT_LISTED, named=("hello-code", "code")
    ),
    "a list that changes nothing": Case("15", 80, "art-plain", None, Health.HEALTHY),
    "an Artifact": Case("15", 30, "hello-code", None, Health.HEALTHY, kind="artifact"),
    "an Artifact whose deletion waits": Case(
        "15", END, "hello-code", Reason.ARTIFACT_IN_USE, Health.PROGRESSING, named=("art-early",), kind="artifact"
    ),
    "an Artifact without a controller": Case(
        "15b", 8, "hello-code", Reason.ARTIFACT_NOT_PUBLISHED, named=("art-ext",), kind="artifact"
    ),
    "its user": Case("15b", 8, "art-ext", Reason.ARTIFACT_NOT_PUBLISHED, named=("apps/hello-code",)),
    "an Artifact of another controller": Case("15b", END, "hello-code", None, Health.HEALTHY, kind="artifact"),
    "its user afterwards": Case("15b", END, "art-ext", None, Health.HEALTHY),
    "no egress": Case("16", 20, "egress-none", None, Health.HEALTHY),
    "another environment": Case("17", 20, "stranger", Reason.ENVIRONMENT_DENIED, named=("other",)),
    "replies on the inbox": Case(
        "21", 20, "heard", Reason.IMAGE_NOT_FOUND, named=("127.0.0.1:25000/demo/hello:nine",), about=REPLIES
    ),
    "a pull Secret of another type": Case(
        "22", 0, "opaque-pull-secret", Reason.CONFIG_INVALID, named=("kubernetes.io/dockerconfigjson", "opaque")
    ),
    "a pull Secret that cannot be read": Case(
        "22", 0, "broken-pull-secret", Reason.CONFIG_INVALID, named=(".dockerconfigjson of Secret cred-broken",)
    ),
    "an image that is no reference, with a pull Secret": Case(
        "22", 0, "bad-ref-secret", Reason.IMAGE_INVALID, named=("!!not a ref", "invalid reference format")
    ),
    "a repository in capitals, with a pull Secret": Case(
        "22", 0, "upper-ref-secret", Reason.IMAGE_INVALID, named=("Demo/Hello:1", "must be lowercase")
    ),
    "a port with another protocol": Case(
        "22", 0, "udp-service", Reason.PORT_NOT_NAMED, named=("apps/udp", "80/UDP", "protocol of port http to TCP")
    ),
    "a host that does not answer, with a listener": Case("21", 20, "heard-pinned", Reason.HOST_NOT_FOUND),
}


def page(case: Case, seed: int = 0) -> Explanation:
    """Return the page of a case."""
    snapshot = snapshot_of(case, seed)
    return page_of(snapshot, case)


def snapshot_of(case: Case, seed: int = 0) -> Snapshot:
    """Return the snapshot of a case."""
    return recording(case.situation).snapshot(case.moment, seed=seed, **case.about)


def page_of(snapshot: Snapshot, case: Case) -> Explanation:
    """Return the page of the object of a case in a snapshot."""
    if case.kind == "artifact":
        [artifact] = [item for item in snapshot.artifacts if item.meta.name == case.name]
        return explain_artifact(snapshot, artifact, Beside())
    if case.kind == "whost":
        return explain_host(snapshot, host(snapshot, dead(snapshot) if case.name == "@dead" else case.name), Beside())
    return explain_deployment(snapshot, deployment(snapshot, case.name), Beside())


def dead(snapshot: Snapshot) -> str:
    """Return the host that was killed: the one with the oldest heartbeat."""
    return min(snapshot.hosts, key=lambda item: item.last_seen or 0.0).meta.name
