"""The Job that rolls back another Job, which is retried until it is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.cache import Cache
from provisioner.domain.actions import CreateJob, CreateUndo, DeleteJob, EndJob, GuardedDeletion, JudgeFailed, Snapshot
from provisioner.domain.canary import Canary, CanaryPod
from provisioner.domain.decide import decide
from provisioner.domain.plan import FleetSnapshot, plan
from provisioner.domain.resources import Task, make_installer_job
from provisioner.gather import Gather
from provisioner.settings import Settings
from support.suite.naming import lacking
from trellis import names
from trellis.installer_api.spec import WantedShim, parse_spec
from trellis.kube.resources import CONTROLLER_REVISIONS, NAMESPACES, SHIMS
from trellis.provisioning.attempts import Retries
from trellis.provisioning.installer_pods import installer_state
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.leftovers import left_by
from trellis.provisioning.reasons import Reason
from trellis.provisioning.revisions import make_revision, version_of
from trellis.provisioning.shims import ShimView, view_shim, wanted_shim_for
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import UNDO, JobState, JobView, NodeView, Target, decode_digests, encode_digests
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_job, a_node, a_shim, verified_node

SETTINGS = Settings(node_installer_image="trellis.example/node-installer:1")


def having(**digests: str) -> NodeView:
    digest = Target(tuple(sorted(digests.items()))).digest
    return replace(verified_node(a_node(), digest, "handler"), shims=encode_digests(digests)) if digests else a_node()


def manifest(name: str, sha256: str, **spec: Any) -> dict[str, Any]:
    given = {
        "fetchStrategy": {"anonHttp": {"location": "https://example.com/x", "sha256": sha256}},
        "runtimeClass": {"name": name, "handler": name},
        "rolloutStrategy": {"type": "recreate"},
    }
    return {"metadata": {"name": name}, "spec": given | spec}


class History:
    """Shims of an API server, and the versions of them that are kept."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": SETTINGS.namespace}})
        self.shims: dict[str, ShimView] = {}

    def keep(self, name: str, sha256: str, **spec: Any) -> str:
        """Make a version the Shim's present one and keep it; return its digest."""
        found = self.kube.put(SHIMS, manifest(name, sha256, **spec))
        number = len(self.kube.objects(CONTROLLER_REVISIONS)) + 1
        kept = make_revision(name, found["metadata"]["uid"], version_of(found), number, SETTINGS.namespace)
        self.kube.put(CONTROLLER_REVISIONS, kept)
        self.shims[name] = view_shim(found)
        wanted = wanted_shim_for(self.shims[name], "amd64", require_checksum=True)
        assert isinstance(wanted, WantedShim)
        return wanted.digest

    async def gathered(self, snapshot: Snapshot) -> Snapshot:
        assert snapshot.node is not None
        return await Gather(self.kube, Cache(self.kube, SETTINGS, {"node-1": snapshot.node}, self.shims)).with_former(
            snapshot
        )

    async def undo(self, node: NodeView, job: JobView, *shims: str) -> Task:
        """Return what is decided once canaries of these Shims failed."""
        *_, undo = decide(await self.gathered(trial(node, job, shims, "Failed")))
        assert isinstance(undo, CreateUndo)
        return undo.task


def tried(node: NodeView, **digests: str) -> JobView:
    return a_job(node, JobState.COMPLETE, installs=encode_digests(digests))


def trial(node: NodeView, job: JobView, shims: tuple[str, ...], phase: str) -> Snapshot:
    """Return a snapshot of a Job whose Shims are tried by canaries, all of them as far."""
    pods = tuple(CanaryPod(job.namespace, shim, shim, "1", job.uid, shim=shim, phase=phase) for shim in shims)
    canaries = tuple(Canary(shim, "uid", shim, "image") for shim in shims)
    snapshot = a_snapshot(
        node, replace(job, canaries=frozenset(shims)), target=Target(tuple(sorted(job.shims.items())))
    )
    return replace(snapshot, canaries=canaries, pods=pods)


