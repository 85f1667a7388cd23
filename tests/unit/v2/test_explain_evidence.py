"""Valid and invalid evidence: long outages, differing clocks, hosts that do not exist, conditions without end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.manifests import (
    ALL,
    DEADLINE,
    NO_RESPONDERS,
    NOW,
    Manifest,
    at,
    condition,
    make_deployment,
    make_host,
    make_replica_set,
    make_snapshot,
    make_workload,
    steps,
)
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.components import ComponentTypes
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.text import labels_there
from trellis.v2.explain.workload import explain_workload
from trellis.v2.host_messages import HostMessages, LastHeartbeat
from trellis.v2.images import ImageAnswer, ImageKey, ImageState
from trellis.v2.messages import HostHeartbeat
from trellis.v2.objects import view_conditions
from trellis.v2.operator import State
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis_cli.v2.row import v2_part

HOUR = 3600.0


def workload_page(snapshot: Snapshot) -> Explanation:
    return explain_workload(snapshot, snapshot.workloads[0], Beside())


def deployment_page(snapshot: Snapshot) -> Explanation:
    return explain_deployment(snapshot, snapshot.deployments[0], Beside())


def outcome(page: Explanation) -> tuple[str | None, Health]:
    return (page.cause.reason if page.cause is not None else None), page.verdict.health


def starting(age: float) -> list[Manifest]:
    """Return the conditions of a Workload whose host was asked ``age`` seconds ago to start it."""
    return steps("Config", "HostSelection", age=age)


@pytest.mark.parametrize("page", [workload_page, deployment_page])
def test_a_start_without_an_end_is_no_pull_but_an_operator_that_does_not_work(page: Any) -> None:
    snapshot = make_snapshot([make_host(seen=3 * HOUR)], [make_workload(conditions=starting(3 * HOUR), age=3 * HOUR)])
    assert outcome(page(snapshot))[0] == Reason.OPERATOR_UNAVAILABLE
    working = make_snapshot([make_host(seen=5)], [make_workload(conditions=starting(3 * HOUR), age=3 * HOUR)])
    assert outcome(page(working))[0] == Reason.NOT_OBSERVED
    pulling = make_snapshot([make_host(seen=30)], [make_workload(conditions=starting(20), age=21)])
    assert outcome(page(pulling)) == (Reason.REGISTRY_TIMEOUT, Health.PROGRESSING)


def test_a_start_without_an_end_does_not_explain_the_silence_of_its_host() -> None:
    snapshot = make_snapshot([make_host(seen=90)], [make_workload(conditions=starting(HOUR), age=HOUR)])
    assert Cluster(snapshot).operator.state is State.HEARTBEATS_MISSING
    assert outcome(explain_host(snapshot, snapshot.hosts[0], Beside()))[0] == Reason.HEARTBEATS_STOPPED


def test_a_workload_that_was_never_reconciled_has_the_operator_in_its_first_line() -> None:
    snapshot = make_snapshot([make_host(seen=3 * HOUR)], [make_workload(conditions=[], age=HOUR)])
    assert outcome(workload_page(snapshot))[0] == Reason.OPERATOR_UNAVAILABLE


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param(
            [condition("Foo", age=10 * HOUR), condition("Bar", "False", "zzz", 10 * HOUR)], id="unknown types"
        ),
        pytest.param([*steps(*ALL[:3]), condition("Sync", "Unknown", "", 10 * HOUR)], id="Sync without a message"),
        pytest.param([*steps(*ALL[:3]), condition("Sync", "Unknown", "odd", 10 * HOUR)], id="Sync with a message"),
        pytest.param([condition("Config", "Unknown", "", 10 * HOUR)], id="Config"),
    ],
)
def test_no_step_waits_forever(conditions: list[Manifest]) -> None:
    old = make_snapshot([make_host()], [make_workload(conditions=conditions, age=10 * HOUR)])
    reason, health = outcome(workload_page(old))
    assert reason in {Reason.NOT_OBSERVED, Reason.NOT_READY}
    assert health is Health.UNKNOWN
    recent = [item | {"lastTransitionTime": condition("", age=10)["lastTransitionTime"]} for item in conditions]
    new = make_snapshot([make_host()], [make_workload(conditions=recent, age=10)])
    assert outcome(workload_page(new)) == (Reason.WAITING, Health.PROGRESSING)


@pytest.mark.parametrize(("age", "expected"), [(30, Reason.WAITING), (90, Reason.NOT_OBSERVED)])
def test_missing_workloads_do_not_wait_forever(age: float, expected: Reason) -> None:
    """Nothing refuses them, and the operator creates Workloads within a second."""
    replica_set = make_replica_set(2, conditions=steps("ScaleUp", "ScaleDown", age=age))
    found = make_snapshot(
        [make_host()],
        [make_workload("w1", steps(*ALL, age=800), age=900)],
        replica_set,
        make_deployment(2, conditions=steps("Sync", age=900)),
    )
    assert outcome(deployment_page(found)) == (expected, Health.PROGRESSING)


def test_a_host_without_conditions_does_not_wait_forever() -> None:
    for created, expected in ((10.0, Reason.WAITING), (HOUR, Reason.NOT_OBSERVED)):
        snapshot = make_snapshot([make_host(conditions=[], created=created)])
        assert outcome(explain_host(snapshot, snapshot.hosts[0], Beside()))[0] == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_of_two_conditions_of_one_type_the_newer_one_counts(reverse: bool) -> None:
    both = [condition("Sync", "False", "new", 10), condition("Sync", "True", "", 9000)]
    found = view_conditions({"conditions": both[:: -1 if reverse else 1]})
    assert found["Sync"].status == "False"
    same = [condition("Sync", "True"), condition("Sync", "False", "x")]
    assert view_conditions({"conditions": same[:: -1 if reverse else 1]})["Sync"].status == "False"


def deadline(name: str, host: str) -> Manifest:
    return make_workload(name, [*steps(*ALL[:3]), condition("Sync", "False", DEADLINE)], host=host)


def test_a_timeout_of_one_host_is_not_the_connection_of_the_operator() -> None:
    """A host that lost its power is connected to NATS for some more minutes, so requests to it time out."""
    one = make_snapshot([make_host(seen=70)], [deadline("w1", "id-h1")], messages=HostMessages(21.0))
    assert Cluster(one).operator.state is State.HEARTBEATS_MISSING
    assert outcome(workload_page(one)) == (Reason.HEARTBEATS_STOPPED, Health.UNKNOWN)
    hosts = [make_host("h1", seen=70), make_host("h2", seen=68)]
    both = make_snapshot(hosts, [deadline("w1", "id-h1"), deadline("w2", "id-h2")])
    assert Cluster(both).operator.state is State.CUT_OFF


def beats(count: int, age: float) -> HostMessages:
    found = {f"other-{n}": LastHeartbeat(HostHeartbeat(f"other-{n}"), 1, NOW - age) for n in range(count)}
    return HostMessages(16.0, found)


def test_heartbeats_of_hosts_without_a_host_object_are_no_evidence_while_others_are_recorded() -> None:
    recorded = make_snapshot([make_host(seen=3)], [make_workload()], messages=beats(50, age=8))
    assert Cluster(recorded).operator.state is State.WORKING
    page = workload_page(recorded)
    assert page.cause is None
    assert any("50" in line.text for line in page.lines if line.about == "nats")
    none = make_snapshot([], messages=beats(2, age=8))
    assert Cluster(none).operator.state is State.UNAVAILABLE


@pytest.mark.parametrize("page", [workload_page, deployment_page])
def test_a_workload_on_a_host_that_does_not_exist_is_not_healthy(page: Any) -> None:
    lost = [make_workload(host="id-gone", age=2 * HOUR)]
    for hosts in ([make_host("h2")], []):
        assert outcome(page(make_snapshot(hosts, lost))) == (Reason.HOST_NOT_FOUND, Health.UNKNOWN)
    hidden = make_snapshot([], lost, unread={Part.HOSTS: "forbidden"})
    assert outcome(page(hidden)) == (None, Health.HEALTHY)
    placed = make_workload(host="id-new", conditions=steps(*ALL, age=2))
    assert outcome(page(make_snapshot([make_host("h2")], [placed]))) == (None, Health.HEALTHY)


def lagging(seen: float, by: float, name: str = "h1", created: float = HOUR) -> Manifest:
    """Return a Host as an operator writes it whose clock is ``by`` seconds behind that of the API server."""
    conditions = steps("Reporting", "Ready", age=created - 1 + by)
    return make_host(name, seen + by, created=created, conditions=conditions)


def test_an_operator_with_another_clock_works_and_its_hosts_do() -> None:
    for by in (50.0, 2 * HOUR):
        placed = make_workload(age=100, conditions=steps(*ALL, age=99 + by))
        snapshot = make_snapshot([lagging(5, by), lagging(10, by, "h2")], [placed])
        assert Cluster(snapshot).operator.state is State.WORKING
        assert outcome(workload_page(snapshot)) == (None, Health.HEALTHY)
        assert [line.about for line in workload_page(snapshot).lines].count("clock") == 1


def test_the_silence_of_a_host_is_found_with_another_clock() -> None:
    for by in (2 * HOUR, -2 * HOUR):
        snapshot = make_snapshot([lagging(70, by), lagging(5, by, "h2")])
        silent, other = (explain_host(snapshot, host, Beside()) for host in snapshot.hosts)
        assert outcome(silent)[0] == Reason.HEARTBEAT_MISSING
        assert outcome(other) == (None, Health.HEALTHY)


def test_an_operator_with_another_clock_that_ended_does_not_work() -> None:
    snapshot = make_snapshot([lagging(HOUR, HOUR), lagging(HOUR, HOUR, "h2")])
    assert Cluster(snapshot).operator.state is State.UNAVAILABLE


def without_evidence(seen: float) -> Manifest:
    """Return a Host whose conditions all changed long after its creation."""
    return make_host(seen=seen, created=9 * HOUR, conditions=steps("Reporting", "Ready", age=5 * HOUR))


@pytest.mark.parametrize(
    ("seen", "reason"), [(2 * HOUR, Reason.OPERATOR_UNAVAILABLE), (70.0, Reason.HEARTBEATS_STOPPED)]
)
def test_an_outage_that_another_clock_can_explain_is_not_distinguished(seen: float, reason: Reason) -> None:
    waits = make_workload(conditions=[condition("Config", "Unknown", age=10)], age=9000)
    doubtful = make_snapshot([without_evidence(seen)], [waits])
    page = explain_host(doubtful, doubtful.hosts[0], Beside())
    assert outcome(page) == (reason, Health.UNKNOWN)
    assert lacking(page.headline, "clock", "API server") == []
    started = make_workload("w2", age=3 * HOUR, conditions=steps(*ALL, age=3 * HOUR - 1))
    excluded = make_snapshot([without_evidence(seen)], [waits, started])
    known = explain_host(excluded, excluded.hosts[0], Beside())
    assert outcome(known) == (reason, Health.UNKNOWN)
    assert "clock" not in known.headline


def test_workloads_show_the_clock_of_the_operator_if_no_host_does() -> None:
    by = 2 * HOUR
    started = make_workload(age=HOUR, conditions=steps(*ALL, age=HOUR - 1 + by))
    snapshot = make_snapshot([without_evidence(5 + by)], [started])
    assert Cluster(snapshot).operator.state is State.WORKING
    assert outcome(workload_page(snapshot)) == (None, Health.HEALTHY)
    older = make_workload("w2", age=4 * HOUR, conditions=steps(*ALL, age=4 * HOUR - 1))
    assert Cluster(make_snapshot([without_evidence(5 + by)], [older, started])).clock_lead == pytest.approx(1 - by)


def test_conditions_of_a_restored_host_are_no_evidence_of_another_clock() -> None:
    restored = make_host(seen=5, created=10, conditions=steps("Reporting", "Ready", age=9000))
    assert Cluster(make_snapshot([restored])).clock_lead == 0
    dead = make_snapshot([make_host(seen=50, created=10, conditions=steps("Reporting", "Ready", age=9000))])
    assert Cluster(dead).clock_lead == 0


def test_equal_workloads_without_a_host_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules compare each Workload with each Host: 1,000 of both took 6 s."""
    evaluated = 0

    def counted(*given: Any) -> str:
        nonlocal evaluated
        evaluated += 1
        return labels_there(*given)

    monkeypatch.setattr("trellis.v2.explain.placement.labels_there", counted)
    spec = {"hostSelector": {"hostgroup": "gpu"}, "components": []}
    unplaced = [*steps("Config"), condition("HostSelection", "False", "no suitable host found")]
    workloads = [make_workload(f"w{n}", unplaced, spec=spec, host="") for n in range(50)]
    page = deployment_page(make_snapshot([make_host(), make_host("h2")], workloads))
    assert outcome(page) == (Reason.NO_HOST_MATCHES, Health.DEGRADED)
    assert evaluated == 1


