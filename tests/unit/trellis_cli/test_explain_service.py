"""The reason for which a Service of an application has endpoints, or has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service_reflector.domain.ownership import Undecided
from support.suite.naming import lacking
from trellis import names
from trellis.lattice.domain.addresses import Family
from trellis.lattice.domain.cached_listeners import write_cached_listeners
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.manifests import Listener, Protocol
from trellis.lattice.domain.service_views import PodView, ServiceView, SliceView
from trellis.limits.compact import compact
from trellis.read_model.explain.page import Explanation, Leader, Line
from trellis.read_model.explain.service import (
    PRESERVED,
    REFLECTOR,
    ServiceSnapshot,
    Warned,
    explain_no_service,
    explain_service,
)
from trellis.read_model.explain.subject import Absence, Beside
from trellis.read_model.reading.explained import view_warning
from trellis_cli.status.reflected_services import ReflectedServices, counted, unreached
from trellis_cli.status.rows import reflected_services_part

LISTENER = Listener("httpserver", 8080, Protocol.HTTP, Family.ANY, ((("zone", "a"),),), ("shop-httpserver",))
SERVICE = ServiceView(
    "g",
    "shop",
    "uid-shop",
    "1",
    "shop",
    "east/1",
    stored=compact(
        {
            "annotations": {names.ANNOTATION_CACHED_LISTENERS: write_cached_listeners((LISTENER,))},
            "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 8080}]},
        }
    ),
)
GROUP = GroupView("g", "group", "uid-group", "2026-01-01T00:00:00Z", deleting=False, lattice="east/1")
POD = PodView("g", "host-1", "uid-1", "group", "node", ("10.0.0.1",), True, False, (("zone", "a"),))
ENDPOINT = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": {"uid": "uid-1"}}
SLICE = SliceView("g", "shop-x-0", "uid-slice", "1", "shop", "uid-shop", "IPv4", compact({"endpoints": [ENDPOINT]}))
LED = Beside([Leader(REFLECTOR, "pod-1", "nothing follows")])
UNLED = Beside([Leader(REFLECTOR, "", "nothing follows")])
WELL = ServiceSnapshot(SERVICE, [SLICE], [GROUP], [POD], beside=LED)
EMPTY = replace(SLICE, served=b"{}")


def troubles(page: Explanation) -> list[str]:
    return [f"{line.about}: {line.shown}" for line in page.lines if line.ok is False]


def test_nothing_is_wrong_with_a_service_that_leads_to_a_host() -> None:
    page = explain_service(WELL)
    lines = page.lines
    assert troubles(page) == []
    assert (page.subject, page.cause) == ("service g/shop", None)
    assert [line.about for line in lines] == [
        "service", "application", "groups", "endpoints", "host", "service-reflector",
    ]  # fmt: skip
    assert "10.96.0.7" in lines[0].text
    assert "lattice east" in lines[1].text


REASONS: dict[str, tuple[ServiceSnapshot, str, list[str]]] = {
    "no pods": (replace(WELL, pods=[], slices=[EMPTY]), "hosts", []),
    "not ready": (replace(WELL, pods=[replace(POD, serving=False)], slices=[EMPTY]), "host", ["g/host-1"]),
    "ending": (replace(WELL, pods=[replace(POD, terminating=True)], slices=[EMPTY]), "host", ["g/host-1"]),
    "other labels": (replace(WELL, pods=[replace(POD, labels=())], slices=[EMPTY]), "host", ["g/host-1", "zone=a"]),
    "does not run it": (replace(WELL, slices=[EMPTY]), "host", ["g/host-1"]),
    "no slice": (replace(WELL, slices=[]), "endpoints", ["0 of 0"]),
    "no group": (replace(WELL, groups=[], slices=[EMPTY]), "groups", ["lattice east"]),
    "nobody leads": (replace(WELL, beside=UNLED), "service-reflector", ["trellis run service-reflector"]),
    "somebody else's": (replace(WELL, service=replace(SERVICE, application="")), "service", ["g/shop"]),
    "being deleted": (replace(WELL, service=replace(SERVICE, deleting=True)), "service", ["g/shop"]),
    "told": (
        replace(WELL, warnings=[Warned("g/group", "LoopbackAddress", "application shop of lattice east: it listens")]),
        "event",
        ["LoopbackAddress on g/group"],
    ),
}


@pytest.mark.parametrize(("world", "about", "named"), REASONS.values(), ids=REASONS)
def test_each_problem_is_named(world: ServiceSnapshot, about: str, named: list[str]) -> None:
    shown = [line.shown for line in explain_service(world).lines if line.about == about and line.ok is False]
    assert [lacking(item, *named) for item in shown] == [[]]


LOOPBACK = [
    Warned(group, "LoopbackAddress", "application shop of lattice east: it listens on 127.0.0.1:80")
    for group in ("g/group", "g/second")
]
CAUSES: dict[str, tuple[ServiceSnapshot, list[str]]] = {
    "a host that is not ready": (
        replace(WELL, pods=[replace(POD, serving=False)], slices=[EMPTY]),
        ["g/host-1", "10.0.0.1", "kubectl describe pod -n g host-1"],
    ),
}


def preserved(reason: str, message: str, time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """An Event on the Service, as service_reflector reports why it stays."""
    about = {"kind": "Service", "uid": SERVICE.uid}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about, "lastTimestamp": time}


MISSING = preserved(Undecided.GROUP_MISSING, "Services stay: they are deleted unless there is one within 300 s")
TYPO = preserved(Undecided.LATTICE_UNREACHABLE, "host group g/group has another lattice", "2026-01-01T00:01:00Z")


def test_a_service_preserved_without_a_host_group_shows_its_event() -> None:
    kept = replace(WELL, groups=[replace(GROUP, lattice="east/2")], beside=replace(LED, events=[MISSING, TYPO]))
    assert explain_service(kept).cause is None, "it has ready endpoints"
    kept = replace(kept, slices=[EMPTY])
    cause = explain_service(kept).cause
    assert cause is not None
    assert cause.text == f"{TYPO['reason']}: {TYPO['message']}", "the newest"
    noted = replace(kept.beside, notes=[Line("rights", "this account may not list pods")])
    assert explain_service(replace(kept, beside=noted)).cause == cause
    assert explain_service(replace(kept, groups=[GROUP])).cause != cause, "a group has its lattice now"
    unknown = explain_service(replace(kept, groups=None)).cause
    assert unknown is not None
    assert TYPO["message"] not in unknown.text


def test_the_reasons_for_which_services_are_kept_are_those_of_service_reflector() -> None:
    assert {*Undecided} - {Undecided.NO_ANSWER, Undecided.GROUPS_UNKNOWN} == PRESERVED


ABSENT: dict[str, tuple[Absence, list[Warned], Beside, list[str]]] = {
    "a loopback address": (
        Absence(alike=["g/shop-2"]),
        LOOPBACK,
        LED,
        ["LoopbackAddress", "g/group, g/second", LOOPBACK[0].message],
    ),
    "a service that does not run": (Absence(), [], UNLED, ["trellis run service-reflector"]),
    "nothing else": (Absence(), [], LED, ['Service "shop"', "namespace g", "kubectl get services -A"]),
}


@pytest.mark.parametrize(("world", "named"), CAUSES.values(), ids=CAUSES)
def test_the_first_line_names_the_cause(world: ServiceSnapshot, named: list[str]) -> None:
    page = explain_service(world)
    assert page.cause is not None
    assert lacking(page.headline, *named) == []


@pytest.mark.parametrize(("absence", "warnings", "beside", "named"), ABSENT.values(), ids=ABSENT)
def test_the_first_line_names_why_there_is_no_service(
    absence: Absence, warnings: list[Warned], beside: Beside, named: list[str]
) -> None:
    page = explain_no_service(("shop", "g"), absence, warnings, beside)
    assert page.subject == "service shop"
    assert page.cause is not None
    assert lacking(page.headline, *named) == []


def test_an_old_event_is_no_problem_once_the_service_has_a_host() -> None:
    assert explain_service(replace(WELL, warnings=LOOPBACK)).cause is None


def test_one_host_of_several_that_is_no_endpoint_is_no_trouble() -> None:
    idle = replace(POD, name="host-2", uid="uid-2", serving=False)
    assert explain_service(replace(WELL, pods=[POD, idle])).cause is None


def test_of_many_hosts_those_that_are_no_endpoints_are_shown_and_the_rest_counted() -> None:
    pods = [replace(POD, name=f"host-{number:03}", uid=f"uid-{number}") for number in range(200)]
    page = explain_service(replace(WELL, pods=pods))
    hosts = [line.text for line in page.lines if line.about == "host"]
    assert len(hosts) == 11
    assert not any(": an endpoint" in text for text in hosts[:10])
    assert lacking(hosts[-1], "190", "1") == []


def test_events_of_other_objects_are_left_out() -> None:
    others = [Warned("g/group", "NoAddress", "application shopping of lattice east: no address")]
    assert troubles(explain_service(replace(WELL, warnings=others))) == []


def test_an_edited_annotation_is_tolerated() -> None:
    edited = replace(
        SERVICE,
        stored=compact({**SERVICE.manifest(), "annotations": {names.ANNOTATION_CACHED_LISTENERS: "{"}, "spec": {}}),
    )
    assert explain_service(replace(WELL, service=edited, slices=[EMPTY])).cause is not None


def test_only_warnings_about_groups_are_read() -> None:
    about = {"kind": "WasmCloudHostConfig", "namespace": "g", "name": "group"}
    event = {"type": "Warning", "involvedObject": about, "reason": "NoAddress", "message": "m"}
    assert view_warning(event) == Warned("g/group", "NoAddress", "m")
    assert view_warning({**event, "type": "Normal"}).group == ""
    assert view_warning({"type": "Warning", "involvedObject": {"kind": "Pod"}}).group == ""


def test_services_that_lead_nowhere_are_counted_and_named() -> None:
    idle = replace(SLICE, served=compact({"endpoints": [{**ENDPOINT, "conditions": {"ready": False}}]}))
    assert counted([SERVICE, replace(SERVICE, application="")], [SLICE], "x") == ReflectedServices(1, [], "x")
    assert counted([SERVICE], [idle], "").without_endpoints == ["g/shop"]
    assert reflected_services_part(ReflectedServices(1, [], "x")).problem == ""
    assert reflected_services_part(ReflectedServices()).problem == "", "nothing is there to be looked after"
    assert "trellis run service-reflector" in reflected_services_part(ReflectedServices(1, [], "")).problem
    many = reflected_services_part(ReflectedServices(9, [f"g/{number}" for number in range(9)], "x")).problem
    assert "g/0, g/1, g/2, g/3, g/4 and 4 more" in many


def test_an_application_that_gets_no_service_is_counted_until_it_has_one_or_is_deleted() -> None:
    group = {"metadata": {"namespace": "g", "name": "group"}, "status": {"apps": [{"name": "shop"}]}}
    known = {"type": "ApplicationsKnown", "status": "True"}
    deleted = group | {"status": {"apps": [], "conditions": [known]}}
    reason = "LoopbackAddress: it listens on 127.0.0.1:80"
    assert unreached(LOOPBACK, [], [group]) == {"g/shop": reason}
    assert unreached(LOOPBACK, [], [deleted]) == {}, "its lattice has it no more"
    assert unreached(LOOPBACK, [SERVICE], [group]) == {}
    assert unreached(LOOPBACK, [], []) == {}, "its hosts are gone"
    part = reflected_services_part(ReflectedServices(leader="x", unreached={"g/shop": reason}))
    assert lacking(part.problem, f"g/shop: {reason}", "trellis explain service/shop -n g") == []
    assert lacking(part.text, "1", "service-reflector", "x") == []


REFUSED = Warned("g/group", "WriteRefused", "cannot CREATE Service g/shop: 422 Invalid: every Service needs a label")


def test_a_service_that_the_api_server_refuses_is_named_by_explain_and_status() -> None:
    absence, beside = Absence(), Beside([Leader(REFLECTOR, "pod", "")])
    page = explain_no_service(("shop", "g"), absence, [REFUSED], beside)
    assert page.cause is not None
    assert "WriteRefused" in page.headline
    assert "hint" not in [line.about for line in page.lines]
    for name, namespace in (("shop", "elsewhere"), ("sho", "g")):
        other = explain_no_service((name, namespace), absence, [REFUSED], beside)
        assert "hint" in [line.about for line in other.lines]
    apps = {"conditions": [{"type": "ApplicationsKnown", "status": "True"}], "apps": [{"name": "shop"}]}
    group = {"metadata": {"namespace": "g", "name": "group"}, "status": apps}
    assert [*unreached([REFUSED], [], [group])] == ["g/shop"]
    assert unreached([REFUSED], [SERVICE], [group]) == {}
