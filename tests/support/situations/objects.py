"""Situations of every kind, as its objects are in the cluster, with the health and the reason that all surfaces show.

The situations of docs/troubleshooting.md are among them. In: nothing. Out: tables by name. Called by tests of the
read model, of conditions and of kstatus.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from application_manager.domain.actions import Announcement, Decision
from application_manager.domain.actions import Reason as AppReason
from application_manager.domain.conditions import status_of as app_status_of
from application_manager.domain.sides import Absence, Base, Model
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import view_application
from controller_host.report.status import Seen as SeenController
from controller_host.scheduler.hosted import Fault, Trouble
from controller_host.state.progress import KnownModule
from secrets_backend.domain.decide import view_grant
from secrets_backend.domain.grant_status import Access
from secrets_backend.domain.grant_status import Reason as GrantReason
from secrets_backend.domain.grant_status import status_of as grant_status_of
from support.console import seen_objects as objects
from support.wadm.application_objects import seen_of, stored
from trellis import names
from trellis.crds.conditions import State
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import StoredManifest, StoredModel
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.reasons import NO_POD
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import view_shim, wanted_shim_for
from trellis.provisioning.views import FailedAttempt, JobView, Target, encode_digests
from trellis.read_model.entities.cards import (
    view_installer,
    view_shim_card,
)
from trellis.read_model.entities.composing import PARTS, Composer
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.explain.job import pending_causes
from trellis.read_model.explain.node import NodeSnapshot, explain_node
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.shim import ShimSnapshot, explain_shim
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.read_model.tables.nodes import rows_of, with_causes
from trellis.read_model.tables.rollout import Phase, RolloutSnapshot, standing_of
from trellis_cli.explain.grant import Account, GrantSnapshot
from trellis_cli.top.model import Kind, Wanted, rows

Manifest = dict[str, Any]

HAVE: frozenset[tuple[str, str]] = frozenset({("team", "prod")})
"""Namespace and lattice of each host group."""

INSTALLERS = "trellis-installers"

QUOTA = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1'


def filled(manifest: Manifest) -> Manifest:
    metadata = {"uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": "1"} | manifest["metadata"]
    return manifest | {"metadata": metadata}


def condition(kind: str, status: str, reason: str, message: str = "so it is") -> Manifest:
    at = "2026-01-01T00:00:00Z"
    found = {"type": kind, "status": status, "reason": reason, "message": message}
    return found | {"lastTransitionTime": at, "observedGeneration": 1}


def one_each(*conditions: Manifest) -> list[Manifest]:
    """Return the conditions; of those of one type the last."""
    return [*{condition["type"]: condition for condition in conditions}.values()]


STARTED = (
    condition("Available", "False", "NodesNotReady"),
    condition("Progressing", "True", "Updating"),
    condition("Degraded", "False", "Healthy"),
)

COMPLETE = (condition("Available", "True", "AllNodesReady"), condition("Progressing", "False", "Updated"))


def shim(*conditions: Manifest, name: str = "spin", nodes: int = 1, **spec: Any) -> Manifest:
    """Return a Shim with these conditions; the others are those of a rollout in progress."""
    counts = {"nodes": nodes, "nodesReady": 0, "nodesUpdated": 0}
    status = {"observedGeneration": 1, "conditions": one_each(*STARTED, *conditions), **counts}
    found = filled(objects.shim(name))
    return found | {"spec": found["spec"] | spec, "status": status}


def digest(name: str = "spin") -> str:
    return str(getattr(wanted_shim_for(view_shim(shim(name=name)), "amd64", require_checksum=True), "digest", ""))


WANTED = Target((("spin", digest()),)).digest


def node(*, ready: bool = True, **marks: str) -> Manifest:
    return filled(objects.node("n1", ready=ready, **marks))


def failed(message: str) -> Manifest:
    marks = {
        names.ANNOTATION_NODE_UID: "uid-n1",
        names.ANNOTATION_FAILED_ATTEMPT: FailedAttempt(WANTED, 1, 1000).encode(),
        names.ANNOTATION_FAILURE: message,
    }
    return node(**marks)


def updated() -> Manifest:
    marks = {
        names.ANNOTATION_NODE_UID: "uid-n1",
        names.ANNOTATION_DIGEST: WANTED,
        names.ANNOTATION_VERIFIED: "handler",
        names.ANNOTATION_SHIMS: encode_digests({"spin": digest()}),
    }
    return node(**marks)


def job() -> Manifest:
    metadata = {
        "name": "n1-job",
        "namespace": INSTALLERS,
        "labels": {names.LABEL_NODE_UID: "uid-n1", names.LABEL_DIGEST: WANTED, names.LABEL_ATTEMPT: "1"},
        "annotations": {names.ANNOTATION_NODE: "n1", names.ANNOTATION_SHIMS: f"spin={digest()}"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return filled({"metadata": metadata, "spec": {}, "status": {}})


def pod(reason: str) -> Manifest:
    waiting = {"waiting": {"reason": reason, "message": "not found"}}
    labels = {"batch.kubernetes.io/job-name": "n1-job"}
    status = {"phase": "Pending", "containerStatuses": [{"name": "installer", "state": waiting}]}
    return filled({"metadata": {"name": "n1-pod", "namespace": INSTALLERS, "labels": labels}, "status": status})


def event(uid: str, reason: str, message: str) -> Manifest:
    about = {"uid": uid, "name": "n1", "kind": "Node"}
    at = "2026-01-01T00:01:00Z"
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about, "lastTimestamp": at}


@dataclass
class Nodes:
    """One node, its Shims and its Job, on all surfaces."""

    node: Manifest = field(default_factory=node)
    shims: tuple[Manifest, ...] = field(default_factory=lambda: (shim(),))
    jobs: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    events: tuple[Manifest, ...] = ()
    ledger: Ledger = field(default_factory=lambda: Ledger({}))

    def __post_init__(self) -> None:
        self.views = [view_shim(item) for item in self.shims]
        self.statuses = {item.name: read_status(raw) for item, raw in zip(self.views, self.shims, strict=True)}
        self.held = pending_causes(self.jobs, self.pods, self.events)
        self.job_views: tuple[JobView, ...] = tuple(map(view_job, self.jobs))

    def entities(self) -> dict[str, Any]:
        composer = Composer()
        composer.take("nodes", "n1", view_node(self.node))
        for item in self.shims:
            composer.take("shims", item["metadata"]["name"], view_shim_card(item))
        for view in self.job_views:
            composer.take("jobs", f"{INSTALLERS}/{view.name}", view)
        for item in self.pods:
            composer.take("installers", f"{INSTALLERS}/{item['metadata']['name']}", view_installer(item))
        composer.take("ledgers", "trellis-system/ledger", self.ledger)
        for part in ("nodes", "shims", "ledgers"):
            composer.report(PartStatus(part, synced=True, lacking={}))
        return dict(composer.flush())

    def node_on_all(self) -> list[tuple[str, str]]:
        snapshot = NodeSnapshot(
            self.node, INSTALLERS, self.jobs, self.pods, self.views, {}, self.statuses, self.ledger,
            Beside(events=self.events),
        )  # fmt: skip
        jobs = {"uid-n1": self.job_views}
        [row] = with_causes(rows_of([view_node(self.node)], jobs, self.ledger, self.views, self.statuses), self.held)
        table = (row.verdict.health.value, row.verdict.reason)
        return [explained(explain_node(snapshot)), table, *shown(self.entities(), "node/n1", Kind.NODES)]

    def shim_on_all(self, name: str = "spin") -> list[tuple[str, str]]:
        [raw] = [item for item in self.shims if item["metadata"]["name"] == name]
        snapshot = ShimSnapshot(raw, [view_node(self.node)], self.views, self.held, self.ledger)
        world = RolloutSnapshot(
            view_shim(raw), read_status(raw), tuple(self.views), (view_node(self.node),), self.ledger, causes=self.held
        )
        standing = standing_of(world)
        verdict = (standing.verdict.health.value, standing.verdict.reason)
        assert (standing.phase is Phase.COMPLETE) == (verdict[0] == "Healthy")
        return [explained(explain_shim(snapshot)), verdict, *shown(self.entities(), f"shim/{name}", Kind.SHIMS)]


def explained(page: Explanation) -> tuple[str, str]:
    document = page.document()
    if document["health"] in {"Degraded", "Missing"}:
        assert not document["ok"]
    return str(document["health"]), str(document["reason"])


def shown(entities: dict[str, Any], id_: str, kind: Kind) -> list[tuple[str, str]]:
    """Return health and reason of an entity, and of its row of ``trellis top``."""
    entity = entities[id_]
    [row] = [item for item in rows(kind, {id_: entity}, Wanted()) if item.id == id_]
    return [(entity["health"], entity["reason"]), (row.state, entity["reason"])]


SLOT = Ledger({"uid-n1": Entry(WANTED, 1, 9, ("spin",))})

REJECTED = "InstallerRefused"

NODES: dict[str, tuple[Nodes, Health, str]] = {
    "ErrImagePull": (Nodes(jobs=(job(),), pods=(pod("ErrImagePull"),), ledger=SLOT), Health.DEGRADED, "ErrImagePull"),
    "ImagePullBackOff": (
        Nodes(jobs=(job(),), pods=(pod("ImagePullBackOff"),), ledger=SLOT),
        Health.DEGRADED,
        "ImagePullBackOff",
    ),
    "ChecksumMismatch": (
        Nodes(node=failed("attempt 1: InstallerFailed: ChecksumMismatch: a has the SHA-256 cd")),
        Health.DEGRADED,
        "ChecksumMismatch",
    ),
    "HandlerMissing": (
        Nodes(node=failed("attempt 1: HandlerMissing: no handler 'spin'")), Health.DEGRADED, "HandlerMissing",
    ),
    "node not ready": (Nodes(node=node(ready=False)), Health.DEGRADED, "NodeNotReady"),
    "InstallerRefused": (
        Nodes(
            shims=(shim(condition("Degraded", "True", REJECTED)),),
            events=(event("uid-n1", REJECTED, f"{NO_POD} n1-job is created: {QUOTA}"),),
        ),
        Health.DEGRADED,
        REJECTED,
    ),
    "InstallerJobRefused": (
        Nodes(
            shims=(shim(condition("Degraded", "True", "InstallerJobRefused")),),
            events=(event("uid-n1", "InstallerJobRefused", QUOTA),),
        ),
        Health.DEGRADED,
        "InstallerJobRefused",
    ),
    "HandlerConflict": (
        Nodes(shims=(shim(), shim(name="aaa", runtimeClass={"name": "aaa", "handler": "spin"}))),
        Health.DEGRADED,
        "HandlerConflict",
    ),
    "paused": (Nodes(shims=(shim(paused=True),)), Health.SUSPENDED, "Paused"),
    "NothingToInstall": (
        Nodes(node=node(**{names.ANNOTATION_OPT_IN: "true"}), shims=()), Health.DEGRADED, "NothingToInstall",
    ),
    "another operator was deleted": (
        Nodes(events=(event("uid-n1", "OtherControllerActive", "kwasm-operator manages the same objects"),)),
        Health.PROGRESSING,
        "Waiting",
    ),
    "a Shim was added": (
        Nodes(
            node=node(**{names.ANNOTATION_OPT_IN: "true"}),
            events=(event("uid-n1", "NothingToInstall", "no Shim is labelled"),),
        ),
        Health.PROGRESSING,
        "Waiting",
    ),
    "not opted in": (Nodes(shims=()), Health.NOT_OPTED_IN, "NotOptedIn"),
    "ready": (Nodes(node=updated()), Health.HEALTHY, "Ready"),
}  # fmt: skip

SHIMS: dict[str, tuple[Nodes, Health, str]] = {
    "every node has it": (Nodes(node=updated(), shims=(shim(*COMPLETE),)), Health.HEALTHY, "AllNodesReady"),
    "no node requires it": (
        Nodes(
            shims=(
                shim(
                    condition("Available", "False", "NoNodes"),
                    condition("Progressing", "False", "Updated"),
                    nodes=0,
                    nodeSelector={"no": "node"},
                ),
            )
        ),
        Health.HEALTHY,
        "NoNodes",
    ),
    "HandlerConflict": (
        Nodes(
            shims=(
                shim(condition("Degraded", "True", "HandlerConflict")),
                shim(name="aaa", runtimeClass={"name": "aaa", "handler": "spin"}),
            )
        ),
        Health.DEGRADED,
        "HandlerConflict",
    ),
    "complete, and its RuntimeClass is rejected": (
        Nodes(node=updated(), shims=(shim(*COMPLETE, condition("Degraded", "True", "RuntimeClassRefused")),)),
        Health.DEGRADED,
        "RuntimeClassRefused",
    ),
    "complete, and another controller is active": (
        Nodes(
            node=updated(),
            shims=(shim(*COMPLETE, condition("OtherControllerActive", "True", "KWasmOperatorRuns")),),
        ),
        Health.DEGRADED,
        "KWasmOperatorRuns",
    ),
    "MassDeletion": (
        Nodes(node=updated(), shims=(shim(condition("Degraded", "True", "MassDeletion")),)),
        Health.DEGRADED,
        "MassDeletion",
    ),
    "ErrImagePull": (
        Nodes(jobs=(job(),), pods=(pod("ErrImagePull"),), ledger=SLOT), Health.DEGRADED, "ErrImagePull",
    ),
    "halted": (
        Nodes(
            node=failed("attempt 1: HandlerMissing: x"),
            shims=(
                shim(condition("Progressing", "False", "RolloutHalted"), condition("Degraded", "True", "NodesFailing")),
            ),
            ledger=Ledger({}, ("spin",)),
        ),
        Health.DEGRADED,
        "RolloutHalted",
    ),
    "paused": (
        Nodes(shims=(shim(condition("Progressing", "False", "Paused"), paused=True),)),
        Health.SUSPENDED,
        "Paused",
    ),
    "paused, and a node fails": (
        Nodes(
            node=failed("attempt 1: HandlerMissing: x"),
            shims=(
                shim(
                    condition("Progressing", "False", "Paused"),
                    condition("Degraded", "True", "NodesFailing"),
                    paused=True,
                ),
            ),
        ),
        Health.SUSPENDED,
        "Paused",
    ),
    "in progress": (Nodes(), Health.PROGRESSING, "Updating"),
}  # fmt: skip

SHOWN: dict[State, set[Health]] = {
    State.READY: {Health.HEALTHY, Health.SUSPENDED},
    State.RECONCILING: {Health.PROGRESSING, Health.DEGRADED, Health.MISSING},
    State.STALLED: {Health.DEGRADED},
    State.SUSPENDED: {Health.SUSPENDED},
    State.UNKNOWN: {Health.UNKNOWN},
}
"""Healths that agree with what Ready, Reconciling and Stalled are written from. An undeployed Application is ready."""


def of_lattice(**parts: dict[str, Any]) -> dict[str, Any]:
    composer = Composer()
    for part, objects_ in parts.items():
        for key, view in objects_.items():
            composer.take(part, key, view)
    for name in PARTS:
        composer.report(PartStatus(name, synced=True, lacking={}))
    return dict(composer.flush())


def group(*conditions: Manifest, **status: Any) -> Manifest:
    """Return a host group with these conditions; the others are those of a new one whose hosts report."""
    found = filled(objects.group(pods=("hosts-1",)))
    return found | {"status": found["status"] | {"conditions": one_each(*NEW, *conditions)} | status}


NEW = (
    condition("Available", "True", "HostsReady"),
    condition("Progressing", "False", "Updated"),
    condition("Degraded", "False", "Healthy"),
    condition("HostsReporting", "True", "AllReporting"),
)

READY = condition("Available", "True", "HostsReady")

NOT_CONNECTED = condition("HostsReporting", "Unknown", "LatticeNotConnected")

UNREACHABLE = condition("HostsReporting", "Unknown", "LatticeUnreachable", "refused the user")

NO_WADM = condition("ApplicationsKnown", "Unknown", "WadmUnavailable")

GROUPS: dict[str, tuple[Manifest, Health, str]] = {
    "healthy": (group(READY), Health.HEALTHY, "HostsReady"),
    "Secret missing": (
        group(condition("Degraded", "True", "SecretMissing", "Secret team/x is missing: create it")),
        Health.DEGRADED,
        "SecretMissing",
    ),
    "LatticeUnreachable": (group(READY, UNREACHABLE), Health.UNKNOWN, "LatticeUnreachable"),
    "its lattice is not connected yet": (group(READY, NOT_CONNECTED), Health.UNKNOWN, "LatticeNotConnected"),
    "it starts, and its lattice is not connected yet": (
        group(
            condition("Available", "False", "HostsNotReady"),
            condition("Progressing", "True", "Starting"),
            NOT_CONNECTED,
        ),
        Health.PROGRESSING,
        "Starting",
    ),
    "HeartbeatMissing": (
        group(READY, condition("HostsReporting", "False", "HeartbeatMissing")), Health.DEGRADED, "HeartbeatMissing",
    ),
    "WaitingForHosts": (
        group(READY, condition("HostsReporting", "Unknown", "WaitingForHosts")), Health.PROGRESSING, "WaitingForHosts",
    ),
    "WadmUnavailable": (group(READY, NO_WADM), Health.HEALTHY, "HostsReady"),
    "OtherControllerActive": (
        group(condition("OtherControllerActive", "True", "WasmCloudOperatorRuns")),
        Health.DEGRADED,
        "WasmCloudOperatorRuns",
    ),
    "ImagePullBackOff": (group(condition("Degraded", "True", "ImagePullBackOff")), Health.DEGRADED, "ImagePullBackOff"),
    "MassDeletion": (
        group(READY, condition("Degraded", "True", "MassDeletion")), Health.DEGRADED, "MassDeletion",
    ),
    "a rollout while all hosts are ready": (
        group(READY, condition("Progressing", "True", "Updating")), Health.PROGRESSING, "Updating",
    ),
    "no pods yet": (group(condition("Available", "False", "NotCreated")), Health.MISSING, "NotCreated"),
}  # fmt: skip


def app(phase: str = "Deployed", *conditions: Manifest) -> Manifest:
    found = filled(objects.application(phase=phase))
    return found | {"status": found["status"] | ({"conditions": [*conditions]} if conditions else {})}


def apart(found: Manifest) -> Manifest:
    """Return an Application without a lattice."""
    return found | {"status": {key: value for key, value in found["status"].items() if key != "lattice"}}


def another_lattice(name: str) -> Manifest:
    """Return a host group of a lattice."""
    found = objects.group(f"hosts-of-{name}")
    return found | {"spec": found["spec"] | {"lattice": name}}


APPLICATIONS: dict[str, tuple[Manifest, list[Manifest], Health, str]] = {
    "deployed": (app(), [group(READY)], Health.HEALTHY, "Deployed"),
    "undeployed": (app("Undeployed"), [group(READY)], Health.SUSPENDED, "Undeployed"),
    "unhealthy": (app("Unhealthy"), [group(READY)], Health.DEGRADED, "Unhealthy"),
    "WadmUnavailable": (
        app("Deployed", condition("Synced", "Unknown", "WadmUnavailable")),
        [group(READY)],
        Health.UNKNOWN,
        "WadmUnavailable",
    ),
    "no host group of the lattice": (app("Waiting"), [], Health.DEGRADED, "HostGroupMissing"),
    "no lattice of several": (
        apart(app("Waiting")), [group(READY), filled(another_lattice("other"))], Health.DEGRADED, "NoLattice",
    ),
    "its lattice is unreachable": (app(), [group(READY, UNREACHABLE)], Health.UNKNOWN, "LatticeUnreachable"),
    "MassDeletion": (
        app("Deployed", condition("Synced", "False", "MassDeletion")), [group(READY)], Health.DEGRADED, "MassDeletion",
    ),
}  # fmt: skip


def written_app(phase: str = "deployed", *, waits: AppReason | None = None) -> Manifest:
    """Return the status that application_manager writes for an Application that is equal on both sides."""
    view = view_application(stored())
    base = Base(view.object.digest, "v1", deployed=True, newest="v1", serial=1, bucket="b")
    view = replace(view, object=replace(view.object, base=base))
    unavailable = waits is AppReason.WADM_UNAVAILABLE
    wadm = Absence.UNAVAILABLE if unavailable else Model((("v1", view.object.digest),), "v1", "b")
    report = None if unavailable else Status(phase, "", ())
    deployed = "" if phase == "undeployed" else "v1"
    model = StoredModel("web", (("v1", StoredManifest.of({})),), deployed, 9)
    decision = Decision(waits=Announcement(waits, "so it is")) if waits else Decision()
    snapshot = Snapshot(view.object, wadm, now=1_793_491_200.0)
    return app_status_of(seen_of(view, snapshot, decision=decision, model=model, wadm_status=report))


WRITTEN_APPLICATIONS: dict[str, Manifest] = {
    "deployed": written_app(),
    "undeployed": written_app("undeployed"),
    "unhealthy": written_app("unhealthy"),
    "WadmUnavailable": written_app(waits=AppReason.WADM_UNAVAILABLE),
    "no host group of the lattice": written_app(waits=AppReason.NO_LATTICE),
    "no lattice of several": written_app(waits=AppReason.NO_LATTICE),
    "its lattice is unreachable": written_app(waits=AppReason.WADM_UNAVAILABLE),
    "MassDeletion": written_app(waits=AppReason.MASS_DELETION),
}
"""The status of each situation of ``APPLICATIONS``, as application_manager writes it."""

FAULT = {"kind": "Trapped", "message": "unreachable", "time": "2026-01-01T00:00:00Z"}


def controller(state: str, *conditions: Manifest, **status: Any) -> Manifest:
    found = filled(objects.controller())
    return found | {"status": {"state": state, "observedGeneration": 1, "conditions": [*conditions], **status}}


CONTROLLERS: dict[str, tuple[Manifest, Health, str]] = {
    "suspended to disk": (controller("Suspended", condition("Ready", "True", "Running")), Health.HEALTHY, "Running"),
    "calls for some objects fail": (
        controller("Suspended", condition("Ready", "True", "Running"), lastFault=FAULT, failing=1),
        Health.HEALTHY,
        "Running",
    ),
    "Trapped": (
        controller("Failed", condition("Ready", "False", "Trapped"), lastFault=FAULT, failing=1),
        Health.DEGRADED,
        "Trapped",
    ),
    "paused": (controller("Paused", condition("Ready", "False", "Paused")), Health.SUSPENDED, "Paused"),
    "never reconciled": (controller(""), Health.UNKNOWN, "NotEvaluated"),
}  # fmt: skip

MODULE = KnownModule(sha256="ab", abi=1, bytes=1)

BROKEN = Fault("Trapped", "unreachable", "2026-01-01T00:00:00Z")

SEEN: dict[str, tuple[SeenController, Health]] = {
    "it runs": (SeenController(1, "Suspended", ready=True, module=MODULE), Health.HEALTHY),
    "calls for some objects fail": (
        SeenController(1, "Suspended", ready=True, module=MODULE, failing=2, fault=BROKEN), Health.HEALTHY,
    ),
    "it traps": (
        SeenController(
            1, "Failed", ready=False, module=MODULE, failing=1, fault=BROKEN, stopped=Trouble("Trapped", "unreachable")
        ),
        Health.DEGRADED,
    ),
    "its watches are not permitted": (
        SeenController(1, "Loaded", ready=True, module=MODULE, not_watched=Trouble("WatchNotGranted", "no")),
        Health.DEGRADED,
    ),
    "its module is invalid": (
        SeenController(1, "Failed", ready=False, refused=Trouble("InvalidModule", "no")), Health.DEGRADED,
    ),
    "its module is fetched": (SeenController(1, "Pending", ready=False, fetching=True), Health.PROGRESSING),
    "it is prepared": (SeenController(1, "Pending", ready=False), Health.PROGRESSING),
    "paused": (SeenController(1, "Paused", ready=False, module=MODULE, paused=True), Health.SUSPENDED),
}  # fmt: skip


def grant(*, spec: Any = None, groups: frozenset[tuple[str, str]] = HAVE, **accounts: Any) -> GrantSnapshot:
    """Return a SecretGrant with the status that secrets_backend writes, and what a user sees beside it."""
    valid = {"from": [{"namespace": "team", "lattice": "prod"}], "secrets": ["*"], "serviceAccounts": ["web"]}
    found = filled({"metadata": {"name": "g", "namespace": "vault", "generation": 1}, "spec": spec or valid})
    written = [Access("ServiceAccount vault/web", accounts.get("trouble"))]
    status = grant_status_of(view_grant(found), groups, written, {}, (1, "2026-01-01T00:00:00Z"))
    seen = [
        filled({"metadata": {"name": "hosts", "namespace": namespace}, "spec": {"lattice": lattice}})
        for namespace, lattice in groups
    ]
    account = Account("web", accounts.get("there", True), accounts.get("may_be", True))
    return GrantSnapshot(found | {"status": status}, seen, [account])


GRANTS: dict[str, tuple[GrantSnapshot, Health, str]] = {
    "it has an effect": (grant(), Health.HEALTHY, "AccountsUsable"),
    "its spec is invalid": (grant(spec={"from": 1}), Health.DEGRADED, "InvalidSpec"),
    "no host group": (grant(groups=frozenset()), Health.DEGRADED, "HostGroupMissing"),
    "a host group of another lattice": (
        grant(groups=frozenset({("team", "other")})), Health.DEGRADED, "HostGroupMissing",
    ),
    "its ServiceAccount is missing": (
        grant(there=False, trouble=GrantReason.NO_ACCOUNT), Health.DEGRADED, "ServiceAccountMissing",
    ),
    "its ServiceAccount cannot be impersonated": (
        grant(may_be=False, trouble=GrantReason.NOT_PERMITTED), Health.DEGRADED, "ImpersonationNotPermitted",
    ),
    "the setting does not list its user": (
        grant(trouble=GrantReason.NOT_ALLOWED), Health.DEGRADED, "UserNotAllowed",
    ),
    "its ServiceAccount cannot be checked": (
        grant(trouble=GrantReason.NOT_CHECKED), Health.UNKNOWN, "AccessNotChecked",
    ),
}  # fmt: skip