@pytest.mark.parametrize(
    ("failed", "seen", "hosts", "expected"),
    [
        pytest.param(30, 58, 1, (Reason.HEARTBEAT_MISSING, Health.DEGRADED), id="after the last heartbeat"),
        pytest.param(8, 58, 1, (Reason.HEARTBEATS_STOPPED, Health.UNKNOWN), id="while hosts can reconnect"),
        pytest.param(60, 58, 1, (Reason.HEARTBEATS_STOPPED, Health.UNKNOWN), id="before the last heartbeat"),
        pytest.param(30, 58, 2, (Reason.HEARTBEATS_STOPPED, Health.UNKNOWN), id="of each of two hosts"),
    ],
)
def test_a_request_without_a_receiver_shows_that_the_only_host_is_not_connected(
    failed: float, seen: float, hosts: int, expected: tuple[Reason, Health]
) -> None:
    """NATS and the operator worked then, so neither of them is the cause."""
    unmet = condition("Sync", "False", NO_RESPONDERS, failed)
    names = [f"h{number + 1}" for number in range(hosts)]
    workloads = [make_workload(f"w-{name}", [*steps(*ALL[:3]), unmet], host=f"id-{name}") for name in names]
    found = make_snapshot([make_host(name, seen, created=900) for name in names], workloads)
    assert outcome(workload_page(found)) == expected
    reported = [condition("Reporting", "False", NO_RESPONDERS, failed), condition("Ready", "Unknown", "", failed)]
    only = make_snapshot([make_host(name, seen, created=900, conditions=reported) for name in names], [make_workload()])
    assert outcome(explain_host(only, only.hosts[0], Beside())) == expected


