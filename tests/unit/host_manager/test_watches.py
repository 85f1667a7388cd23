"""Watches: one for each namespace, and no decision about a namespace before all of it was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest

from host_manager.domain.views import BudgetView, GroupView
from host_manager.gather import Cache
from host_manager.watches import Enqueue, Watches, on_budget
from support.cluster.kube_world import until
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.resources import DEPLOYMENTS, NAMESPACES
from trellis.kube.transport import HttpRequest
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube, status_reply


@asynccontextmanager
async def running(watches: Watches) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(informer.run()) for informer in watches]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def made(*namespaces: str) -> FakeKube:
    kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
    for name in namespaces:
        kube.put(NAMESPACES, {"metadata": {"name": name}})
    return kube


def watches_of(kube: FakeKube, *places: str) -> Watches:
    return Watches(kube, Cache(kube, {}, {}, 60.0), places, Enqueue(Mock(), Mock(), Mock(), Mock()))


def all_deployments_of(namespace: str) -> Callable[[HttpRequest], bool]:
    """Pick the lists of all Deployments, which is how another operator is found."""

    def picks(request: HttpRequest) -> bool:
        return request.path == DEPLOYMENTS.path(namespace) and "labelSelector" not in request.query

    return picks


async def test_nothing_is_asked_outside_of_the_namespaces_that_are_named() -> None:
    kube = made("a", "b")
    watches = watches_of(kube, "a", "b")
    async with running(watches):
        await until(lambda: watches.knows("a/group") and watches.knows("b/group"), "both are seen")
        requested = {request.path for request in kube.api.requests}
        assert all("/namespaces/a/" in path or "/namespaces/b/" in path for path in requested)
        assert not watches.knows("c/group")
        assert not watches.covers("c/group")


async def test_a_namespace_in_which_another_operator_would_not_be_seen_is_not_known() -> None:
    kube = made("a", "b")
    kube.answer_next(10**6, lambda _: status_reply(403, "Forbidden", "no"), when=all_deployments_of("b"))
    watches = watches_of(kube, "a", "b")
    async with running(watches):
        await until(lambda: watches.knows("a/group"), "the other one is seen")
        await until(lambda: all(watch.answered.is_set() for watch in watches), "everything was answered")
        assert not watches.knows("b/group")
        kube.api.fault = None
        await until(lambda: watches.knows("b/group"), "the right was given")


async def test_the_whole_cluster_is_known_once_all_of_it_was_seen() -> None:
    watches = watches_of(made())
    assert watches.covers("any/group")
    assert not watches.knows("any/group")
    async with running(watches):
        await until(lambda: watches.knows("any/group"), "it is seen")


@pytest.mark.parametrize(
    ("name", "before", "woken"),
    [
        ("other", False, ["a/first", "a/second"]),
        ("other", True, ["a/first", "a/second"]),
        ("first", False, []),
        ("first", True, ["a/first"]),
    ],
)
def test_a_disruption_budget_requires_full_reads_of_the_groups_that_it_may_select(
    name: str, before: bool, woken: list[str]
) -> None:
    group = GroupView("uid", 1, deleting=False, finalizers=(), wants_latest=False)
    keys = ("a/first", "a/second", "b/third")
    cache = Cache(made(), dict.fromkeys(keys, group), {}, 60.0, last_reads=dict.fromkeys(keys, Mock()))
    found: list[str] = []
    former, present = BudgetView("a", name, None), BudgetView("a", name, (("app", "web"),))
    kind, old = (ChangeKind.MODIFIED, former) if before else (ChangeKind.ADDED, None)
    on_budget(cache, found.append)(Change(kind, f"a/{name}", old, present))
    assert found == woken
    assert [key for key in keys if key not in cache.last_reads] == woken