def runs(task: Task) -> list[tuple[list[str], list[str]]]:
    """Return what the containers of the Job do, one after the other: the operation, and of which shims."""
    pod = make_installer_job(SETTINGS.installer(), a_node(), task, 1, None)["spec"]["template"]["spec"]
    found = []
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        spec = next(item["value"] for item in container["env"] if item["name"] == names.INSTALLER_SPEC)
        removal = container["args"][0] == "uninstall"
        found.append((container["args"], [shim.name for shim in parse_spec(spec, removal=removal).shims]))
    return found


def after(task: Task) -> dict[str, str]:
    """Return what the Job says that the node has after it."""
    job = make_installer_job(SETTINGS.installer(), a_node(), task, 1, None)
    return decode_digests(job["metadata"]["annotations"][names.ANNOTATION_SHIMS])


async def test_one_that_was_added_and_one_that_was_changed_both_go_back() -> None:
    history = History()
    old = history.keep("spin", "ab" * 32)
    new, slight = history.keep("spin", "cd" * 32), history.keep("slight", "ef" * 32)
    node = having(spin=old)
    task = await history.undo(node, tried(node, spin=new, slight=slight), "slight", "spin")
    assert runs(task) == [(["uninstall", "--force"], ["slight"]), (["install"], ["spin"])]
    assert task.spec is not None
    assert [shim.digest for shim in task.spec.shims] == [old]
    assert after(task) == {"spin": old}
    assert task.removed_handlers == ("slight",)


async def test_a_shim_changed_by_an_option_is_restored_without_that_option() -> None:
    history = History()
    old = history.keep("spin", "ab" * 32)
    new = history.keep("spin", "ab" * 32, containerdRuntimeOptions={"SystemdCgroup": "true"})
    assert old != new
    task = await history.undo(having(spin=old), tried(having(spin=old), spin=new), "spin")
    assert after(task) == {"spin": old}
    assert "not kept" not in task.reason


@pytest.mark.parametrize("phase", ["Running", "Failed"])
async def test_former_versions_are_read_when_they_are_needed(phase: str) -> None:
    history = History()
    old, new = history.keep("spin", "ab" * 32), history.keep("spin", "cd" * 32)
    node, before = having(spin=old), len(history.kube.api.requests)
    snapshot = await history.gathered(trial(node, tried(node, spin=new), ("spin",), phase))
    assert [wanted.digest for wanted in snapshot.former.kept] == [old] * (phase == "Failed")
    assert len(history.kube.api.requests) == before + 2 * (phase == "Failed")


async def test_a_version_that_is_not_preserved_is_not_reported_as_present() -> None:
    history = History()
    new = history.keep("spin", "cd" * 32)
    task = await history.undo(having(spin="0"), tried(having(spin="0"), spin=new), "spin")
    assert runs(task) == [(["install"], [])]
    assert after(task) == {"spin": "?0"}
    assert lacking(task.reason, "spin") == []


async def test_a_shim_added_beside_the_failed_one_is_recorded() -> None:
    history = History()
    spin, slight = history.keep("spin", "ab" * 32), history.keep("slight", "ef" * 32)
    task = await history.undo(a_node(), tried(a_node(), spin=spin, slight=slight), "slight")
    assert runs(task) == [(["uninstall", "--force"], ["slight"])]
    assert after(task) == {"spin": "?"}


@pytest.mark.parametrize(("had", "operation"), [("?", "uninstall"), ("?{old}", "install")])
async def test_a_failed_rollback_is_retried(had: str, operation: str) -> None:
    history = History()
    old, new = history.keep("spin", "ab" * 32), history.keep("spin", "cd" * 32)
    node = having(spin=had.format(old=old))
    [(args, shims)] = runs(await history.undo(node, tried(node, spin=new), "spin"))
    assert (args[0], shims) == (operation, ["spin"])


# --- until it is done ---

SPIN = a_shim(deleting=True)
WANTED = wanted_shim_for(a_shim(), "amd64", require_checksum=True)
assert isinstance(WANTED, WantedShim)


