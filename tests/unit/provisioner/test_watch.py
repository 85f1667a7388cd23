"""Relevant changes of the targets of nodes, and of a RuntimeClass."""

from __future__ import annotations

import pytest

from provisioner.cache import Cache
from provisioner.domain.shim_resources import make_runtime_class, view_runtime_class
from provisioner.settings import Settings
from provisioner.watches import on_runtime_class, targets_differ
from trellis.kube.informer import Change, ChangeKind
from trellis.provisioning.shims import ShimView
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_shim

SPIN = a_shim()


@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        pytest.param(None, SPIN, True, id="a new Shim"),
        pytest.param(SPIN, None, True, id="a Shim that is gone"),
        pytest.param(SPIN, a_shim(generation=2), True, id="another spec"),
        pytest.param(SPIN, a_shim(deleting=True), True, id="a Shim to be deleted"),
        pytest.param(SPIN, a_shim(finalizers=("trellis.dev/shim",)), False, id="our own finalizer"),
    ],
)
def test_nodes_may_be_to_have_something_else(old: ShimView | None, new: ShimView | None, *, differ: bool) -> None:
    assert targets_differ(Change(ChangeKind.MODIFIED, "spin", old, new)) is differ


def test_a_changed_runtime_class_wakes_each_shim_that_has_its_name() -> None:
    shims = {shim.name: shim for shim in (a_shim("a", runtime_class="wasm"), a_shim("b", runtime_class="wasm"), SPIN)}
    woken: list[str] = []
    handle = on_runtime_class(Cache(FakeKube(), Settings(), {}, shims), woken.append)
    manifest = make_runtime_class(shims["a"])
    manifest["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    handle(Change(ChangeKind.DELETED, "wasm", view_runtime_class(manifest), None))
    assert woken == ["a", "b"]
