"""Causes for which a node cannot run Wasm, and for which a Shim is not on all its nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis import names
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.reasons import APPLY_AGAIN, NO_POD, Reason
from trellis.provisioning.shim_status import Reason as ShimReason
from trellis.provisioning.shims import view_shim, wanted_shim_for
from trellis.provisioning.views import OptIn, Target, encode_digests
from trellis.read_model.explain.job import pending_causes, unlabelled_by_node
from trellis.read_model.explain.node import NodeSnapshot, explain_node
from trellis.read_model.explain.page import Leader, Line, Rank
from trellis.read_model.explain.shim import ShimSnapshot, explain_shim, stopped_shims
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.read_model.tables.nodes import NodeState, row_of

Manifest = dict[str, Any]

SYSTEM = "trellis-installers"
SHIM: Manifest = {
    "metadata": {"name": "spin", "uid": "uid-spin", "resourceVersion": "1", "generation": 1},
    "spec": {
        "nodeSelector": {"wasm": "yes"},
        "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32}},
        "runtimeClass": {"name": "spin", "handler": "spin"},
        "rolloutStrategy": {"type": "rolling"},
    },
    "status": {"nodes": 1, "nodesReady": 0, "nodesUpdated": 0, "observedGeneration": 1, "conditions": []},
}
VIEW = view_shim(SHIM)
WANTED_SHIM = wanted_shim_for(VIEW, "amd64", require_checksum=True)
DIGEST = getattr(WANTED_SHIM, "digest", "")
LEADERS = [Leader("provisioner", "pod-1", "nothing is begun"), Leader("node-watcher", "pod-2", "no label")]


def node(*, ready: bool = True, **annotations: str) -> Manifest:
    marks = {name: value for name, value in annotations.items() if value}
    condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "KubeletReady", "message": "ok"}
    if not ready:
        condition |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    return {
        "metadata": {
            "name": "n",
            "uid": "uid-n",
            "resourceVersion": "1",
            "labels": {"wasm": "yes"},
            "annotations": marks,
        },
        "status": {
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "containerRuntimeVersion": "containerd://2",
            },
            "conditions": [condition],
            "runtimeHandlers": [{"name": "runc"}, {"name": "spin"}],
        },
    }


def marked(failure: str = "", digest: str = "", **more: str) -> dict[str, str]:
    """Return the annotations of a node on which an attempt failed, or that is verified."""
    found = {names.ANNOTATION_NODE_UID: "uid-n"} | more
    if failure:
        found |= {names.ANNOTATION_FAILURE: failure, names.ANNOTATION_FAILED_ATTEMPT: "d1/2/1000"}
    if digest:
        found |= {
            names.ANNOTATION_DIGEST: "d1",
            names.ANNOTATION_VERIFIED: "handler",
            names.ANNOTATION_SHIMS: encode_digests({"spin": digest}),
        }
    return found


def job(**status: Any) -> Manifest:
    return {
        "metadata": {
            "namespace": SYSTEM,
            "name": "n-job",
            "uid": "uid-job",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-22T07:00:00Z",
            "labels": {names.LABEL_NODE_UID: "uid-n", names.LABEL_DIGEST: "d2", names.LABEL_ATTEMPT: "1"},
            "annotations": {names.ANNOTATION_NODE: "n", names.ANNOTATION_SHIMS: f"spin={DIGEST}"},
        },
        "spec": {},
        "status": status,
    }


def pod(**status: Any) -> Manifest:
    labels = {"batch.kubernetes.io/job-name": "n-job"}
    return {"metadata": {"namespace": SYSTEM, "name": "n-pod", "uid": "uid-pod", "labels": labels}, "status": status}


def waiting(reason: str, message: str) -> Manifest:
    return pod(phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}}])


def warning(uid: str, reason: str, message: str, at: str = "2026-11-22T07:00:00Z") -> Manifest:
    about = {"uid": uid, "name": "n"}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about, "lastTimestamp": at}


WAITING = NodeSnapshot(node(), SYSTEM, shims=[VIEW], beside=Beside(LEADERS))
AT_WORK = replace(WAITING, jobs=[job()], pods=[pod(phase="Running")], ledger=Ledger({"uid-n": Entry("d2", 1, 1000)}))
WELL = replace(WAITING, node=node(**marked(digest=DIGEST)))
QUOTA = (
    'Error creating: pods "n-job-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, '
    "limited: pods=0"
)
NO_SECRET = "Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed."
SHIMS_SECRET = (
    "the pull secret 'x' is not there: create it in the namespace of the installer's Jobs, of type "
    "kubernetes.io/dockerconfigjson"
)
MISMATCH = (
    "attempt 2: InstallerFailed: ChecksumMismatch: https://example.com/spin.tar.gz should have the SHA-256 ab "
    "and has cd"
)

POLICY = "ValidatingAdmissionPolicy 'no-labels' with binding 'no-labels' denied request: ask the infra team"
LACKS = 'nodes "n" is forbidden: User "x" cannot patch resource "nodes" in API group "" at the cluster scope'
NO_ROLE = (
    'its installer Job is not taken: jobs.batch is forbidden: User "x" cannot create resource "jobs" in API group '
    '"batch" in the namespace "y"'
)
BEFORE = "2026-11-22T06:59:59Z"
"""A second before the Job was created."""
DONE = replace(AT_WORK, jobs=[job(conditions=[{"type": "Complete", "status": "True"}])], pods=[])

CAUSES: dict[str, tuple[NodeSnapshot, str, list[str]]] = {
    "its image cannot be pulled": (
        replace(AT_WORK, pods=[waiting("ErrImagePull", "not found")]),
        "pod",
        ["ErrImagePull: not found", "trellis-installers"],
    ),
    "its image backs off": (
        replace(AT_WORK, pods=[waiting("ImagePullBackOff", "Back-off pulling image")]),
        "pod",
        ["ImagePullBackOff: Back-off pulling image"],
    ),
    "its pull secret is missing": (
        replace(
            AT_WORK,
            pods=[waiting("ErrImagePull", "unauthorized")],
            beside=Beside(
                LEADERS,
                [
                    warning("uid-pod", "Failed", "Error: ErrImagePull", "2026-11-22T07:00:01Z"),
                    warning("uid-pod", "FailedToRetrieveImagePullSecret", NO_SECRET),
                ],
            ),
        ),
        "pod",
        [
            "Secret trellis-installers/absent",
            "ErrImagePull: unauthorized",
            "kubernetes.io/dockerconfigjson",
            "TRELLIS_INSTALLER_PULL_SECRETS",
        ],
    ),
    "a Shim's pull secret is missing": (
        replace(WAITING, node=node(**marked(f"attempt 1: InstallerFailed: DownloadFailed: {SHIMS_SECRET}"))),
        "last failure",
        ["DownloadFailed", "'x'", "kubernetes.io/dockerconfigjson"],
    ),
    "what waits now comes before what failed before": (
        replace(AT_WORK, node=node(**marked(MISMATCH)), pods=[waiting("ErrImagePull", "not found")]),
        "pod",
        ["ErrImagePull: not found"],
    ),
    "a wrong checksum": (
        replace(WAITING, node=node(**marked(MISMATCH))),
        "last failure",
        ["ChecksumMismatch", "https://example.com/spin.tar.gz", "sha256"],
    ),
    "a handler that is missing": (
        replace(WAITING, node=node(**marked("attempt 1: HandlerMissing: does not list the runtime handler 'spin'"))),
        "last failure",
        ["HandlerMissing", "'spin'"],
    ),
    "a node that lists no handlers": (
        replace(WAITING, node=node(**marked("attempt 1: HandlerMissing: it lists no runtime handlers at all"))),
        "last failure",
        ["HandlerMissing", "kubelet"],
    ),
    "its kubelet is away": (
        replace(WAITING, node=node(ready=False)),
        "kubelet",
        ["NodeStatusUnknown", "linux/amd64", "containerd://2", "kubectl describe node n"],
    ),
    "a quota that refuses the pod": (
        replace(AT_WORK, pods=[], beside=Beside(LEADERS, [warning("uid-job", "FailedCreate", QUOTA)])),
        "pod",
        ["exceeded quota: small", "ResourceQuota small", "trellis-installers"],
    ),
    "a Job that is suspended": (
        replace(AT_WORK, jobs=[job() | {"spec": {"suspend": True}}], pods=[]),
        "pod",
        ["spec.suspend"],
    ),
    "a quota that refuses the Job": (
        replace(
            WAITING,
            ledger=Ledger({"uid-n": Entry("d2", 1, 1000)}),
            beside=Beside(
                LEADERS,
                [
                    warning(
                        "uid-n",
                        Reason.JOB_REFUSED,
                        'jobs.batch "j" is forbidden: exceeded quota: few, requested: jobs=1',
                    )
                ],
            ),
        ),
        "job",
        ["exceeded quota: few", "ResourceQuota few"],
    ),
    "the Role of provisioner went with the namespace": (
        replace(
            WAITING,
            ledger=Ledger({"uid-n": Entry("d2", 1, 1000)}),
            beside=Beside(LEADERS, [warning("uid-n", Reason.JOB_REFUSED, f"{NO_ROLE}; {APPLY_AGAIN}")]),
        ),
        "job",
        ['User "x"', 'resource "jobs"', 'namespace "y"', APPLY_AGAIN],
    ),
    "a sandbox that cannot be made": (
        replace(
            AT_WORK,
            pods=[pod(phase="Pending")],
            beside=Beside(LEADERS, [warning("uid-pod", "FailedCreatePodSandBox", "no runtime")]),
        ),
        "pod",
        ["trellis-installers/n-pod", "FailedCreatePodSandBox: no runtime", "kubectl describe pod"],
    ),
    "nobody leads": (
        replace(WAITING, beside=Beside([Leader("provisioner", "", "nothing is begun"), LEADERS[1]])),
        "provisioner",
        ["trellis run provisioner"],
    ),
    "halted": (
        replace(WAITING, ledger=Ledger({}, halted=("spin",))),
        "rollout",
        ["spin", "trellis explain shim/spin", "trellis rollout resume spin"],
    ),
    "a word that is neither": (
        replace(WAITING, node=node(**{names.ANNOTATION_OPT_IN: "maybe"})),
        "opted in",
        ["kwasm.sh/kwasm-node", "'maybe'", "kubectl annotate node n"],
    ),
    "nobody opted it in": (replace(WAITING, shims=[]), "opted in", ["kwasm.sh/kwasm-node", "nodeSelector", "kubectl"]),
    "another operator runs": (
        replace(
            WAITING,
            beside=Beside(LEADERS, [warning("uid-n", "OtherControllerActive", "Deployment x runs kwasm-operator")]),
        ),
        "event",
        ["OtherControllerActive: Deployment x runs kwasm-operator"],
    ),
    "a policy that refuses the labels": (
        replace(DONE, beside=Beside(LEADERS, [warning("uid-n", Reason.UPDATE_REFUSED, POLICY)])),
        "event",
        [f"NodeUpdateRefused: {POLICY}", "ValidatingAdmissionPolicy no-labels"],
    ),
    "a permission that is missing": (
        replace(DONE, beside=Beside(LEADERS, [warning("uid-n", Reason.UPDATE_REFUSED, LACKS)])),
        "event",
        [f"NodeUpdateRefused: {LACKS}", "patch nodes"],
    ),
    "a refusal of a former Job": (
        replace(DONE, beside=Beside(LEADERS, [warning("uid-n", Reason.UPDATE_REFUSED, POLICY, BEFORE)])),
        "shim",
        ["spin"],
    ),
    "a quota, after a refusal of a former Job": (
        replace(
            AT_WORK,
            pods=[],
            beside=Beside(
                LEADERS,
                [
                    warning("uid-job", "FailedCreate", QUOTA),
                    warning("uid-n", Reason.UPDATE_REFUSED, POLICY, BEFORE),
                ],
            ),
        ),
        "pod",
        ["exceeded quota: small"],
    ),
    "nothing is wrong yet": (AT_WORK, "shim", ["spin"]),
}


@pytest.mark.parametrize(("world", "about", "named"), CAUSES.values(), ids=CAUSES)
def test_the_first_line_names_the_cause_and_what_to_do(world: NodeSnapshot, about: str, named: list[str]) -> None:
    page = explain_node(world)
    assert page.cause is not None
    assert (page.subject, page.cause.about) == ("node n", about)
    assert lacking(page.headline, *named) == []
    document = page.document()
    assert document["ok"] is False
    assert document["cause"] == page.cause.text


def test_a_refused_update_applies_to_its_job_for_any_time() -> None:
    later = warning("uid-n", Reason.UPDATE_REFUSED, POLICY, "2026-11-22T08:00:00Z")
    for uid, shown in (("uid-job", True), ("uid-former", False)):
        event = later | {"related": {"kind": "Job", "uid": uid}}
        document = explain_node(replace(DONE, beside=Beside(LEADERS, [event]))).document()
        assert ("NodeUpdateRefused" in str(document["cause"])) is shown
        assert bool(unlabelled_by_node([event], DONE.jobs)) is shown
        assert "NodeUpdateRefused" not in str(explain_node(replace(WAITING, beside=Beside(LEADERS, [event]))).cause)


@pytest.mark.parametrize(
    ("marks", "shown"),
    [({}, True), (marked(digest=DIGEST), False), (marked("attempt 2: x"), False)],
    ids=["nothing", "a success", "a failure"],
)
def test_a_refusal_counts_until_an_attempt_is_recorded_after_it(marks: dict[str, str], shown: bool) -> None:
    """The Event stays for an hour; the next version has no Job yet."""
    refused = warning("uid-n", Reason.INSTALLER_REFUSED, f"{NO_POD} installers/j is created: {QUOTA}")
    refused["metadata"] = {"annotations": {names.ANNOTATION_DIGEST: "", names.ANNOTATION_FAILED_ATTEMPT: ""}}
    ledger = Ledger({"uid-n": Entry("d2", 1, 1000)})
    page = explain_node(replace(WAITING, node=node(**marks), ledger=ledger, beside=Beside(LEADERS, [refused])))
    assert ("exceeded quota" in str(page.cause)) is shown


def test_a_refusal_has_the_same_text_for_any_pod_name() -> None:
    webhook = 'Error creating: admission webhook "x" denied the request: pod n-{} has no team'
    causes = {
        explain_node(replace(AT_WORK, pods=[], beside=Beside(LEADERS, [refused]))).headline
        for refused in (warning("uid-job", "FailedCreate", webhook.format(end)) for end in ("abcde", "x2z9q"))
    }
    assert len(causes) == 1


def test_a_verified_node_has_a_healthy_chain() -> None:
    page = explain_node(WELL)
    assert (page.subject, page.cause) == ("node n", None)
    assert [line.about for line in page.lines] == [
        "kubelet", "opted in", "shim", "verification", "provisioner", "node-watcher",
    ]  # fmt: skip
    assert page.document() | {"lines": []} == {
        "ok": True, "health": "Healthy", "reason": "Ready",
        "subject": "node n", "cause": None, "do": None, "headline": page.headline, "lines": [],
    }  # fmt: skip


def test_an_old_event_of_a_ready_node_is_no_problem() -> None:
    warnings = [warning("uid-n", "InstallerNotStarting", "old"), warning("uid-n", "OtherControllerActive", "old")]
    page = explain_node(replace(WELL, beside=Beside(LEADERS, warnings)))
    assert page.cause is None
    assert [line.text for line in page.lines if line.about == "event"]


@pytest.mark.parametrize(("at", "about"), [("2026-11-22T06:59:59Z", "last failure"), ("2026-11-22T07:00:00Z", "event")])
def test_an_obstacle_before_the_last_failure_is_no_cause(at: str, about: str) -> None:
    begin = int(datetime(2026, 11, 22, 7, tzinfo=UTC).timestamp())
    failing = node(**marked(MISMATCH) | {names.ANNOTATION_FAILED_ATTEMPT: f"d1/2/{begin}"})
    beside = Beside(LEADERS, [warning("uid-n", "OtherControllerActive", "Deployment x", at)])
    page = explain_node(replace(WAITING, node=failing, beside=beside))
    assert page.cause is not None
    assert page.cause.about == about


def test_a_missing_permission_is_reported_and_the_rest_is_shown() -> None:
    page = explain_node(replace(WELL, beside=Beside(LEADERS, notes=[Line("rights", "this account may not list jobs")])))
    assert page.lines[-1].text == "this account may not list jobs"
    assert page.cause is None


def condition_of(kind: str, status: str, reason: str, message: str) -> Manifest:
    since = "2026-11-22T07:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def with_conditions(*conditions: Manifest, **spec: Any) -> Manifest:
    return SHIM | {"spec": SHIM["spec"] | spec, "status": SHIM["status"] | {"conditions": [*conditions]}}


WANTED = Target((("spin", DIGEST),)).digest
FAILS = marked(MISMATCH) | {names.ANNOTATION_FAILED_ATTEMPT: f"{WANTED}/2/1000"}
ALL = condition_of("Available", "True", "AllNodesReady", "1 of 1 nodes run it")
SOME = condition_of("Available", "False", "NodesNotReady", "0 of 1 nodes run it")
SHIM_CAUSES: dict[str, tuple[ShimSnapshot, list[str]]] = {
    "a node that fails": (
        ShimSnapshot(
            with_conditions(SOME, condition_of("Degraded", "True", "NodesFailing", "…")),
            [],
            beside=Beside(LEADERS),
        ),
        ["node n", "ChecksumMismatch", "https://example.com/spin.tar.gz"],
    ),
    "a Job that is held up": (
        ShimSnapshot(with_conditions(SOME), causes={"n": Line("pod", "it waits", False, "do this", Rank.CAUSE)}),
        ["node n", "it waits", "Do this"],
    ),
    "its spec": (
        ShimSnapshot(
            with_conditions(SOME, condition_of("Degraded", "True", "ChecksumMissing", "the source has no sha256"))
        ),
        ["ChecksumMissing: the source has no sha256"],
    ),
    "paused": (ShimSnapshot(with_conditions(SOME, paused=True)), ["spec.paused", "trellis rollout resume"]),
    "never looked at": (
        ShimSnapshot({name: SHIM[name] for name in ("metadata", "spec")}),
        ["provisioner", "trellis run provisioner"],
    ),
}


@pytest.mark.parametrize(("world", "named"), SHIM_CAUSES.values(), ids=SHIM_CAUSES)
def test_a_shim_names_the_first_node_that_fails_or_its_own_fault(world: ShimSnapshot, named: list[str]) -> None:
    marks = FAILS if "ChecksumMismatch" in named else {}
    page = explain_shim(replace(world, nodes=[view_node(node(**marks))]))
    assert page.subject == "shim spin"
    assert page.cause is not None
    assert lacking(page.headline, *named) == []


@pytest.mark.parametrize(("rivals", "shown"), [(True, False), (False, True)])
def test_a_blocked_job_is_no_cause_of_a_halted_shim(rivals: bool, shown: bool) -> None:
    first = replace(VIEW, name="first", handler="spin" if rivals else "first", created_at=-1)
    held = {"n": Line("pod", "it waits", False, "do this", Rank.CAUSE)}
    page = explain_shim(ShimSnapshot(with_conditions(SOME), [view_node(node())], [VIEW, first], held))
    assert any("it waits" in line.text for line in page.lines) is shown


def test_a_shim_that_is_everywhere_or_for_no_node_is_healthy() -> None:
    world = ShimSnapshot(with_conditions(ALL), [view_node(node(**marked(digest=DIGEST)))], beside=Beside(LEADERS))
    page = explain_shim(world)
    assert (page.subject, page.cause) == ("shim spin", None)
    assert (page.verdict.health, page.verdict.reason) == (Health.HEALTHY, "AllNodesReady")
    status = {"nodes": 0, "nodesReady": 0, "nodesUpdated": 0, "observedGeneration": 1, "conditions": []}
    none = explain_shim(replace(world, nodes=[], shim=SHIM | {"status": status}))
    assert (none.cause, none.verdict.health, none.verdict.reason) == (None, Health.HEALTHY, "NoNodes")
    assert any("nodeSelector" in line.text for line in none.lines)


def test_of_a_thousand_nodes_that_fail_ten_are_shown_and_the_others_counted() -> None:
    failing = [node(**FAILS) for _ in range(1000)]
    page = explain_shim(ShimSnapshot(with_conditions(SOME), [view_node(item) for item in failing]))
    shown = [line.text for line in page.lines if line.about == "node"]
    assert len(shown) == 11
    assert shown[-1] == "and 990 more: `trellis nodes`"


@pytest.mark.parametrize("at", [BEFORE, "2026-11-22T07:00:00Z", "2026-11-22T07:00:00.000001Z"])
def test_a_refusal_of_a_former_job_does_not_hold_up_the_one_that_is_done_now(at: str) -> None:
    held = unlabelled_by_node([warning("uid-n", Reason.UPDATE_REFUSED, POLICY, at)], DONE.jobs)
    assert [*held] == ([] if at == BEFORE else ["n"])


def test_a_node_that_a_shim_selects_waits_in_every_table() -> None:
    view = view_node(node())
    row = row_of(view, (), None, [VIEW])
    assert (row.opt_in_state, row.by, row.state, row.concern) == (OptIn.IN, "Shim", NodeState.WAITING, True)
    assert row_of(view, (), None).state is NodeState.NOT_OPTED_IN
    out = view_node(node(**{names.ANNOTATION_OPT_IN: "false"}))
    assert row_of(out, (), None, [VIEW]).state is NodeState.NOT_OPTED_IN


def test_a_node_without_an_installer_states_the_reason_if_a_shim_selects_it() -> None:
    fargate = node()
    fargate["metadata"]["labels"] |= {"eks.amazonaws.com/compute-type": "fargate"}
    assert row_of(view_node(fargate), (), None, [VIEW]).message.startswith(Reason.FARGATE_NODE.value)


def test_of_many_jobs_each_shows_its_blocker() -> None:
    jobs, pods, events = [], [], []
    for name in ("a", "b", "c"):
        made = job() | {"metadata": job()["metadata"] | {"name": f"{name}-job", "uid": f"uid-{name}"}}
        made["metadata"] |= {"annotations": {names.ANNOTATION_NODE: name}}
        jobs.append(made)
    labels = {"batch.kubernetes.io/job-name": "a-job"}
    pods.append(waiting("ErrImagePull", "not found") | {"metadata": pod()["metadata"] | {"labels": labels}})
    events.append(warning("uid-b", "FailedCreate", QUOTA))
    held = pending_causes(jobs, pods, events)
    assert set(held) == {"a", "b"}
    assert lacking(held["a"].text, "ErrImagePull: not found") == []
    assert lacking(held["b"].text, "exceeded quota: small") == []


def degraded(reason: Reason | ShimReason, message: str, **metadata: Any) -> Manifest:
    since = {"lastTransitionTime": "2026-11-22T07:00:00Z", "observedGeneration": 1}
    condition = {"type": "Degraded", "status": "True", "reason": reason.value, "message": message} | since
    none = {"type": "Available", "status": "False", "reason": "NoNodes", "message": "no node is to have it"} | since
    status = {"conditions": [condition, none]}
    return SHIM | {"metadata": SHIM["metadata"] | metadata, "status": SHIM["status"] | status}


def of_node(found: Manifest, shim: Manifest, *jobs: Manifest) -> Line | None:
    world = NodeSnapshot(found, SYSTEM, jobs, (), [view_shim(shim)], stopped_shims([shim]), beside=Beside(LEADERS))
    return explain_node(world).cause


DELETED = {"deletionTimestamp": "2026-11-22T07:00:00Z", "finalizers": [names.FINALIZER]}


def test_a_shim_that_is_being_deleted_reports_it_and_how_many_nodes_have_it() -> None:
    deleted = degraded(ShimReason.HEALTHY, "", **DELETED)
    deleted["status"]["conditions"][0]["status"] = "False"
    nodes = [view_node(node(**marked(digest="d1"))), view_node(node())]
    cause = explain_shim(ShimSnapshot(deleted, nodes, beside=Beside(LEADERS))).cause
    assert cause is not None
    assert lacking(cause.text, "1 nodes") == []
    assert cause.about == "shim"


def test_a_node_of_a_shim_whose_deletion_is_paused_points_to_the_shim() -> None:
    held = degraded(ShimReason.MASS_DELETION, "it was deleted with others", **DELETED)
    cause = of_node(node(**marked(digest="d1")), held)
    assert cause is not None
    assert "MassDeletion: it was deleted with others" in cause.text
    assert "trellis explain shim/spin" in cause.do
    other = of_node(node(), held)
    assert other is None or "MassDeletion" not in other.text, "it has no such Shim"


@pytest.mark.parametrize("had", ["", "d1"], ids=["nothing", "another version"])
def test_a_node_that_waits_for_a_refused_ledger_points_to_the_shim(had: str) -> None:
    reason = "no node is begun, because the rollout ledger is refused"
    shim = degraded(ShimReason.LEDGER_REFUSED, reason)
    found = node(**marked(digest=had))
    cause = of_node(found, shim)
    assert cause is not None
    assert f"LedgerRefused: {reason}" in cause.text
    assert "trellis explain shim/spin" in cause.do
    at_work = of_node(found, shim, job(active=1))
    assert at_work is None or "LedgerRefused" not in at_work.text, "its installer runs"
    other = of_node(found, degraded(Reason.JOB_REFUSED, "a quota"))
    assert other is not None
    assert "shim/spin" not in other.do, "that is about other nodes"