@pytest.mark.parametrize(
    ("failed", "seen", "expected"),
    [
        (10, 12, (Reason.HEARTBEAT_MISSING, Health.DEGRADED)),
        (20, 5, (Reason.WAITING, Health.PROGRESSING)),
        (50, 5, (Reason.HOST_UNREACHABLE, Health.DEGRADED)),
    ],
)
def test_a_heartbeat_after_a_request_without_an_answer_shows_that_the_host_runs(
    failed: float, seen: float, expected: tuple[Reason, Health]
) -> None:
    for kind, before in (("Placement", ALL[:2]), ("Sync", ALL[:3])):
        conditions = [*steps(*before), condition(kind, "False", NO_RESPONDERS, failed)]
        found = make_snapshot([make_host(seen=seen), make_host("h2")], [make_workload("w1", conditions)])
        assert outcome(workload_page(found)) == expected


TEMPLATES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "another image": (
        {"components": [{"name": "web", "image": "r/a:2"}]},
        {"components": [{"name": "web", "image": "r/a:1"}]},
        True,
    ),
    "another value of the configuration": (
        {"hostInterfaces": [{"namespace": "wasi", "package": "http", "config": {"host": "a"}}]},
        {"hostInterfaces": [{"namespace": "wasi", "package": "http", "config": {"host": "b"}}]},
        True,
    ),
    "no template any more": ({}, {"components": [{"name": "web", "image": "r/a:1"}]}, True),
    "another Service": (
        {"kubernetes": {"service": {"name": "a"}}},
        {"kubernetes": {"service": {"name": "b"}}},
        True,
    ),
    "the image of an Artifact": (
        {"components": [{"name": "web", "image": "artifact://code"}, {"name": "b", "image": "r/b:1"}]},
        {"components": [{"name": "web", "image": "r/a:1"}, {"name": "b", "image": "r/b:1"}]},
        False,
    ),
    "fields that Go omits": (
        {"components": [{"name": "web", "image": "r/a:1", "poolSize": 0, "localResources": {"config": {}}}]},
        {"components": [{"name": "web", "image": "r/a:1"}]},
        False,
    ),
}


