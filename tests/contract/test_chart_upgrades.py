"""An upgrade that Kubernetes would refuse half-way, or that would take the objects of another release, is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.chart.rendered import ChartRefusedError, Manifest, only
from support.chart.upgraded import annotated, installed, upgraded

SMALL: dict[str, Any] = {"enabled": True, "storage": {"size": "1Gi"}}
NONE: dict[str, Any] = {"services": only(), "crds": {"install": False}}
JAEGER: dict[str, Any] = {"enabled": True}
STORED: dict[str, Any] = {"enabled": True, "storage": {"type": "badger"}}
FAST = {"storageClassName": "fast"}
INSTALLERS: dict[str, Any] = {"services": only("nodeWatcher"), "crds": {"install": False}}
CRDS: dict[str, Any] = {"services": only("provisioner"), "installers": {"createNamespace": False}}
VOLUMES = {
    "the size for the bus": ({"nats": {"storage": {"size": "3Gi"}}}, {"nats": {"storage": {"size": "4Gi"}}}),
    "the class for the bus": ({"nats": {}}, {"nats": {"storage": FAST}}),
    "the size for lattices": ({"latticeNats": SMALL}, {"latticeNats": {**SMALL, "storage": {"size": "2Gi"}}}),
    "a volume for Jaeger": ({"jaeger": JAEGER}, {"jaeger": STORED}),
    "no volume for Jaeger": ({"jaeger": STORED}, {"jaeger": JAEGER}),
}


@pytest.mark.parametrize(("before", "after"), VOLUMES.values(), ids=VOLUMES)
def test_another_volume_of_a_stateful_set_is_refused(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    present, [value] = installed(**NONE, **before), after
    with pytest.raises(ChartRefusedError, match=rf"{value}\.storage: .* --cascade=orphan"):
        upgraded(tmp_path, present, **NONE, **after)
    assert upgraded(tmp_path, present, **NONE, **before)


def test_the_same_size_in_another_unit_is_no_change(tmp_path: Path) -> None:
    present = installed(**NONE, nats={"storage": {"size": "3Gi"}})
    assert upgraded(tmp_path, present, **NONE, nats={"storage": {"size": "3072Mi"}})


@pytest.mark.parametrize(("has", "wanted"), [(1, 3), (3, 1)])
def test_another_number_of_servers_is_refused(tmp_path: Path, has: int, wanted: int) -> None:
    present = installed(**NONE, nats={"replicas": has})
    with pytest.raises(ChartRefusedError, match=rf"nats\.replicas: .*nats\.replicas={has}\b"):
        upgraded(tmp_path, present, **NONE, nats={"replicas": wanted})


def test_another_name_of_an_installation_is_refused_with_the_present_one(tmp_path: Path) -> None:
    present = installed(nameOverride="first")
    for other in ({"nameOverride": "second"}, {}):
        with pytest.raises(ChartRefusedError, match=r"nameOverride: .* set nameOverride=first\b"):
            upgraded(tmp_path, present, **other)
    assert upgraded(tmp_path, present, nameOverride="first")


FOREIGN = {
    "of no release": {"meta.helm.sh/release-name": "", "meta.helm.sh/release-namespace": ""},
    "of another release": {"meta.helm.sh/release-name": "other"},
    "of this name in another namespace": {"meta.helm.sh/release-namespace": "other"},
}


@pytest.mark.parametrize(
    ("values", "kind", "value"),
    [
        (INSTALLERS, "Namespace", "installers.createNamespace"),
        (CRDS, "CustomResourceDefinition", "crds.install"),
    ],
)
@pytest.mark.parametrize("owner", FOREIGN.values(), ids=FOREIGN)
def test_an_object_of_the_whole_cluster_that_another_release_has_is_refused(
    tmp_path: Path, values: dict[str, Any], kind: str, value: str, owner: dict[str, str]
) -> None:
    own: list[Manifest] = [item for item in installed(**values) if item["kind"] == kind]
    assert own
    with pytest.raises(ChartRefusedError, match=f"{value}: "):
        upgraded(tmp_path, [annotated(item, owner) for item in own], **values)
    adopted = {**values, "crds": {**values.get("crds", {}), "adopt": True}}
    assert upgraded(tmp_path, [annotated(item, owner) for item in own], **adopted)
    assert upgraded(tmp_path, own, **values)
