"""No condition of any kind has a message of more than 200 characters; each names its cause, and its resolution."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from application_manager.domain.actions import Announcement, DeleteModel, DeleteObject, Reason, Refused
from application_manager.domain.conditions import status_of as application_status_of
from application_manager.domain.decide import paused as application_paused
from application_manager.domain.decide import refused_by_kubernetes
from application_manager.domain.snapshot import Snapshot as ApplicationSnapshot
from application_manager.domain.views import view_application
from application_manager.freshness import Verdict, with_condition
from controller_host.permissions import impersonation_message
from controller_host.report.status import Seen as SeenController
from controller_host.report.status import status_of as controller_status_of
from controller_host.scheduler.hosted import Trouble
from host_manager.domain.group import LATEST, Inputs
from host_manager.domain.inputs import Problem
from host_manager.domain.pods import PodView
from host_manager.domain.pods import Trouble as PodTrouble
from host_manager.domain.snapshot import Head
from host_manager.domain.snapshot import Snapshot as GroupSnapshot
from host_manager.domain.status import StatusInputs
from host_manager.domain.status import make_status as group_status_of
from provisioner.domain.actions import ReportRefusal
from provisioner.domain.actions import Snapshot as NodeSnapshot
from provisioner.domain.canary import Canary, CanaryPod, trial_of
from provisioner.domain.refused import pod_refused
from provisioner.domain.shim_nodes import Member, Tally
from provisioner.domain.shim_snapshot import Snapshot as ShimSnapshot
from provisioner.domain.shim_status import status_of as shim_status_of
from provisioner.refusals import PodRefusals
from secrets_backend.domain.decide import view_grant
from secrets_backend.domain.grant_status import Access
from secrets_backend.domain.grant_status import Reason as GrantReason
from secrets_backend.domain.grant_status import status_of as grant_status_of
from support.lattices.host_groups import desired
from support.suite.naming import lacking
from support.wadm.application_objects import seen_of, stored
from trellis import names
from trellis.crds.conditions import MESSAGE_MAX
from trellis.crds.kinds import BY_DIRECTORY
from trellis.kube.errors import Call, Forbidden, KubeError
from trellis.kube.refusals import cause_of
from trellis.lattice.domain.replies import Refusal
from trellis.provisioning.other_controllers import Controller, Peer
from trellis.provisioning.reasons import APPLY_AGAIN
from trellis.provisioning.shim_status import Status, make_status
from trellis.provisioning.shims import Refusal as ShimRefusal
from trellis.provisioning.views import KWASM, JobView, NodeView, Target
from trellis_dev.testing.builders import DIGEST, a_job, a_node, a_shim

NOW = "2026-01-01T00:00:00Z"
SOURCES = Path(__file__).parents[2]
Conditions = Iterable[dict[str, Any]]


def shim(**changes: Any) -> Conditions:
    node = a_node()
    nodes = Tally([Member(node, changes.pop("refusal", ShimRefusal.INVALID), None, changes.pop("rival", ""))]).nodes()
    snapshot = ShimSnapshot(
        shim=a_shim(),
        status=Status(),
        runtime_class=None,
        nodes=nodes,
        holders=(),
        in_progress=(),
        failing=(),
        halted=False,
        patience_over=False,
        now=NOW,
    )
    found: Conditions = make_status(shim_status_of(replace(snapshot, **changes)))["conditions"]
    return found


def group(**changes: Any) -> Conditions:
    head = Head("g", "group", "uid-1", "7", generation=1, finalizers=(names.FINALIZER_HOSTS,))
    snapshot = GroupSnapshot(head, desired(LATEST).group, Inputs(), (), {}, (), {}, NOW)
    found: Conditions = group_status_of(replace(snapshot, **changes), StatusInputs(None))["conditions"]
    return found


def application(text: str) -> Conditions:
    view = view_application(stored())
    refused = Refused(view.object.digest, undeploy=False, refusal=Refusal.REJECTED, message=text)
    snapshot = ApplicationSnapshot(view.object, None, now=1.0)
    seen = seen_of(replace(view, ignored=(text,)), snapshot, refused=refused, model=None, wadm_status=None)
    found: Conditions = application_status_of(seen)["conditions"]
    return found


def grant(text: str) -> Conditions:
    spec = {"from": [{"namespace": "shop"}], "serviceAccounts": ["reader"]}
    manifest = {"metadata": {"namespace": "vault", "name": "g", "uid": "u"}, "spec": spec}
    access = Access("ServiceAccount vault/reader", GrantReason.NOT_PERMITTED, text)
    found: Conditions = grant_status_of(view_grant(manifest), frozenset({("shop", "a")}), [access], {}, (1, NOW))[
        "conditions"
    ]
    return found


def controller(text: str) -> Conditions:
    seen = SeenController(1, "Failed", ready=False, refused=Trouble("Refused", text), not_watched=Trouble("No", text))
    found: Conditions = controller_status_of(seen, {}, NOW)["conditions"]
    return found


KINDS: dict[str, list[Callable[[str], Conditions]]] = {
    "Shim": [
        lambda text: shim(class_refused=text),
        lambda text: shim(failing=((a_node(), text),)),
        lambda text: shim(in_use=((a_node(), text),)),
    ],
    "WasmCloudHostConfig": [
        lambda text: group(problems=(Problem("InvalidSpec", text),)),
        lambda text: group(lattice_reason=text),
        lambda text: with_condition([], Verdict("Unknown", "WadmUnavailable", text), NOW, 1) or (),
    ],
    "Application": [application],
    "SecretGrant": [grant],
    "WasmController": [controller],
}
TEXTS = st.lists(st.text("ab`:é ", min_size=1, max_size=300), max_size=12).map(" ".join)


def test_every_kind_with_conditions_is_checked() -> None:
    assert {*KINDS} == {kind.model.__name__ for kinds in BY_DIRECTORY.values() for kind in kinds}


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_no_message_is_longer_than_the_limit(kind: str, text: str) -> None:
    for make in KINDS[kind]:
        found = [*make(text)]
        assert found
        assert max(len(item["message"]) for item in found) <= MESSAGE_MAX, found


def test_all_conditions_are_made_by_the_function_with_the_limit() -> None:
    """``shim_status.make_status`` writes what ``provisioner.domain.shim_status`` has limited."""
    places = set()
    for path in [*SOURCES.glob("services/**/*.py"), *SOURCES.glob("shared/**/*.py")]:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
        if any(isinstance(key, ast.Constant) and key.value == "lastTransitionTime" for key in keys):
            places.add(path.relative_to(SOURCES).as_posix())
    assert places == {"shared/trellis/crds/conditions.py", "shared/trellis/provisioning/shim_status.py"}


def degraded(conditions: Conditions) -> str:
    return next(str(item["message"]) for item in conditions if item["type"] in {"Degraded", "OtherControllerActive"})


def refused(reason: ShimRefusal) -> str:
    return degraded(shim(refusal=reason, rival="spin-v2-of-another-team"))


def paused(action: DeleteModel | DeleteObject) -> str:
    waits = application_paused(action).waits
    assert waits is not None
    return waits.message


def beside(peer: Peer) -> str:
    return degraded(group(other=Controller(peer, peer.value, peer.value, "u")))


NAMES = tuple(f"ip-10-0-12-{n}.eu-central-1.compute.internal" for n in range(25))
MANY = tuple(a_node(name) for name in NAMES)
OF_APPLICATION = "trellis circuit-breaker close application-manager"
RESOLUTIONS = {
    "mass deletion of nodes": (
        degraded(shim(paused_nodes=MANY)), ("trellis circuit-breaker close node-watcher", names.FINALIZER),
    ),
    "mass deletion of hosts": (
        degraded(group(deletion_paused=True)),
        ("trellis circuit-breaker close host-manager", "--cascade=orphan", names.FINALIZER_HOSTS),
    ),
    "mass deletion in Kubernetes": (
        paused(DeleteModel(Announcement(Reason.DELETED, "its object was deleted in Kubernetes"))),
        (OF_APPLICATION, names.FINALIZER_APPLICATIONS),
    ),
    "mass deletion in wadm": (
        paused(DeleteObject(Announcement(Reason.DELETED_IN_WADM, "it was deleted in wadm"))), (OF_APPLICATION,),
    ),
    "two Shims of one handler": (refused(ShimRefusal.HANDLER_CONFLICT), ("spin-v2-of-another-team", "handler")),
    "a missing checksum": (refused(ShimRefusal.CHECKSUM_MISSING), ("sha256", "TRELLIS_REQUIRE_CHECKSUM=false")),
    "a missing signature": (refused(ShimRefusal.UNSIGNED), ("TRELLIS_SHIM_KEYS", "cosign sign-blob")),
    **{
        f"the operator {peer.value}": (beside(peer), (peer.value, f"trellis migrate {word} --take-over"))
        for peer, word in (
            (Peer.KWASM, "kwasm"), (Peer.RCM, "rcm"), (Peer.WASMCLOUD_OPERATOR, "wasmcloud-operator"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", RESOLUTIONS)
def test_the_resolution_is_part_of_the_message(case: str) -> None:
    message, named = RESOLUTIONS[case]
    assert lacking(message, *named) == []
    assert len(message) <= MESSAGE_MAX


USER = 'User "system:serviceaccount:trellis-system:trellis-provisioner" cannot'
POLICY = (
    "deployments.apps \"group\" is forbidden: ValidatingAdmissionPolicy 'require-labels.security.example.com' with "
    "binding 'require-labels-in-production.security.example.com' denied request: the label team is missing"
)
WEBHOOK = 'admission webhook "labels.example.com" denied the request: the label team is missing'
RESOURCES = "limits.cpu=100m,limits.memory=128Mi,requests.cpu=10m,requests.memory=32Mi"
QUOTA = (
    f'pods "trellis-install-{NAMES[0]}-7f2c1d" is forbidden: exceeded quota: compute-resources, '
    f"requested: {RESOURCES}, used: {RESOURCES}, limited: {RESOURCES}"
)
INSTALLERS = "trellis-installers"
JOBS = f'jobs.batch is forbidden: {USER} create resource "jobs" in API group "batch" in the namespace "{INSTALLERS}"'
RIGHTS = (
    'roles.rbac.authorization.k8s.io "group" is forbidden: user "system:serviceaccount:trellis-system:host-manager" '
    '(groups=["system:serviceaccounts" "system:serviceaccounts:trellis-system" "system:authenticated"]) is attempting '
    'to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["services"], Verbs:["get"]}'
)
IMAGE = "registry.example.com/platform/wasmcloud:1.4.0"
PULL = (
    f'Back-off pulling image "{IMAGE}": ErrImagePull: rpc error: code = Unknown desc = failed to pull and unpack image '
    f'"{IMAGE}": failed to resolve reference "{IMAGE}": unexpected status from HEAD request: 401 Unauthorized'
)
LOG_LINE = "failed to connect to NATS: authorization violation"
CANARY_LINE = "cp: cannot create /mnt/node-root/opt/kwasm: Read-only file system"
LONG_LINE = (
    "exit code 1 (Error): Error: failed to run main module `/canary.wasm`: unknown import: "
    "`wasi:http/types@0.2.0::[method]fields.get` has not been defined"
)
TRIED = a_job(MANY[0], name=f"{NAMES[0]}-2c6fa307f7-provision-kwasm")


def canary_pod(shim: str, trouble: str) -> CanaryPod:
    name, uid = f"{NAMES[0]}-2c6fa307f7-canary", TRIED.uid
    return CanaryPod(INSTALLERS, name, "uid", "1", job_uid=uid, shim=shim, phase="Failed", trouble=trouble)


def canaries(nodes: int, **trouble: str) -> str:
    """Return the message of a Shim whose canaries fail on nodes; ``trouble``: by Shim."""
    tried = tuple(Canary(shim, "uid", shim, "image") for shim in trouble)
    pods = (canary_pod(shim, text) for shim, text in trouble.items())
    failure = trial_of(TRIED, tried, pods, overdue=False).message
    text = f"attempt 1: CanaryFailed: {failure}; the node was rolled back"
    return degraded(shim(failing=tuple((node, text) for node in MANY[:nodes])))


ROLES = "-n a-namespace-with-a-long-name -a an-account-with-a-long-name"
ACCOUNT = "system:serviceaccount:a-namespace-with-a-long-name:an-account-with-a-long-name"


def failed_write(message: str) -> KubeError:
    return Forbidden(
        Call("POST", "Deployment", "deployments", "team", "group"), status=403, reason="F", message=message
    )


def on_nodes(message: str) -> str:
    """Return the message of a Shim whose Jobs are refused on all nodes."""
    return degraded(shim(refused=tuple((node, "JobRefused", message) for node in MANY)))


def without_pod(node: NodeView, job: JobView, event: str = "") -> str:
    """Return the message of a Shim whose Job gets no pod: it is suspended, or the API server reports ``event``."""
    refusals = PodRefusals()
    refusals.take_job(None, job)
    target, refusal = Target(((KWASM, DIGEST),)), event or refusals.reason_of(job.uid)
    known = NodeSnapshot(node.name, node, (job,), None, target, frozenset(), None, 60, 20, 1020, pod_refused=refusal)
    reports = [action for action in pod_refused(known, node, job) if isinstance(action, ReportRefusal)]
    return degraded(shim(refused=tuple((node, report.reason.value, report.message) for report in reports)))


def workload(message: str) -> str:
    """Return the message of a host group whose pods are refused."""
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    made = {"kind": "Deployment", "metadata": {"name": "group"}, "spec": {}, "status": {"conditions": [failure]}}
    return degraded(group(children={("Deployment", "group"): made}))


def refused_write(message: str) -> str:
    return degraded(group(problems=(Problem("WriteRefused", cause_of(failed_write(message))),)))


def host_pod(message: str, log_line: str = "") -> str:
    trouble = PodTrouble("ImagePullBackOff", message, "wasmcloud-host")
    pod = PodView("team", "group-6d4cf56db6-abcde", "u", "1", "group", ready=False, trouble=trouble)
    return degraded(group(pods=(pod,), last_log_line=log_line))


def synced(message: str) -> str:
    decision = refused_by_kubernetes(cause_of(failed_write(message)))
    view = view_application(stored())
    seen = seen_of(view, ApplicationSnapshot(view.object, None, now=1.0), model=None, wadm_status=None)
    found = application_status_of(replace(seen, decision=decision))["conditions"]
    return next(str(item["message"]) for item in found if item["type"] == "Synced")


def accepted(message: str) -> str:
    found = {item["type"]: str(item["message"]) for item in controller(message)}
    assert found["Accepted"] == found["WatchesGranted"]
    return found["Accepted"]


def usable(remedy: str) -> str:
    return next(str(item["message"]) for item in grant(remedy) if item["type"] == "AccountsUsable")


CAUSES = {
    "a quota of Jobs": (
        on_nodes(f"its installer Job is rejected: {QUOTA}"), ("exceeded quota: compute-resources", NAMES[-1]),
    ),
    "a permission of Jobs": (
        on_nodes(f"its installer Job is rejected: {JOBS}; {APPLY_AGAIN}"),
        ('cannot create resource "jobs"', APPLY_AGAIN, "25 nodes"),
    ),
    "a suspended Job": (
        without_pod(MANY[0], replace(TRIED, suspended=True)), ("suspended", "spec.suspend", f"namespace {INSTALLERS}"),
    ),
    "a webhook of pods": (
        without_pod(MANY[0], TRIED, WEBHOOK), ("the label team is missing", "labels.example.com", NAMES[0]),
    ),
    "a policy of Jobs": (on_nodes(POLICY), ("the label team is missing", "require-labels.security.example.com")),
    "a quota of hosts": (workload(QUOTA), ("exceeded quota: compute-resources",)),
    "a policy of Deployments": (
        refused_write(POLICY), ("the label team is missing", "require-labels.security.example.com", "Deployment"),
    ),
    "a permission to grant": (refused_write(RIGHTS), ("services", "grant RBAC permissions")),
    "an image that cannot be pulled": (
        host_pod(PULL), ("ErrImagePull", "wasmcloud:1.4.0", "group-6d4cf56db6-abcde"),
    ),
    "a host that ends": (host_pod("back-off 5m0s restarting", LOG_LINE), ("back-off", LOG_LINE)),
    "a policy of Applications": (synced(POLICY), ("the label team is missing", "require-labels.security.example.com")),
    "a refused RuntimeClass": (
        degraded(shim(class_refused=str(failed_write(POLICY)))), ("the label team is missing", "RuntimeClass"),
    ),
    "a refused ledger": (
        degraded(shim(ledger_refused=f'configmaps "x" is forbidden: {USER} get resource "configmaps" in API group ""')),
        ('get resource "configmaps"', "ledger"),
    ),
    "a canary": (
        canaries(1, spin=f"exit code 3 (Error): {CANARY_LINE}"), ("CanaryFailed", CANARY_LINE, NAMES[0]),
    ),
    "a canary on many nodes": (
        canaries(25, spin=f"exit code 3 (Error): {CANARY_LINE}"), ("CanaryFailed", CANARY_LINE, NAMES[0], "24"),
    ),
    "a canary with a long last line": (canaries(1, spin=LONG_LINE), ("CanaryFailed", LONG_LINE)),
    "a canary with a long last line on many nodes": (canaries(25, spin=LONG_LINE), ("CanaryFailed", LONG_LINE, "25")),
    "one of several canaries": (
        canaries(25, lunatic=f"exit code 1 (Error): {'a ' * 80}", spin=LONG_LINE), ("CanaryFailed", LONG_LINE),
    ),
    "pods that use the shim": (
        degraded(shim(in_use=((MANY[0], "spin cannot be removed: pods shop/web still run with it; delete them"),))),
        ("shop/web", NAMES[0]),
    ),
    "impersonation": (
        accepted(impersonation_message(failed_write(f'{USER} impersonate resource "users" in API group ""'), ACCOUNT)),
        ("impersonate", f"`trellis controllers roles {ROLES} | kubectl apply -f -`"),
    ),
    "impersonation for a grant": (
        usable(f"`trellis secrets roles {ROLES} | kubectl apply -f -`"),
        ("impersonate", f"`trellis secrets roles {ROLES} | kubectl apply -f -`"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_the_cause_is_part_of_the_message(case: str) -> None:
    message, named = CAUSES[case]
    assert lacking(message, *named) == []
    assert len(message) <= MESSAGE_MAX