def failed_undo(**changes: Any) -> JobView:
    """Return the Job that was to take spin back from a node that has nothing else, and failed."""
    job = a_job(
        a_node(),
        JobState.FAILED,
        digest=Target((("spin", WANTED.digest),)).digest,
        operation=UNDO,
        installs="",
        blamed=f"spin={WANTED.digest}",
        rolls_back="CanaryFailed: it broke",
    )
    return replace(job, **changes)


def a_snapshot(
    node: NodeView, *jobs: JobView, shim: ShimView = SPIN, entry: Entry | None = None, target: Target | None = None
) -> Snapshot:
    target = target or target_of(node, [shim], None, auto_provision=False, require_checksum=True)
    task = Task(target) if target else None
    return Snapshot("node-1", node, jobs, entry, target, frozenset(), None, 60.0, 20.0, now=1020.0, task=task)


def test_a_job_that_could_not_roll_back_is_judged_and_stays_until_the_node_names_what_is_left() -> None:
    [_, verdict] = decide(a_snapshot(a_node(), failed_undo()))
    assert isinstance(verdict, JudgeFailed)
    assert verdict.reason is Reason.CANARY_FAILED
    assert decide(a_snapshot(a_node(), failed_undo(failure="CanaryFailed: it broke"))) == []


def test_its_slot_stays_too_and_then_the_shim_is_removed() -> None:
    node, job = a_node(), failed_undo(failure="CanaryFailed: it broke")
    entry = Entry(job.digest, 1, 1000, ("spin",))

    def planned(node: NodeView) -> dict[str, Entry]:
        target = target_of(node, [SPIN], None, auto_provision=False, require_checksum=True)
        targets = {node.uid: target} if target else {}
        world = FleetSnapshot(
            (node,), targets, {node.uid: (job,)}, Ledger({node.uid: entry}), {}, Retries(1, 2), 2000.0
        )
        return dict(plan(world).ledger.entries)

    assert planned(node) == {node.uid: entry}
    named = having(spin="?")
    assert left_by(job, named) == {}
    recorded = replace(named, failure="x", failed_attempt=f"{job.digest}/1/1010", failed_shims=job.blamed)
    [removal] = planned(recorded).values()
    assert (removal.digest, removal.attempt, removal.shims) == (Target(()).digest, 1, ("spin",))
    actions = decide(a_snapshot(recorded, job, entry=removal))
    assert [type(action) for action in actions] == [DeleteJob, CreateJob]


def test_an_unverified_version_is_installed_again() -> None:
    wanted = a_shim()
    target = target_of(having(spin=f"?{WANTED.digest}"), [wanted], None, auto_provision=False, require_checksum=True)
    assert target == Target((("spin", WANTED.digest),))


@pytest.mark.parametrize(
    ("statuses", "terminated"),
    [
        pytest.param(
            [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}], "exit code 1 (Error)", id="failed"
        ),
        pytest.param(
            [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}], "exit code 3 (Error)", id="done"
        ),
    ],
)
def test_the_first_failed_run_gives_the_reason(statuses: list[dict[str, Any]], terminated: str) -> None:
    own = [{"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]
    pod = {"status": {"initContainerStatuses": statuses, "containerStatuses": own}}
    assert installer_state(pod).terminated == terminated


# --- the breaker ---


@pytest.mark.parametrize(
    ("deleting", "kind"),
    [(frozenset({"spin"}), EndJob), (frozenset[str](), GuardedDeletion)],
    ids=["deleted", "opted out"],
)
def test_an_installer_that_a_deleted_shim_stops_is_not_counted_by_the_circuit_breaker(
    deleting: frozenset[str], kind: type[EndJob | GuardedDeletion]
) -> None:
    job = a_job(a_node(), installs="spin=1")
    snapshot = Snapshot(
        "node-1", a_node(), (job,), None, None, frozenset(), None, 60.0, 20.0, now=1020.0, deleting=deleting
    )
    [action] = decide(snapshot)
    assert isinstance(action, kind)
    if isinstance(action, EndJob):
        assert action.reason is Reason.OPTED_OUT
