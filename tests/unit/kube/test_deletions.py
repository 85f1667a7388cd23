"""Deleted Shims that the circuit breaker decides about, and references to Shims that cannot be listed."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.config.timings import DeletionTimings
from trellis.kube.mass_deletions import STANDS, Deletions, deleted_alone
from trellis.kube.resources import DEFINITIONS, SHIMS
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import KWASM
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_job, a_node, a_shim

TOGETHER = 60.0


def deleted(name: str, at: int) -> ShimView:
    return a_shim(name, deleting=True, deleted_at=at)


@pytest.mark.parametrize(
    ("shims", "definition", "alone"),
    [
        pytest.param([a_shim()], STANDS, set(), id="none is deleted"),
        pytest.param([deleted("spin", 1000), a_shim("slight")], STANDS, {"spin"}, id="one of two"),
        pytest.param([deleted("spin", 1000)], STANDS, {"spin"}, id="the only one"),
        pytest.param([deleted("spin", 1000), deleted("slight", 1060)], STANDS, set(), id="two within a minute"),
        pytest.param(
            [deleted("spin", 1000), deleted("slight", 1061)], STANDS, {"spin", "slight"}, id="two, one after the other"
        ),
        pytest.param(
            [deleted("c", 5000), deleted("a", 1000), deleted("b", 1000)], STANDS, {"c"}, id="two and, much later, one"
        ),
        pytest.param([deleted("spin", 1000)], 1000.0, set(), id="with its CRD, in the same second"),
        pytest.param([deleted("spin", 1003)], 1000.0, set(), id="with its CRD, seconds later"),
        pytest.param([deleted("spin", 900)], 1000.0, {"spin"}, id="before its CRD"),
        pytest.param([deleted("spin", 1000)], None, set(), id="nothing is known of the CRD"),
    ],
)
def test_a_shim_is_deleted_alone_if_neither_its_crd_nor_another_shim_is(
    shims: list[ShimView], definition: float | None, alone: set[str]
) -> None:
    assert deleted_alone(shims, definition, TOGETHER) == alone


def a_definition(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": SHIMS.definition, **metadata},
        "spec": {},
    }


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_crd_is_read_once_a_deletion_and_the_deletion_settles() -> None:
    kube, clock, spin = FakeKube(), Clock(), deleted("spin", 1000)
    made = await kube.create(DEFINITIONS, a_definition())
    deletions = Deletions(kube, SHIMS, DeletionTimings(settle=2.0), clock)
    await deletions.look([a_shim("spin")])
    assert deletions.alone([spin]) == set()
    await deletions.look([spin])
    assert deletions.alone([spin]) == {"spin"}
    assert deletions.settles_in(spin) == 2.0
    await kube.delete(DEFINITIONS, SHIMS.definition, uid=made["metadata"]["uid"])
    clock.now = 2.0
    await deletions.look([spin])
    assert deletions.alone([spin]) == {"spin"}
    assert deletions.settles_in(spin) == 0.0
    assert deletions.settles_in(a_shim("slight")) == 0.0
    assert (deletions.lasts(spin.uid), deletions.lasts("another")) == (2.0, 0.0)


async def test_shims_whose_crd_cannot_be_found_are_no_decision_about_one_shim() -> None:
    deletions, spin = Deletions(FakeKube(), SHIMS), deleted("spin", 1000)
    await deletions.look([spin])
    assert deletions.alone([spin]) == set()


@pytest.mark.parametrize("known", [True, False])
def test_shims_are_needed_while_a_node_or_a_job_names_one(known: bool) -> None:
    marks = ShimReferences(lambda: known)
    assert (marks.unknown, marks.needed()) == (False, None)
    node = a_node(shims=f"{KWASM}=1")
    marks.take_node(node.name, node)
    marks.take_job(None, a_job(node))
    assert (marks.unknown, marks.needed()) == (False, None), "the legacy image needs no Shim"
    marks.take_node(node.name, a_node(shims="spin=1"))
    assert marks.unknown is not known
    assert marks.needed() is not None
    marks.take_node(node.name, None)
    assert not marks.unknown
    job = a_job(node, installs="spin=1")
    marks.take_job(None, job)
    assert marks.unknown is not known
    assert marks.needed() is not None
    marks.take_job(job, None)
    assert (marks.unknown, marks.needed()) == (False, None)
