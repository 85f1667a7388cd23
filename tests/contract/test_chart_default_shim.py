"""The default Shim of the chart: the runtime in the installer's image, for nodes that opt in by the annotation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendered import ChartRefusedError, Manifest, notes, of, only, rendered
from support.suite.naming import lacking
from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import ShimView, is_for, view_shim, wanted_shim_for
from trellis_dev.commands.images import chart_values
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.wasmshim import IN_IMAGE, SHIM
from trellis_dev.testing.builders import a_node, opted_in

NAME = "trellis-default-shim"
SUMS = {"amd64": "ab" * 32, "arm64": "cd" * 32}
GIVEN: dict[str, Any] = {"defaultShim": {"sha256": SUMS}}
WITH_IMAGE: dict[str, Any] = {"services": {"provisioner": {"settings": {"TRELLIS_INSTALLER_IMAGE": "x:1"}}}}


def of_the_shim(**values: Any) -> list[Manifest]:
    label = "app.kubernetes.io/component"
    return [item for item in rendered(**values) if item["metadata"].get("labels", {}).get(label) == "default-shim"]


def shim_of(**values: Any) -> ShimView:
    [text] = [item["data"]["shim.yaml"] for item in of_the_shim(**values) if item["kind"] == "ConfigMap"]
    manifest = yaml.safe_load(text)
    return view_shim(manifest | {"metadata": {"uid": "u", "resourceVersion": "1", **manifest["metadata"]}})


def job_of(**values: Any) -> Manifest:
    [job] = [item for item in of_the_shim(**values) if item["kind"] == "Job"]
    return job


@pytest.mark.parametrize("arch", SUMS)
def test_an_annotated_node_gets_the_runtime_of_the_image_by_its_checksum(arch: str) -> None:
    shim = shim_of(**GIVEN)
    assert not shim.invalid
    node = a_node(architecture=arch)
    assert is_for(shim, opted_in(node), auto_provision=False)
    assert is_for(shim, node, auto_provision=True)
    assert not is_for(shim, node, auto_provision=False)
    wanted = wanted_shim_for(shim, arch, require_checksum=True)
    assert isinstance(wanted, WantedShim)
    [source] = wanted.sources
    assert (source.location, source.sha256) == (f"{IN_IMAGE}/{SHIM}", SUMS[arch])


def test_the_installer_image_has_the_runtime_at_the_path_of_the_shim() -> None:
    dockerfile = Path(__file__).parents[2] / "deploy/images/installer.Dockerfile"
    assert f"COPY --from=build {IN_IMAGE} {IN_IMAGE}\n" in dockerfile.read_text(encoding="utf-8")


def test_the_values_of_images_that_were_built_here_have_the_default_shim() -> None:
    shim = shim_of(**chart_values(SUMS["amd64"]))
    assert [(source.arch, source.sha256) for source in shim.sources] == [(architecture(), SUMS["amd64"])]


def test_one_architecture_is_enough() -> None:
    shim = shim_of(defaultShim={"sha256": {"arm64": SUMS["arm64"]}})
    assert [source.arch for source in shim.sources] == ["arm64"]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="without a checksum"),
        pytest.param({"defaultShim": {"enabled": False, "sha256": SUMS}}, id="disabled"),
        pytest.param(GIVEN | WITH_IMAGE, id="with an image of KWasm"),
        pytest.param(GIVEN | {"kwasmOperator": {"installerImage": "x:1"}}, id="with an image in values of KWasm"),
        pytest.param(GIVEN | {"services": only("nodeWatcher")}, id="without provisioner"),
    ],
)
def test_there_is_no_default_shim(values: dict[str, Any]) -> None:
    assert of_the_shim(**values) == []


@pytest.mark.parametrize("wrong", [{"sha256": {"amd64": "ab"}}, {"sha256": {"riscv64": "ab" * 32}}, {"maxUpdate": 0}])
def test_a_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ChartRefusedError, match="defaultShim"):
        rendered(defaultShim=wrong)


def test_the_job_applies_it_and_may_do_nothing_else() -> None:
    found = of(of_the_shim(**GIVEN))
    [container] = job_of(**GIVEN)["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["trellis", "shims", "apply", "/etc/trellis/shim/shim.yaml"]
    rules = found["ClusterRole", "", NAME]["rules"]
    assert {rule["apiGroups"][0] for rule in rules} == {"runtime.spinkube.dev"}
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in rules] == [
        (["create"], None),
        (["get", "patch"], ["wasi"]),
    ]


def test_a_changed_shim_or_pod_has_another_job_because_jobs_are_immutable() -> None:
    name = job_of(**GIVEN)["metadata"]["name"]
    assert job_of(**GIVEN)["metadata"]["name"] == name
    for changed in ({"defaultShim": {"sha256": SUMS, "maxUpdate": 1}}, GIVEN | {"image": {"tag": "2"}}):
        assert job_of(**changed)["metadata"]["name"] != name


@pytest.mark.parametrize(("values", "expected_text"), [(GIVEN, "wasi"), ({}, "defaultShim.sha256")])
def test_the_notes_have_the_next_step(tmp_path: Path, values: dict[str, Any], expected_text: str) -> None:
    assert lacking(notes(tmp_path, **values), expected_text, names.ANNOTATION_OPT_IN) == []
    assert names.ANNOTATION_OPT_IN not in notes(tmp_path, **values, **WITH_IMAGE)
