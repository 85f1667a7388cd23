"""The name of a release, its version in files, and the names in its chart and its provenance."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.plan import (
    CHART,
    IMAGES,
    STAMPED,
    Material,
    Release,
    Version,
    image_values,
    pinned_values,
    provenance,
    runtime_values,
    stamped,
)

ROOT = Path(__file__).parents[3]
COMMIT = "a" * 40
ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


def a_release(
    version: str = "1.2.3", registry: str = "registry.example:5000/team", epoch: str = "1700000000"
) -> Release:
    return Release.parse(version, registry, COMMIT, epoch)


@pytest.mark.parametrize(("text", "python"), [("1.2.3", "1.2.3"), ("0.10.0", "0.10.0"), ("1.2.3-rc.4", "1.2.3rc4")])
def test_a_version_has_a_form_for_tags_and_one_for_python(text: str, python: str) -> None:
    assert Version.parse(text) == Version(text, python)


@pytest.mark.parametrize("text", ["", "v1.2.3", "1.2", "01.2.3", "1.2.3-rc.0", "1.2.3-beta", "1.2.3+build", "1.2.3\n"])
def test_another_text_is_not_a_version(text: str) -> None:
    with pytest.raises(ReleaseError, match="VERSION="):
        Version.parse(text)


@pytest.mark.parametrize(
    "registry", ["", "https://registry.example", "registry.example/Team", "a b", "registry.example/"]
)
def test_a_wrong_registry_is_named(registry: str) -> None:
    with pytest.raises(ReleaseError, match="REGISTRY="):
        a_release(registry=registry)


@pytest.mark.parametrize("epoch", ["", "-1", "now", "1e9"])
def test_a_wrong_time_is_named(epoch: str) -> None:
    with pytest.raises(ReleaseError, match="SOURCE_DATE_EPOCH="):
        a_release(epoch=epoch)


def test_names_are_below_the_registry() -> None:
    release = a_release("1.2.3-rc.1")
    assert release.tagged("charts/trellis") == "registry.example:5000/team/charts/trellis:1.2.3-rc.1"
    assert release.pinned("trellis", ONE) == f"registry.example:5000/team/trellis@{ONE}"
    assert release.created == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("file", STAMPED)
def test_each_file_of_the_checkout_takes_the_version(file: str) -> None:
    text = (ROOT / file).read_text()
    version = Version.parse("9.8.7-rc.6")
    changed = stamped(file, text, version)
    differing = [line for line in changed.splitlines() if line not in text.splitlines()]
    assert differing
    assert all("9.8.7" in line for line in differing)
    assert stamped(file, changed, version) == changed


def test_the_chart_and_its_application_have_the_same_version() -> None:
    file = f"{CHART}/Chart.yaml"
    chart = yaml.safe_load(stamped(file, (ROOT / file).read_text(), Version.parse("2.0.0")))
    assert (chart["version"], chart["appVersion"]) == ("2.0.0", "2.0.0")


def test_the_development_tools_need_the_same_version() -> None:
    file = "devtools/pyproject.toml"
    assert '"trellis-wasm==2.0.0rc1"' in stamped(file, (ROOT / file).read_text(), Version.parse("2.0.0-rc.1"))


def test_a_file_without_a_version_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"Chart\.yaml"):
        stamped(f"{CHART}/Chart.yaml", "name: trellis\n", Version.parse("1.0.0"))


def test_the_chart_names_both_images_by_digest() -> None:
    release = a_release()
    text = (ROOT / CHART / "values.yaml").read_text()
    digests = {"services": ONE, "installer": TWO}
    values = yaml.safe_load(pinned_values(text, image_values(release, digests)))
    for image, key in ((values["image"], "services"), (values["installers"]["image"], "installer")):
        assert f"{image['registry']}/{image['repository']}" == f"{release.registry}/{IMAGES[key]}"
        assert image["registry"] == "registry.example:5000"
        assert image["digest"] == digests[key]


def test_the_chart_has_the_checksums_of_the_runtime_for_its_default_shim() -> None:
    text = (ROOT / CHART / "values.yaml").read_text()
    sums = {"amd64": "ab" * 32, "arm64": "cd" * 32}
    assert yaml.safe_load(pinned_values(text, runtime_values(sums)))["defaultShim"]["sha256"] == sums


def test_other_values_and_comments_are_kept() -> None:
    text = "# a\nimage:\n  # b\n  digest: DIGEST # c\nother: {a: LIST}\n"
    before = text.replace("DIGEST", "''").replace("LIST", "[1, 2]")
    changed = pinned_values(before, {("image", "digest"): ONE, ("other", "a"): {"b": 1}})
    assert changed == text.replace("DIGEST", f'"{ONE}"').replace("LIST", '{"b": 1}')


@pytest.mark.parametrize("path", [("image", "digest", "x"), ("nothing",), ("image", "nothing")])
def test_a_value_that_the_chart_lacks_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(ReleaseError, match=r"\.".join(path)):
        pinned_values("image:\n  digest: ''\n", {path: ONE})


def test_the_provenance_names_the_commit_and_each_input_once() -> None:
    inputs = [Material("requirements.lock", "1" * 64), Material("pkg:deb/debian/x@1?arch=all", "2" * 64)]
    found = provenance(a_release(), [*inputs, *inputs], "https://builder.example")
    dependencies = found["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0]["digest"] == {"gitCommit": COMMIT}
    assert [dependency["digest"]["sha256"][0] for dependency in dependencies[1:]] == ["2", "1"]
    assert found["runDetails"]["builder"] == {"id": "https://builder.example"}
    assert found == provenance(a_release(), reversed(inputs), "https://builder.example")
