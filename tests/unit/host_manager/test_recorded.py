"""Children are those that wasmcloud-operator makes, but for the credentials that it shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from host_manager.domain.group import ADOPTED, Group, HostGroupSpec, Inputs
from host_manager.domain.resources import (
    make_config_map,
    make_nats_conf,
    make_role,
    make_role_binding,
    make_service,
    make_service_account,
    make_workload,
)
from host_manager.domain.template import make_pod_template
from support.lattices.host_groups import CASES, DATA, LEAKED, as_applied, children, recorded_spec, tidy
from trellis.crds.host_config import WasmCloudHostConfigSpec

GENERATED = [json.loads(line) for line in (DATA / "cases.jsonl").read_text().splitlines()]
SECRETS: dict[str, tuple[str, ...]] = {"ca1": ("a.crt", "ca.crt")}
CONFIG_MAPS: dict[str, tuple[str, ...]] = {"ca2": ("corp.crt",)}


def without_leak(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded workload with references where it shows credentials."""
    for variable in workload["spec"]["template"]["spec"]["containers"][1]["env"]:
        if variable["name"] in LEAKED:
            key = "username" if variable["name"] == LEAKED[0] else "password"
            del variable["value"]
            variable["valueFrom"] = {"secretKeyRef": {"name": "full-registry", "key": key}}
    return workload


@pytest.mark.parametrize("case", CASES)
def test_the_workload_is_the_recorded_one_without_the_credentials_it_shows(case: str) -> None:
    made = make_workload(recorded_spec(case))
    assert tidy(made) == as_applied(without_leak(children(case)[made["kind"]]))


@pytest.mark.parametrize("case", CASES)
def test_all_that_belongs_to_it_is_as_recorded(case: str) -> None:
    desired = recorded_spec(case)
    group = desired.group
    made = [
        make_config_map(desired),
        make_service_account(group),
        make_role(group),
        make_role_binding(group),
        make_service(group),
    ]
    for child in made:
        assert child == as_applied(children(case)[child["kind"]])


def test_no_credentials_are_shown() -> None:
    shown = json.dumps(make_workload(recorded_spec("full"))) + repr(recorded_spec("full"))
    assert "p1" not in shown
    assert "u1" not in shown


def generated_group(case: dict[str, Any]) -> HostGroupSpec:
    authorities = (case["spec"].get("certificates") or {}).get("authorities") or []
    keys = tuple(
        (
            SECRETS.get(authority.get("secret", {}).get("secretName"), ()),
            CONFIG_MAPS.get(authority.get("configMap", {}).get("name"), ()),
        )
        for authority in authorities
    )
    group = Group(case["name"], "g", "uid", WasmCloudHostConfigSpec.model_validate(case["spec"]))
    return HostGroupSpec(group, Inputs(credentials=case["credentials"], authorities=keys), ADOPTED)


def without_account(template: dict[str, Any]) -> Any:
    """Leave out the account, which has two names for one thing: the API server fills in the other."""
    pod = {key: value for key, value in template["spec"].items() if key not in {"serviceAccount", "serviceAccountName"}}
    return tidy(template | {"spec": pod})


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: str(case["name"]))
def test_a_generated_group_has_the_pods_that_its_former_owner_gives_it(case: dict[str, Any]) -> None:
    desired = generated_group(case)
    template = make_pod_template(desired)
    assert without_account(template) == without_account(case["template"])
    assert template["spec"]["serviceAccountName"] == template["spec"]["serviceAccount"] == case["name"]
    assert make_nats_conf(desired) == case["conf"]
