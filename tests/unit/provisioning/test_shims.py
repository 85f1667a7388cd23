"""The nodes of a Shim, and its installation there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.crds.shim import RemovalPolicy
from trellis.installer_api.spec import Source, WantedShim
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.placement import Placement, Toleration
from trellis.provisioning.shims import (
    Refusal,
    ShimView,
    Signature,
    Taint,
    Verification,
    is_for,
    view_shim,
    wanted_shim_for,
)
from trellis.provisioning.views import KWASM, NodeView, decode_digests, encode_digests
from trellis_dev.testing.builders import a_node, a_shim, opted_in, verified_node

POOL = (("pool", "wasm"),)
SPIN = a_shim()
SLIGHT = a_shim("slight")
OF_SPIN = (("spin", "provisioned"),)


def has_spin(shims: str) -> NodeView:
    """Return a node with these Shims and without labels."""
    return replace(verified_node(a_node(), verified="handler"), shims=shims)


def digest_of(shim: ShimView, architecture: str = "amd64") -> str:
    wanted = wanted_shim_for(shim, architecture, require_checksum=True)
    assert isinstance(wanted, WantedShim)
    return wanted.digest


@pytest.mark.parametrize(
    ("shim", "node", "expected"),
    [
        pytest.param(SPIN, a_node(), True, id="no selector is every Linux node"),
        pytest.param(SPIN, a_node(operating_system="windows"), False, id="no selector and Windows"),
        pytest.param(a_shim(selector=POOL), a_node(labels=POOL), True, id="the selector matches"),
        pytest.param(a_shim(selector=POOL), a_node(labels=(("pool", "x"),)), False, id="the selector does not match"),
        pytest.param(a_shim(selector=POOL), a_node(labels=POOL, opt_in="false"), False, id="false keeps all off"),
        pytest.param(a_shim(selector=POOL), a_node(labels=POOL, opt_in="yes"), False, id="so does nonsense"),
        pytest.param(a_shim(default=True), a_node(), False, id="the default is not for every node"),
        pytest.param(a_shim(default=True), opted_in(a_node()), True, id="the default is for opted-in nodes"),
        pytest.param(a_shim(default=True, selector=POOL), a_node(labels=POOL), True, id="and for what it selects"),
        pytest.param(a_shim(selector=OF_SPIN), has_spin("spin=1"), True, id="the label of a Shim that is drained"),
        pytest.param(a_shim(selector=OF_SPIN), has_spin("spin=?1"), False, id="of one that is not verified"),
        pytest.param(a_shim(selector=OF_SPIN + POOL), has_spin("spin=1"), False, id="another label does not match"),
        pytest.param(a_shim(deleting=True), a_node(), False, id="being deleted"),
        pytest.param(a_shim(invalid="x"), a_node(), False, id="unreadable"),
    ],
)
def test_a_shim_is_for_a_node_when(shim: ShimView, node: NodeView, expected: bool) -> None:
    assert is_for(shim, node, auto_provision=False) is expected


def test_another_pull_secret_makes_no_other_version() -> None:
    source = Source("oci://r/x@sha256:" + "ab" * 32)
    with_secret = replace(source, pull_secret="team-a")
    assert digest_of(a_shim(sources=(source,))) == digest_of(a_shim(sources=(with_secret,)))


def test_auto_provisioning_gives_every_node_the_default_shims() -> None:
    assert is_for(a_shim(default=True), a_node(), auto_provision=True)
    assert not is_for(a_shim(default=True), a_node(opt_in="false"), auto_provision=True)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"handler": "other"}, False, id="another handler"),
        pytest.param({"options": (("SystemdCgroup", "true"),)}, False, id="an option"),
        pytest.param({"sources": (Source("https://x", "amd64", "cd" * 32),)}, False, id="another source"),
        pytest.param(
            {"sources": (*SPIN.sources, Source("https://x", "arm64", "cd" * 32))}, True, id="another platform"
        ),
        pytest.param({"max_update": CountOrPercent(3)}, True, id="the rollout limit"),
        pytest.param({"runtime_class": "other"}, True, id="the RuntimeClass"),
        pytest.param({"generation": 7}, True, id="the generation"),
    ],
)
def test_a_version_is_what_is_installed_on_that_platform(change: dict[str, Any], same: bool) -> None:
    assert (digest_of(replace(SPIN, **change)) == digest_of(SPIN)) is same


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param((Source("https://x"),), Refusal.CHECKSUM_MISSING, id="no checksum"),
        pytest.param((Source("oci://r/x:v1"),), Refusal.CHECKSUM_MISSING, id="an image by tag"),
        pytest.param((Source("https://x", "arm64", "ab" * 32),), Refusal.NO_SOURCE, id="another platform only"),
        pytest.param((), Refusal.NO_SOURCE, id="no source at all"),
    ],
)
def test_a_shim_is_refused_for(sources: tuple[Source, ...], expected: Refusal) -> None:
    assert wanted_shim_for(a_shim(sources=sources), "amd64", require_checksum=True) is expected


@pytest.mark.parametrize(
    "location",
    [
        "https://example.com/shim@sha256:" + "ab" * 32,
        "https://example.com/?x=oci://r/x@sha256:" + "ab" * 32,
        "oci://r/x@sha256:ab",
        "oci://r/x@sha256:" + "ab" * 33,
        "oci://r/x@sha256:" + "xy" * 32,
        "oci://r/x@sha256:" + "ab" * 32 + "@sha256:1",
    ],
)
def test_a_location_that_only_looks_like_a_digest_pins_nothing(location: str) -> None:
    assert (
        wanted_shim_for(a_shim(sources=(Source(location),)), "amd64", require_checksum=True) is Refusal.CHECKSUM_MISSING
    )


def test_an_image_by_digest_is_pinned_and_checksums_may_be_waived() -> None:
    by_digest = a_shim(sources=(Source("oci://r/x@sha256:" + "ab" * 32),))
    assert isinstance(wanted_shim_for(by_digest, "x86_64", require_checksum=True), WantedShim)
    assert isinstance(
        wanted_shim_for(a_shim(sources=(Source("https://x"),)), "amd64", require_checksum=False), WantedShim
    )


def test_a_platforms_own_source_comes_before_one_for_all() -> None:
    shim = a_shim(sources=(Source("https://arm", "arm64", "ab" * 32), Source("https://any", None, "cd" * 32)))
    for architecture, location in (("aarch64", "https://arm"), ("amd64", "https://any")):
        wanted = wanted_shim_for(shim, architecture, require_checksum=True)
        assert isinstance(wanted, WantedShim)
        assert [source.location for source in wanted.sources] == [location]


digests = st.dictionaries(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
)


@given(digests)
def test_digests_are_read_back_as_they_were_written(of: dict[str, str]) -> None:
    assert decode_digests(encode_digests(of)) == of


@pytest.mark.parametrize("value", [None, "", "  ", "spin", "=x", "spin="])
def test_edited_digests_are_no_digests(value: str | None) -> None:
    assert decode_digests(value) == {}


def manifest(spec: dict[str, Any] | None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "spin", "uid": "u", "resourceVersion": "1", **metadata}, "spec": spec}


FULL: dict[str, Any] = {
    "nodeSelector": {"pool": "wasm"},
    "containerdRuntimeOptions": {"SystemdCgroup": "true"},
    "fetchStrategy": {
        "platforms": [{"os": "linux", "arch": "x86_64", "location": "https://a", "sha256": "ab" * 32}],
        "anonHttp": {"location": "https://b"},
        "oci": {
            "image": "r/x@sha256:1",
            "path": "bin/shim",
            "pullSecret": {"name": "team-a"},
            "signature": "c2ln",
            "signedPayload": "cGF5",
        },
        "image": {"path": "/shim"},
    },
    "runtimeClass": {
        "name": "spin-v2",
        "handler": "spin",
        "overhead": {"podFixed": {"cpu": 1, "memory": "16Mi"}},
        "scheduling": {
            "nodeSelector": {"tier": "edge"},
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
        },
    },
    "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": "10%", "pauseOnFailures": 3}},
    "paused": True,
    "verify": {"canary": False, "canaryImage": "r/c", "timeout": "1m30s"},
    "removalPolicy": "Force",
    "startupTaint": {"key": "k", "effect": "NoSchedule"},
}


def test_a_shim_is_read_with_all_its_fields() -> None:
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    assert view_shim(manifest(FULL, generation=4, labels={"trellis.dev/kwasm-default": "true"}, **created)) == ShimView(
        name="spin",
        uid="u",
        resource_version="1",
        generation=4,
        created_at=1_767_225_600,
        selector=POOL,
        default=True,
        handler="spin",
        runtime_class="spin-v2",
        overhead=(("cpu", "1"), ("memory", "16Mi")),
        placement=Placement((("tier", "edge"),), (Toleration("spot", "Exists", "", "NoExecute", 0),)),
        sources=(
            Source("https://a", "amd64", "ab" * 32),
            Source("https://b"),
            Source("oci://r/x@sha256:1", member="bin/shim", pull_secret="team-a"),
            Source("/shim"),
        ),
        signatures=(None, None, Signature("c2ln", "cGF5"), None),
        options=(("SystemdCgroup", "true"),),
        max_update=CountOrPercent(10, is_percent=True),
        pause_on_failures=3,
        paused=True,
        verification=Verification(False, "r/c", 90.0),
        removal_policy=RemovalPolicy.FORCE,
        startup_taint=Taint("k", None, "NoSchedule"),
    )


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (None, "spec: missing"),
        ({**FULL, "runtimeClass": {"name": "x"}}, "spec.runtimeClass.handler: Field required"),
        ({**FULL, "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 0}}}, "at least 1"),
        ({**FULL, "nodeSelector": {"spin": "provisioned"}}, "spec.nodeSelector: spin "),
        (
            {**FULL, "runtimeClass": {"name": "x", "handler": "x", "scheduling": {"nodeSelector": {"spin": "no"}}}},
            "spec.runtimeClass.scheduling.nodeSelector: spin ",
        ),
        (
            {**FULL, "fetchStrategy": {"anonHttp": {"location": "ftp://x"}}},
            "spec: sources[0].location: 'ftp://x'",
        ),
        ({**FULL, "runtimeClass": {"name": "x", "handler": "runc"}}, "'runc'"),
    ],
    ids=[
        *("empty", "a field is missing", "zero nodes at a time", "by its own label", "pods by its own label"),
        *("no address", "not a shim"),
    ],
)
def test_a_shim_that_cannot_be_read_states_the_reason(spec: dict[str, Any] | None, reason: str) -> None:
    assert reason in view_shim(manifest(spec)).invalid


def test_a_shim_cannot_be_called_as_the_legacy_installer_is() -> None:
    read = view_shim({"metadata": {"name": KWASM, "uid": "u", "resourceVersion": "1"}, "spec": FULL})
    assert read.invalid.startswith("metadata.name: kwasm ")


def test_pods_and_nodes_still_know_a_shim_that_cannot_be_read() -> None:
    read = view_shim(manifest({**FULL, "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 0}}}))
    assert (read.handler, read.runtime_class) == ("spin", "spin-v2")
    assert view_shim(manifest({**FULL, "runtimeClass": ["x"]})).handler == ""


def test_recreate_is_all_at_once() -> None:
    strategy = {"type": "recreate", "rolling": {"maxUpdate": 1}}
    assert view_shim(manifest({**FULL, "rolloutStrategy": strategy})).recreate
