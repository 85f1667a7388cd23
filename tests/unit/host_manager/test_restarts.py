"""Groups roll once when a Secret changes that their hosts were given."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from host_manager.domain.children import TemplateLabel, make_children, template_label_for
from host_manager.domain.decide import ApplyChild, completed_changes, decide
from host_manager.domain.environment import POD_LABEL
from host_manager.domain.group import ADOPTED, LATEST, HostGroupSpec, Inputs
from host_manager.domain.restarts import uses
from host_manager.domain.secret_changes import SecretChange, change_of, is_newer
from host_manager.domain.snapshot import Snapshot, misread, view_head
from host_manager.domain.views import GroupView, view_group
from host_manager.handlers import SecretReconciler
from host_manager.timings import Timings
from host_manager.waiting_changes import Changes
from support.cluster.kube_world import until
from support.lattices.host_groups import desired
from trellis import names
from trellis.events.secrets import SecretChanged, SecretUsers
from trellis.lattice.domain.hosts import Host, Sighting
from unit.host_manager.test_decide import snapshot, stored
from unit.host_manager.test_lattice import CLOCK, NOW, pod, sighting, view

MINE = "N-group-1"
REST = Timings().rest


def change(version: str = "7", *hosts: str, secret: str = "payments/db") -> SecretChange:
    return SecretChange(secret, version, frozenset(hosts or {MINE}))


def world(*changes: SecretChange, restarted_for: str = "", at: str = "", **more: Any) -> Snapshot:
    """Return a group with one pod, in which a host runs, and with what its pods say."""
    found = as_written(restarted_for, at=at)
    base = snapshot(
        children=found, pods=(pod(),), now=NOW, clock=CLOCK, lattice=view(sighting()), changes=changes, rest=REST
    )
    return replace(base, **{"head": replace(base.head, restart_on=names.RESTART_ON_CHANGE), **more})


def as_written(restarted_for: str, revision: int = LATEST, at: str = "") -> dict[Any, Any]:
    """Return the children of a group as we write them."""
    group = desired(revision).group
    template_label = TemplateLabel(revision, template_label_for(group, Inputs(), None, latest_requested=False).basis)
    wanted = HostGroupSpec(group, Inputs(), revision, restarted_for=restarted_for, restarted_at=at)
    made = make_children(wanted, template_label, budget=revision >= LATEST)
    return {(child["kind"], child["metadata"]["name"]): stored(child) for child in made}


def rolled(cache: Snapshot, annotation: str = names.ANNOTATION_RESTARTED_FOR) -> str | None:
    """Return what the pods are to say if they are written, None if they are left as they are."""
    written = [item.wanted for item in decide(cache) if isinstance(item, ApplyChild) and item.is_workload]
    if not written:
        return None
    annotations = written[0]["spec"]["template"]["metadata"].get("annotations", {})
    return str(annotations.get(annotation, ""))


def test_a_group_whose_host_was_given_the_secret_rolls() -> None:
    assert rolled(world(change())) == "payments/db=7"


def test_a_group_whose_hosts_were_not_given_it_does_not() -> None:
    cache = world(change("7", "N-another"))
    assert rolled(cache) is None
    assert completed_changes(cache) == list(cache.changes)


def test_secrets_that_change_together_make_one_roll() -> None:
    cache = world(change(), change("8", secret="shop/api"), change("9", "N-another", secret="shop/other"))
    assert rolled(cache) == "payments/db=7 shop/api=8"


@pytest.mark.parametrize("version", ["7", "6"])
def test_pods_with_the_current_annotation_are_not_restarted_again(version: str) -> None:
    cache = world(change(version), restarted_for="payments/db=7")
    assert rolled(cache) is None
    assert completed_changes(cache) == list(cache.changes)


def test_the_next_version_restarts_the_pods_and_keeps_other_annotations() -> None:
    cache = world(change("10"), restarted_for="payments/db=9 shop/api=8")
    assert rolled(cache) == "payments/db=10 shop/api=8"
    assert completed_changes(cache) == [], "it is not over before the pods say it"


def test_annotations_of_pods_stay_without_changes() -> None:
    assert rolled(world(restarted_for="payments/db=7")) is None
    other = world(restarted_for="payments/db=7")
    assert other.group is not None
    spec = other.group.spec.model_copy(update={"host_replicas": 4})
    assert rolled(replace(other, group=replace(other.group, spec=spec))) == "payments/db=7"


def test_an_adopted_group_rolls_without_getting_another_template() -> None:
    found = decide(replace(world(change()), children=as_written("", ADOPTED)))
    [written] = [item.wanted for item in found if isinstance(item, ApplyChild) and item.is_workload]
    assert written["metadata"]["labels"][names.LABEL_TEMPLATE].startswith(f"{ADOPTED}.")
    template = written["spec"]["template"]["metadata"]
    assert template["annotations"] == {
        names.ANNOTATION_RESTARTED_FOR: "payments/db=7",
        names.ANNOTATION_RESTARTED_AT: NOW,
    }


def ago(seconds: float) -> str:
    """Return a time before now, as pods say it."""
    return (datetime.fromisoformat(NOW) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_a_secret_that_changes_again_and_again_rolls_a_group_once_in_a_while() -> None:
    at, busy = NOW, world(change("8"), restarted_for="payments/db=7", at=NOW)
    rolls = 0
    for second in range(0, 3600, 10):
        now = (datetime.fromisoformat(NOW) + timedelta(seconds=second)).isoformat()
        cache = replace(busy, children=as_written(f"payments/db={7 + rolls}", at=at), now=now)
        cache = replace(cache, changes=(change(str(100 + second)),))
        if rolled(cache) is not None:
            rolls, at = rolls + 1, now
        else:
            assert completed_changes(cache) == [], "it waits"
    assert rolls == 3600 / REST - 1


RESTED = {
    "a moment ago": (ago(1), False),
    "just not long enough ago": (ago(REST - 1), False),
    "long enough ago": (ago(REST), True),
    "never": ("", True),
    "by a clock that is ahead": (ago(-60), True),
    "by somebody else": ("yesterday", True),
}


@pytest.mark.parametrize(("at", "rolls"), RESTED.values(), ids=RESTED)
def test_a_change_waits_until_the_hosts_have_rested(at: str, *, rolls: bool) -> None:
    cache = world(change("8", secret="shop/api"), restarted_for="payments/db=7", at=at)
    assert (rolled(cache) is not None) is rolls
    if rolls:
        assert rolled(cache) == "payments/db=7 shop/api=8"
        assert rolled(cache, names.ANNOTATION_RESTARTED_AT) == NOW
    assert completed_changes(cache) == [], "it is not forgotten"


def test_a_group_that_opts_out_while_a_change_waits_is_not_restarted() -> None:
    cache = world(change("8"), restarted_for="payments/db=7", at=ago(REST))
    without = replace(cache, head=replace(cache.head, restart_on=""))
    assert rolled(without) is None
    assert completed_changes(without) == list(cache.changes)


def test_a_write_while_a_change_waits_keeps_the_annotation_of_the_pods() -> None:
    cache = world(change("8"), restarted_for="payments/db=7", at=ago(60))
    assert cache.group is not None
    spec = cache.group.spec.model_copy(update={"host_replicas": 4})
    scaled = replace(cache, group=replace(cache.group, spec=spec))
    assert rolled(scaled) == "payments/db=7"
    assert rolled(scaled, names.ANNOTATION_RESTARTED_AT) == ago(60)


@pytest.mark.parametrize("lattice", [view(connected_since=None), view(settled=False)], ids=["away", "not asked yet"])
def test_while_the_lattice_is_unknown_no_restart_starts_or_ends(lattice: Any) -> None:
    cache = world(change(), lattice=lattice)
    assert uses(cache, cache.changes[0]) is None
    assert rolled(cache) is None
    assert completed_changes(cache) == []


def test_a_group_without_a_lattice_was_given_nothing() -> None:
    assert uses(world(change(), lattice=None), change()) is False


def test_hosts_of_adopted_pods_without_a_pod_name_count_for_all_pods() -> None:
    nameless = Sighting(Host("N-old", version="1", uptime_seconds=1, labels={}), CLOCK)
    mute = (pod(reports_pod=False),)
    assert uses(world(pods=mute, lattice=view(nameless)), change("7", "N-old")) is True
    assert uses(world(pods=mute, lattice=view(nameless)), change("7", "N-gone")) is False
    assert uses(world(lattice=view(sighting(), nameless)), change("7", "N-old")) is False, "these pods say theirs"
    others = Sighting(Host("N-other", version="1", uptime_seconds=1, labels={POD_LABEL: "other-1"}), CLOCK)
    assert uses(world(pods=mute, lattice=view(others)), change("7", "N-other")) is False


def test_a_host_that_started_since_is_not_rolled_for_it() -> None:
    new = sighting(ago=1, id="N-new", uptime_seconds=1)
    assert uses(world(lattice=view(sighting(), new)), change()) is False


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("b", "a", True), ("a", "a", False), ("a", "9", True)],
)
def test_versions_are_numbers_that_grow(version: str, than: str, newer: bool) -> None:
    assert is_newer(version, than) is newer


def test_pods_state_at_most_the_newest_secrets() -> None:
    many = [change(str(number), secret=f"shop/s{number}") for number in range(1, 101)]
    text = rolled(world(*many)) or ""
    assert len(text.split()) == 64
    assert "shop/s100=100" in text
    assert "shop/s36=36" not in text


def an_event(version: str, *hosts: str, name: str = "db", namespaces: tuple[str, ...] = ()) -> SecretChanged:
    groups = [SecretUsers(namespace=namespace, lattice="default") for namespace in namespaces]
    return SecretChanged(
        namespace="payments", name=name, uid="u", resource_version=version, hosts=list(hosts), groups=groups
    )


def test_replicas_report_their_own_hosts() -> None:
    changes = Changes()
    for event in (an_event("7", "N1", namespaces=("a",)), an_event("8", "N2", namespaces=("b",)), an_event("7", "N3")):
        changes.collect(change_of(event))
    [found] = changes.gathered.values()
    assert (found.version, found.hosts, found.namespaces) == ("8", {"N1", "N2", "N3"}, {"a", "b"})


def a_view(**more: Any) -> GroupView:
    return GroupView("u", 1, False, (), False, **more)


async def test_only_opted_in_groups_are_queued_and_the_event_completes_after_them() -> None:
    changes, woken = Changes(), []
    wanting = a_view(restart_on=names.RESTART_ON_CHANGE)
    groups = {"shop/a": wanting, "shop/b": a_view(), "till/c": wanting, "shop/d": replace(wanting, deleting=True)}
    follow = SecretReconciler(changes, groups, lambda key, _: woken.append(key), timings=Timings(gathering=0.05))
    for event in (an_event("7", MINE, namespaces=("shop",)), an_event("8", MINE, name="api", namespaces=("shop",))):
        changes.collect(change_of(event))
    runs = [asyncio.create_task(follow.run(f"payments/{name}", None)) for name in ("db", "api")]
    await until(lambda: bool(woken), "groups are asked")
    assert set(woken) == {"shop/a"}
    assert {item.secret for item in changes.of("shop/a")} == {"payments/db", "payments/api"}, "they are gathered"
    assert not any(run.done() for run in runs)
    changes.looked_at("shop/a", changes.of("shop/a"), [])
    async with asyncio.timeout(10):
        await asyncio.gather(*runs)
    assert changes.of("shop/a"), "what is not over waits on"


async def test_a_deleted_group_blocks_no_event() -> None:
    changes = Changes()
    changes.add_pending(change(), ["shop/a"])
    waiting = asyncio.create_task(changes.seen("payments/db"))
    await asyncio.sleep(0)
    changes.forget("shop/a")
    async with asyncio.timeout(10):
        await waiting
    assert changes.of("shop/a") == ()


def test_a_change_during_a_run_stays_pending() -> None:
    changes = Changes()
    changes.add_pending(change("7"), ["shop/a"])
    seen = changes.of("shop/a")
    changes.add_pending(change("8"), ["shop/a"])
    changes.looked_at("shop/a", seen, seen)
    assert [item.version for item in changes.of("shop/a")] == ["8"]


@pytest.mark.parametrize(("value", "reported"), [("secretChange", False), ("", False), ("secretchange", True)])
def test_an_invalid_annotation_is_reported(value: str, reported: bool) -> None:
    annotations = {names.ANNOTATION_RESTART_ON: value}
    metadata = {"namespace": "g", "name": "group", "uid": "u", "resourceVersion": "1", "annotations": annotations}
    assert view_group({"metadata": metadata}).restarts_on_secrets is (value == "secretChange")
    problems = misread(view_head({"metadata": metadata}))
    assert bool(problems) is reported
    assert all(not problem.blocks and "secretChange" in problem.message for problem in problems)
