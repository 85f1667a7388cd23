"""The arguments of a Job on its node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.domain.resources import Task
from provisioner.domain.tasks import Former, Rules, task_of, undo_of
from trellis.crds.shim import RemovalPolicy
from trellis.installer_api.spec import Source, parse_spec
from trellis.provisioning.ledger import Entry, target_of_slot
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM, NodeView, Target, encode_digests
from trellis_dev.testing.builders import DIGEST, a_job, a_node, a_shim, verified_node

RULES = Rules("crun-wasm", "registry/installer", require_checksum=True, allow_http=False)
SPIN = a_shim()
SLIGHT = a_shim("slight")
UNPINNED = (Source("https://example.com/new", "amd64"),)


def having(**digests: str) -> NodeView:
    digest = Target(tuple(sorted(digests.items()))).digest
    return replace(verified_node(a_node(), digest, "handler"), shims=encode_digests(digests))


def task(node: NodeView, *shims: ShimView, **rules: Any) -> Task:
    held_to = replace(RULES, **rules)
    target = target_of(node, shims, DIGEST, auto_provision=False, require_checksum=held_to.require_checksum)
    assert target is not None
    return task_of(node, target, {shim.name: shim for shim in shims}, held_to)


def summary(of: Task) -> dict[str, tuple[str, ...]]:
    """Return what the installer reads: by Shim the locations of its sources."""
    assert of.spec is not None
    read = parse_spec(of.spec.to_json(), removal=of.removes)
    return {shim.name: tuple(source.location for source in shim.sources) for shim in read.shims}


def test_a_job_gets_only_the_changes() -> None:
    with_spin = having(spin="old", slight=digest_of(SLIGHT))
    assert summary(task(with_spin, SPIN, SLIGHT)) == {"spin": ("https://example.com/spin",)}


def digest_of(shim: ShimView) -> str:
    return dict(task(a_node(), shim).target.shims)[shim.name]


@pytest.mark.parametrize("broken", [replace(SPIN, sources=UNPINNED), replace(SPIN, sources=(), generation=2)])
def test_a_new_version_that_is_refused_keeps_no_other_shim_from_its_nodes(broken: ShimView) -> None:
    of = task(having(spin="old"), broken, SLIGHT)
    assert dict(of.target.shims)["spin"] == "old"
    assert summary(of) == {"slight": ("https://example.com/slight",)}
    assert of.handlers == ("slight",)


def test_the_installation_matches_the_target_even_without_checksums() -> None:
    changed = replace(SPIN, sources=UNPINNED)
    node = having(spin="old")
    target = target_of(node, [changed, SLIGHT], DIGEST, auto_provision=False, require_checksum=False)
    held = target_of_slot(node, target, Entry("d", 1, 0, ("slight",)))
    assert held is not None
    of = task_of(node, held, {"spin": changed, "slight": SLIGHT}, replace(RULES, require_checksum=False))
    assert summary(of) == {"slight": ("https://example.com/slight",)}


@pytest.mark.parametrize(
    "shims",
    [
        pytest.param((), id="its object is gone"),
        pytest.param((replace(SPIN, deleting=True, sources=()),), id="it has no source any more"),
        pytest.param((replace(SPIN, deleting=True, sources=UNPINNED),), id="its source has no checksum"),
        pytest.param((replace(SPIN, deleting=True, invalid="broken"),), id="it cannot be read"),
    ],
)
def test_a_removal_needs_nothing_but_the_name(shims: tuple[ShimView, ...]) -> None:
    of = task(having(spin="old"), *shims)
    assert of.removes
    assert summary(of) == {"spin": ()}
    assert of.spec is not None
    assert [shim.owner for shim in of.spec.shims] == ["shim/spin"]
    assert of.removed_handlers == (("spin",) if shims else ())


def test_every_shim_has_an_owner_of_its_own() -> None:
    of = task(a_node(), SPIN, SLIGHT)
    assert of.spec is not None
    assert {shim.owner for shim in of.spec.shims} == {"shim/spin", "shim/slight"}


def test_a_handler_that_another_shim_keeps_is_not_expected_to_go() -> None:
    rival = a_shim("rival", handler="spin", deleting=True)
    of = task(having(spin="1", rival="2"), SPIN, rival)
    assert summary(of) == {"rival": ()}
    assert of.removed_handlers == ()


def test_force_is_for_the_shims_that_ask_for_it() -> None:
    forced = replace(SPIN, deleting=True, removal_policy=RemovalPolicy.FORCE)
    refusing = replace(SLIGHT, deleting=True)
    first = task(having(spin="1", slight="1"), forced, refusing)
    assert (summary(first), first.force) == ({"spin": ()}, True)
    both = task_of(having(spin="1", slight="1"), Target(()), {"spin": forced, "slight": refusing}, RULES)
    assert not both.force
    second = task(having(slight="1"), forced, refusing)
    assert (summary(second), second.force) == ({"slight": ()}, False)


def test_the_legacy_image_gets_no_arguments() -> None:
    node = replace(a_node(), opt_in="true")
    assert task(node) == Task(Target(((KWASM, DIGEST),)), handlers=("crun-wasm",))


def test_a_shim_that_a_job_added_is_removed_by_name() -> None:
    tried = a_job(a_node(), installs="spin=2")
    of = undo_of(a_node(), tried, ("spin",), "why", Former(shims={"spin": SPIN}))
    assert (of.removes, of.force, summary(of), of.removed_handlers) == (True, True, {"spin": ()}, ("spin",))


def test_a_former_version_is_installed_again() -> None:
    spec = task(a_node(), SPIN).spec
    assert spec is not None
    tried = a_job(a_node(), installs="spin=2")
    of = undo_of(having(spin="1"), tried, ("spin",), "why", Former(spec.shims))
    assert (of.removes, of.force, summary(of)) == (False, False, {"spin": ("https://example.com/spin",)})