@pytest.mark.parametrize(("wanted", "runs", "differs"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_changed_template_that_the_operator_did_not_act_on(
    wanted: dict[str, Any], runs: dict[str, Any], differs: bool
) -> None:
    deployment = make_deployment(template={"spec": wanted})
    page = deployment_page(
        make_snapshot([make_host()], [make_workload(spec=runs)], make_replica_set(spec=runs), deployment)
    )
    assert any(line.reason == Reason.NOT_OBSERVED for line in page.lines) is differs
    if differs:
        assert outcome(page) == (Reason.NOT_OBSERVED, Health.PROGRESSING)


def test_a_template_of_null_is_a_changed_one() -> None:
    found = make_snapshot([make_host()], [make_workload()], make_replica_set(), make_deployment(template=None))
    assert outcome(deployment_page(found)) == (Reason.NOT_OBSERVED, Health.PROGRESSING)


@pytest.mark.parametrize("first", [True, False])
def test_a_webhook_that_denies_a_replica_set_is_the_cause(first: bool) -> None:
    """Also of a changed template, while the WorkloadReplicaSet of the former one serves."""
    denied = 'admission webhook "deny.test" denied the request: no'
    conditions = [*steps("Artifact"), condition("Sync", "Unknown", "x"), condition("Deploy", "False", denied, HOUR)]
    wanted = make_deployment(conditions=conditions, template={"spec": {"components": []}})
    if first:
        wanted["status"]["currentReplicaSet"] = {}
        snapshot = replace(make_snapshot([make_host()], deployment=wanted), replica_sets=())
    else:
        snapshot = make_snapshot([make_host()], [make_workload()], make_replica_set(), wanted)
    page = deployment_page(snapshot)
    assert outcome(page) == (Reason.SCALE_FAILED, Health.DEGRADED)
    assert "deny.test" in page.headline


def test_a_webhook_that_denies_workloads_is_the_cause() -> None:
    denied = condition("ScaleUp", "False", 'admission webhook "deny.test" denied the request: no')
    owner = make_replica_set(3, conditions=[denied, *steps("ScaleDown"), condition("Ready", "False")])
    page = deployment_page(make_snapshot([make_host()], [make_workload()], owner, make_deployment(3)))
    assert outcome(page) == (Reason.SCALE_FAILED, Health.DEGRADED)
    assert "deny.test" in page.headline


NO_HOST: list[Manifest] = [*steps("Config"), condition("HostSelection", "False", "no suitable host found", 10)]
ERROR = "workload is not operational: WORKLOAD_STATE_ERROR"
CUT_OFF: list[Manifest] = [condition("Reporting", "False", DEADLINE), condition("Ready", "Unknown")]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([make_host(name, 50, conditions=CUT_OFF) for name in ("h1", "h2")], Reason.NATS_UNREACHABLE),
        ([make_host(name, 90, conditions=CUT_OFF[1:]) for name in ("h1", "h2")], Reason.HEARTBEATS_STOPPED),
    ],
)
def test_workloads_without_a_host_during_an_outage_are_no_problems_of_their_own(
    hosts: list[Manifest], expected: Reason
) -> None:
    """Each Workload is replaced after a minute, and no Host is Ready then."""
    snapshot = make_snapshot(hosts, [make_workload(conditions=NO_HOST, host="")])
    assert outcome(deployment_page(snapshot))[0] == expected
    assert v2_part(snapshot).data["unhealthy"] == []


