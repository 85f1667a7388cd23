"""The view of a WasmController and of its spec."""

from __future__ import annotations

from typing import Any

import pytest

from controller_host.domain.views import Bounds, ControllerView, digest, parse_bytes, read_spec, view_controller
from trellis.crds.wasm_controllers import Module

SPEC: dict[str, Any] = {
    "module": {"configMap": {"name": "mirror", "key": "module.wasm"}},
    "serviceAccountName": "mirror",
    "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
}


def a_view(spec: dict[str, Any] | None = None, **changes: Any) -> ControllerView:
    metadata = {"namespace": "team-a", "name": "mirror", "uid": "u1", "generation": 3, "resourceVersion": "7"}
    manifest = {"metadata": metadata | changes.pop("metadata", {}), "spec": SPEC | (spec or {})}
    return view_controller(manifest | changes)


def test_an_omitted_field_has_a_default() -> None:
    wanted = read_spec(a_view())
    assert wanted.bounds == Bounds(64 * 2**20, 1.0, 30.0, 50, 100)
    assert wanted.suspend_after == 30
    assert not wanted.paused
    assert wanted.config == b"{}"
    assert wanted.module() == Module.model_validate(SPEC["module"])


def test_a_given_field_applies() -> None:
    limits = {"memory": "1Gi", "cpuPerCall": "250ms", "timePerCall": "1m30s", "callsPerSecond": 7}
    wanted = read_spec(
        a_view(
            {
                "limits": limits | {"hostCallsPerSecond": 8},
                "idle": {"suspendAfter": "0s"},
                "paused": True,
                "secretRefs": [{"name": "b"}, {"name": "a"}],
            }
        )
    )
    assert wanted.bounds == Bounds(2**30, 0.25, 90, 7, 8)
    assert wanted.suspend_after == 0
    assert wanted.paused
    assert wanted.refs == ((), ("a", "b"))


def test_a_pinned_one_is_never_suspended() -> None:
    assert read_spec(a_view({"idle": {"policy": "Pinned", "suspendAfter": "1s"}})).suspend_after is None


def test_a_new_status_makes_no_other_view_and_a_new_spec_does() -> None:
    assert a_view() == a_view(status={"calls": 7}, metadata={"resourceVersion": "8"})
    assert a_view() != a_view({"paused": True})
    assert a_view() != a_view(metadata={"uid": "u2"})
    assert a_view() != a_view(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})


def test_an_invalid_spec_names_the_field() -> None:
    with pytest.raises(ValueError, match=r"spec\.watches"):
        read_spec(a_view({"watches": 7}))
    assert a_view({"serviceAccountName": None}).account == ""


@pytest.mark.parametrize(
    ("module", "fixed"),
    [
        ({"configMap": {"name": "a", "key": "b"}}, False),
        ({"configMap": {"name": "a", "key": "b"}, "sha256": "0" * 64}, True),
        ({"oci": {"image": f"registry.example/a:1@sha256:{'0' * 64}"}}, True),
        ({"oci": {"image": "registry.example/a:1"}}, False),
    ],
)
def test_a_source_with_a_digest_cannot_change(module: dict[str, Any], fixed: bool) -> None:
    assert read_spec(a_view({"module": module})).is_fixed is fixed


@pytest.mark.parametrize(
    ("text", "size"), [(65536, 65536), ("64Ki", 65536), ("1.5Mi", 1572864), ("2G", 2 * 10**9), ("0", 0)]
)
def test_quantities_are_bytes(text: int | str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "64mb", "-1", "1e3", "Mi"])
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="64Mi"):
        parse_bytes(text)


def test_parts_of_a_digest_are_kept_apart() -> None:
    assert digest(b"ab", b"c") != digest(b"a", b"bc")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"limits": {"memory": "1e999"}}, "limits.memory: needs a quantity"),
        ({"limits": {"cpuPerCall": "1 h"}}, "limits.cpuPerCall"),
        ({"limits": {"timePerCall": "x"}}, "limits.timePerCall"),
        ({"idle": {"suspendAfter": "5 m"}}, "idle.suspendAfter"),
    ],
)
def test_a_limit_that_cannot_be_read_is_named(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"^spec\.{field}"):
        read_spec(a_view(spec))


def test_a_status_nested_too_deeply_is_ignored() -> None:
    assert a_view(status=nested(300)).status == b"{}"


@pytest.mark.parametrize("levels", [201, 300, 5000])
def test_a_configuration_that_is_nested_too_deep_is_refused(levels: int) -> None:
    with pytest.raises(ValueError, match=r"^spec\.config\b.*\b200\b"):
        read_spec(a_view({"config": nested(levels)}))
    assert read_spec(a_view({"config": nested(200)}))


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found
