"""What counts as a change of what nodes are to have."""

from __future__ import annotations

import pytest

from provisioner.watches import targets_differ
from trellis.kube.informer import Change, ChangeKind
from trellis.provisioning.shims import ShimView
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