@pytest.mark.parametrize(("created", "named"), [(10.0, False), (100.0, True)])
def test_a_host_that_the_operator_does_not_evaluate_is_no_new_one(created: float, named: bool) -> None:
    host = make_host("gpu-1", 5, created=created, conditions=[])
    snapshot = make_snapshot([make_host("gpu-0", 5, labels={}), host], [make_workload(conditions=NO_HOST, host="")])
    spec = replace(snapshot.workloads[0].spec, selector={"hostgroup": "default"})
    found = explain_workload(snapshot, replace(snapshot.workloads[0], spec=spec), Beside()).cause
    assert found is not None
    assert found.reason == Reason.NO_HOST_READY
    assert (lacking(found.text, "gpu-1") == []) is named


@pytest.mark.parametrize(
    "host", ["*", "*.example.com", "shop.example.com:8080", "shop.example.com/cart", "http://shop"]
)
def test_a_host_name_that_no_host_accepts_is_the_cause(host: str) -> None:
    http = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"], "config": {"host": host}}
    spec = {"components": [{"name": "web", "image": "registry.test/app:1"}], "hostInterfaces": [http]}
    reported = f'{ERROR}: Workload is Error: primary host "{host}" is not a valid RFC 1123 hostname'
    for message in (ERROR, reported):
        broken = [*steps(*ALL[:3]), condition("Sync", "False", message, 10)]
        snapshot = make_snapshot([make_host()], [make_workload(conditions=broken, spec=spec)])
        found = workload_page(snapshot)
        assert outcome(found)[0] == Reason.HTTP_HOST_INVALID
        assert lacking(found.headline, host) == []
    valid = spec | {"hostInterfaces": [http | {"config": {"host": "Shop.example.com"}}]}
    broken = [*steps(*ALL[:3]), condition("Sync", "False", ERROR, 10)]
    snapshot = make_snapshot([make_host()], [make_workload(conditions=broken, spec=valid)])
    assert outcome(workload_page(snapshot))[0] == Reason.START_FAILED


