"""The target of each node, by all Shims together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trellis.crds.shim import RemovalPolicy
from trellis.installer_api.spec import Source, WantedShim
from trellis.provisioning.shims import Refusal, ShimView, wanted_shim_for
from trellis.provisioning.targets import class_rival_of, label_rival_of, rival_of, target_of, wanted_on, wanted_shim_on
from trellis.provisioning.views import KWASM, NodeView, Target, encode_digests
from trellis_dev.testing.builders import DIGEST, a_node, a_shim, opted_in, verified_node

POOL = (("pool", "wasm"),)
SPIN = a_shim()
SLIGHT = a_shim("slight")


def digest_of(shim: ShimView) -> str:
    wanted = wanted_shim_for(shim, "amd64", require_checksum=True)
    assert isinstance(wanted, WantedShim)
    return wanted.digest


def having(node: NodeView, digests: dict[str, str]) -> NodeView:
    digest = Target(tuple(sorted(digests.items()))).digest
    return replace(verified_node(node, digest, "handler"), shims=encode_digests(digests))


def targeting(node: NodeView, *shims: ShimView, require_checksum: bool = True) -> dict[str, str] | None:
    target = target_of(node, shims, DIGEST, auto_provision=False, require_checksum=require_checksum)
    return dict(target.shims) if target is not None else None


def test_the_legacy_image_is_for_opted_in_nodes_until_there_is_a_default_shim() -> None:
    node = opted_in(a_node())
    assert wanted_on(node, [], auto_provision=False) == {KWASM}
    assert wanted_on(node, [a_shim(default=True)], auto_provision=False) == {"spin"}
    assert wanted_on(node, [a_shim(selector=POOL)], auto_provision=False) == {KWASM}


def test_a_node_is_to_have_all_shims_that_are_for_it() -> None:
    assert targeting(a_node(), SPIN, SLIGHT) == {"spin": digest_of(SPIN), "slight": digest_of(SLIGHT)}


def test_removals_come_first() -> None:
    node = having(a_node(), {"spin": "old", "slight": "kept"})
    assert targeting(node, SLIGHT) == {"slight": "kept"}
    assert targeting(node) == {}
    assert targeting(having(a_node(), {"slight": "kept"}), SLIGHT) == {"slight": digest_of(SLIGHT)}


def test_a_version_that_is_refused_leaves_what_is_there() -> None:
    unpinned = a_shim(sources=(Source("https://x", "amd64"),))
    assert targeting(having(a_node(), {"spin": "old"}), unpinned) == {"spin": "old"}
    assert targeting(a_node(), unpinned) is None


def test_the_legacy_runtime_is_never_removed() -> None:
    assert targeting(verified_node(a_node())) is None


def test_a_node_with_the_legacy_image_alone_keeps_its_digest() -> None:
    assert target_of(opted_in(a_node()), [], DIGEST, auto_provision=False, require_checksum=True) == Target(
        ((KWASM, DIGEST),)
    )
    assert Target(((KWASM, DIGEST),)).digest == DIGEST


@pytest.mark.parametrize("shim", [a_shim(invalid="spec: broken"), a_shim(invalid="x", selector=POOL)])
def test_a_shim_that_cannot_be_read_stays_where_it_is_and_goes_nowhere(shim: ShimView) -> None:
    assert targeting(having(a_node(), {"spin": "old"}), shim) == {"spin": "old"}
    assert targeting(having(a_node(), {"spin": "old"}), shim, SLIGHT) == {"spin": "old", "slight": digest_of(SLIGHT)}
    assert targeting(a_node(), shim) is None


def test_a_shim_that_cannot_be_read_goes_when_it_is_deleted_or_the_node_opts_out() -> None:
    node = having(a_node(), {"spin": "old"})
    assert targeting(node, a_shim(invalid="x", deleting=True)) == {}
    assert targeting(replace(node, opt_in="false"), a_shim(invalid="x")) == {}
    assert targeting(replace(node, opt_in="true"), a_shim(invalid="x", default=True)) == {"spin": "old"}


def test_a_default_shim_that_cannot_be_read_does_not_bring_the_legacy_image_back() -> None:
    assert targeting(opted_in(a_node()), a_shim(default=True, invalid="x")) is None


def test_a_broken_shim_called_like_the_legacy_installer_wants_nothing() -> None:
    assert wanted_on(verified_node(a_node()), [a_shim(KWASM, invalid="reserved")], auto_provision=False) == frozenset()


def test_without_a_legacy_image_nodes_get_shims_alone() -> None:
    node = opted_in(a_node())
    assert target_of(node, [], None, auto_provision=False, require_checksum=True) is None
    has_both = having(opted_in(a_node()), {KWASM: "old", "spin": digest_of(SPIN)})
    assert target_of(has_both, [SPIN], None, auto_provision=False, require_checksum=True) == Target(
        ((KWASM, "old"), ("spin", digest_of(SPIN)))
    )


def test_the_legacy_image_does_not_run_beside_shims_and_no_label_claims_it() -> None:
    node = opted_in(a_node())
    assert targeting(node, SPIN) == {"spin": digest_of(SPIN)}
    assert targeting(having(node, {KWASM: "old"}), SPIN) == {KWASM: "old", "spin": digest_of(SPIN)}
    assert targeting(having(node, {KWASM: "old"})) == {KWASM: DIGEST}


HANDLER = {"handler": "spin"}
ZEBRA = a_shim("zebra", **HANDLER)
OLDER: dict[str, Any] = {"created_at": 1000}
YOUNGER: dict[str, Any] = {"created_at": 1001}


@pytest.mark.parametrize(
    ("spin", "zebra", "installed", "winner"),
    [
        pytest.param(YOUNGER, OLDER, None, "zebra", id="the older one gets it"),
        pytest.param(OLDER, OLDER, None, "spin", id="of equally old ones the first by name gets it"),
        pytest.param(OLDER, YOUNGER, "zebra", "zebra", id="the one that is there keeps it"),
        pytest.param(YOUNGER, OLDER, "spin", "spin", id="the one that is there keeps it from an older one"),
    ],
)
def test_a_handler_is_one_shims(
    spin: dict[str, Any], zebra: dict[str, Any], installed: str | None, winner: str
) -> None:
    item, another = replace(SPIN, **spin), replace(ZEBRA, **zebra)
    node = having(a_node(), {installed: "old"}) if installed else a_node()
    owner, loser = (item, another) if winner == "spin" else (another, item)
    for shims in ([item, another], [another, item]):
        assert targeting(node, *shims) == {winner: digest_of(owner)}
        assert rival_of(loser, node, shims, auto_provision=False) == winner
        assert rival_of(owner, node, shims, auto_provision=False) == ""
        refused = wanted_shim_on(loser, node, shims, auto_provision=False, require_checksum=True)
        assert refused is Refusal.HANDLER_CONFLICT


OF_RCM = a_shim("spin-v2", selector=(("spin", "true"),))
LABELLED = a_node(labels=(("spin", "true"), ("wasm", "true")))


@pytest.mark.parametrize(
    ("shim", "node", "rival"),
    [
        pytest.param(SPIN, LABELLED, "spin-v2", id="the node is selected by the label"),
        pytest.param(a_shim(selector=(("wasm", "true"),)), LABELLED, "spin-v2", id="by another label of the node, too"),
        pytest.param(SPIN, a_node(labels=(("wasm", "true"),)), "", id="a node that the other one is not for"),
        pytest.param(SPIN, having(LABELLED, {"spin": "old"}), "", id="it is there already"),
        pytest.param(a_shim("other"), LABELLED, "", id="another label"),
        pytest.param(OF_RCM, LABELLED, "", id="the other one itself"),
    ],
)
def test_a_shim_does_not_overwrite_the_label_by_which_another_selects(
    shim: ShimView, node: NodeView, rival: str
) -> None:
    """Otherwise its installation would remove the other one from the node."""
    shims = [shim, OF_RCM]
    assert label_rival_of(shim, node, shims, auto_provision=False) == rival
    wanted = wanted_shim_on(shim, node, shims, auto_provision=False, require_checksum=True)
    assert (wanted is Refusal.LABEL_CONFLICT) is bool(rival)


def test_a_shim_that_needs_another_one_on_its_nodes_is_no_conflict() -> None:
    beside = a_shim("beside", selector=(("spin", "provisioned"),))
    node = a_node(labels=(("spin", "provisioned"),))
    assert label_rival_of(SPIN, node, [SPIN, beside], auto_provision=False) == ""


def test_a_second_shim_with_the_handler_stops_no_rollout_of_the_first() -> None:
    first, second = a_shim("zebra", **OLDER, **HANDLER), a_shim("aardvark", **YOUNGER, **HANDLER)
    done, waits = having(a_node("done"), {"zebra": digest_of(first)}), a_node("waits")
    for node in (done, waits):
        assert targeting(node, first, second) == targeting(node, first) == {"zebra": digest_of(first)}


def test_the_handler_is_free_once_its_shim_is_off_the_node() -> None:
    deleting = a_shim(deleting=True)
    assert targeting(having(a_node(), {"spin": "old"}), deleting, ZEBRA) == {}
    assert targeting(a_node(), deleting, ZEBRA) == {"zebra": digest_of(ZEBRA)}


def test_shims_with_one_handler_on_different_nodes_are_no_rivals() -> None:
    elsewhere = replace(ZEBRA, selector=POOL)
    assert rival_of(SPIN, a_node(), [SPIN, elsewhere], auto_provision=False) == ""


def test_force_for_one_shim_is_not_used_on_the_pods_of_another() -> None:
    forced = a_shim(deleting=True, removal_policy=RemovalPolicy.FORCE)
    node = having(a_node(), {"spin": "1", "slight": "2", "kept": "3"})
    kept = a_shim("kept", invalid="x")
    assert targeting(node, forced, a_shim("slight", deleting=True), kept) == {"slight": "2", "kept": "3"}
    after = having(a_node(), {"slight": "2", "kept": "3"})
    assert targeting(after, forced, a_shim("slight", deleting=True), kept) == {"kept": "3"}


@pytest.mark.parametrize(
    ("others", "rival"),
    [
        pytest.param([], "", id="alone"),
        pytest.param([a_shim("a", created_at=9, runtime_class="spin")], "a", id="an older one"),
        pytest.param([a_shim("a", created_at=10, runtime_class="spin")], "a", id="equally old, and first by name"),
        pytest.param([a_shim("z", created_at=10, runtime_class="spin")], "", id="equally old, and last by name"),
        pytest.param([a_shim("a", created_at=11, runtime_class="spin")], "", id="a younger one"),
        pytest.param([a_shim("a", created_at=9, runtime_class="spin", deleting=True)], "", id="a deleted one"),
        pytest.param([a_shim("a", created_at=9, runtime_class="spin", invalid="bad")], "", id="an invalid one"),
        pytest.param([a_shim("a", created_at=9)], "", id="of another RuntimeClass"),
    ],
)
def test_a_runtime_class_is_that_of_the_oldest_shim(others: list[ShimView], rival: str) -> None:
    shim = a_shim(created_at=10)
    assert class_rival_of(shim, [*others, shim]) == rival