@pytest.mark.parametrize(
    ("interface", "failed", "served"),
    [
        ("incoming-handler", Reason.HTTP_HOST_MISSING, Reason.HANDLER_MISSING),
        ("handler", Reason.HTTP_HOST_MISSING, Reason.HANDLER_MISSING),
        ("outgoing-handler", Reason.START_FAILED, None),
    ],
)
def test_outgoing_http_needs_neither_a_host_name_nor_a_handler(
    interface: str, failed: Reason, served: Reason | None
) -> None:
    """The router of a host reads the host name of the entry with wasi:http/incoming-handler only."""
    http = {"namespace": "wasi", "package": "http", "interfaces": [interface]}
    spec = {"components": [{"name": "worker", "image": "registry.test/app:1"}], "hostInterfaces": [http]}
    answer = ImageAnswer(ImageState.FOUND, types=ComponentTypes())
    for conditions, images, expected in (
        ([*steps(*ALL[:3]), condition("Sync", "False", ERROR, 10)], {}, failed),
        ([*steps(*ALL)], {ImageKey("apps", "registry.test/app:1"): answer}, served),
    ):
        snapshot = make_snapshot([make_host()], [make_workload(conditions=conditions, spec=spec)], images=images)
        assert outcome(workload_page(snapshot))[0] == expected


@pytest.mark.parametrize("changed", ["none", "another finalizer", "just deleted", "never placed", "host works"])
def test_the_operator_waits_only_for_a_host_that_does_not_answer_a_stop(changed: str) -> None:
    """As recorded in 10b: the operator stops one Workload at a time, and waits 30 s for a process that is stopped."""
    deleted = at(5 if changed == "just deleted" else 60)
    about = {"deletionTimestamp": deleted, "finalizers": ["runtime.wasmcloud.dev/workload-finalizer"]}
    if changed == "another finalizer":
        about["finalizers"] = ["other.example/finalizer"]
    placed = steps(*ALL) if changed != "never placed" else steps("Config", "HostSelection")
    stopped = make_workload("w1", placed, host="id-gone")
    stopped["metadata"] |= about
    hosts = [make_host()] + ([make_host("gone")] if changed == "host works" else [])
    snapshot = make_snapshot(hosts, [stopped, make_workload("w2", [], host="")])
    pages = [explain_workload(snapshot, item, Beside()) for item in snapshot.workloads]
    assert [page.cause and page.cause.reason for page in pages] == [Reason.DELETING, Reason.NOT_OBSERVED]
    assert ["id-gone" in page.headline for page in pages] == [changed == "none"] * 2


@pytest.mark.parametrize(("seen", "reason"), [(134.0, Reason.HEARTBEATS_STOPPED), (160.0, Reason.OPERATOR_UNAVAILABLE)])
def test_requests_that_time_out_delay_the_deletion_of_a_host(seen: float, reason: Reason) -> None:
    """With NATS away for 134 s, the real operator had deleted one of two Hosts, and waited for the other one."""
    host = make_host(seen=seen, conditions=[condition("Reporting", "False", DEADLINE), condition("Ready", "Unknown")])
    page = deployment_page(make_snapshot([host], [make_workload()]))
    assert outcome(page)[0] == reason, page.headline


@pytest.mark.parametrize(
    ("seen", "since", "reason"),
    [(5.0, 20.0, Reason.HOST_BUSY), (25.0, 20.0, Reason.HOST_NOT_READY), (5.0, 300.0, Reason.HOST_NOT_READY)],
    ids=["a heartbeat since", "none since", "for several requests"],
)
def test_a_host_that_answers_late_serves_its_workloads(seen: float, since: float, reason: Reason) -> None:
    """A real host pulled for 30 s from a registry that hung: the request of the operator ended after 5 s meanwhile."""
    late = [condition("Reporting", "False", DEADLINE, since), condition("Ready", "Unknown", age=since)]
    snapshot = make_snapshot([make_host(seen=seen, conditions=late), make_host("h2")], [make_workload()])
    assert outcome(explain_host(snapshot, snapshot.hosts[0], Beside()))[0] == reason
    workload = outcome(deployment_page(snapshot))
    assert workload == ((None, Health.HEALTHY) if reason is Reason.HOST_BUSY else (reason, Health.DEGRADED))
