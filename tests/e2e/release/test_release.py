"""A release of this commit, in a real registry: complete, signed, attested, for both platforms, and the same twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from support.releases.released import PYTHON_VERSION, ROOT, VERSION, Released, make_keys, make_release, program, run
from trellis_dev.localcluster.progress import Quiet
from trellis_tools.release.artifacts import Artifact
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.plan import CHART_NAME, IMAGES, PACKAGES_NAME, Release
from trellis_tools.release.publish import Key, Publisher

MACHINES = {"amd64": 62, "arm64": 183}
"""``e_machine`` of an ELF file."""
NAMES = {**IMAGES, "chart": CHART_NAME, "packages": PACKAGES_NAME}
IMAGE = pytest.mark.parametrize("key", list(IMAGES))
PLATFORM = pytest.mark.parametrize("architecture", list(MACHINES))
KUBERNETES = "1.36.0"
"""Helm without a cluster assumes an older version than the chart requires."""
NO_LOG = "--insecure-ignore-tlog=true"


def tags(released: Released, name: str) -> str:
    return run(program("crane"), "digest", f"{released.registry}/{name}:{VERSION}").strip()


@pytest.mark.parametrize("key", list(NAMES))
def test_the_registry_has_each_artifact_under_its_version(released: Released, key: str) -> None:
    assert tags(released, NAMES[key]) == released.digest(key)
    run(program("cosign"), "verify", "--key", str(released.keys.public), NO_LOG, released.reference(key))


@pytest.mark.parametrize("key", list(NAMES))
def test_a_signature_of_another_key_is_refused(released: Released, key: str, tmp_path: Path) -> None:
    other = make_keys(tmp_path / "other")
    command = [program("cosign"), "verify", "--key", str(other.public), NO_LOG, released.reference(key)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_same_commit_gives_the_same_bytes(released: Released, tmp_path: Path) -> None:
    again = make_release(released.registry, released.keys, tmp_path / "again")
    assert (again.folder / "SHA256SUMS").read_text() == (released.folder / "SHA256SUMS").read_text()
    assert again.report == released.report
    assert len((released.folder / "SHA256SUMS").read_text().splitlines()) > 10


@IMAGE
@PLATFORM
def test_each_native_file_is_of_its_platform(released: Released, key: str, architecture: str) -> None:
    name, seen = IMAGES[key], 0
    manifest = released.manifests(key, name)[architecture]["digest"]
    with released.layers(name, manifest) as layers:
        for archive, entry in [(layer, entry) for layer in layers for entry in layer]:
            content = archive.extractfile(entry) if entry.isfile() else None
            head = content.read(20) if content is not None else b""
            if head.startswith(b"\x7fELF"):
                seen += 1
                assert int.from_bytes(head[18:20], "little") == MACHINES[architecture], entry.name
    assert seen > 20


@IMAGE
@PLATFORM
def test_an_image_has_its_configuration_and_nothing_of_its_build(
    released: Released, key: str, architecture: str
) -> None:
    name = IMAGES[key]
    manifest = released.document(name, released.manifests(key, name)[architecture]["digest"])
    config = released.document(name, manifest["config"]["digest"])
    assert config["architecture"] == architecture
    assert config["config"]["User"] == {"services": "65532:65532", "installer": "0:0"}[key]
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == PYTHON_VERSION
    assert config["config"]["Labels"]["org.opencontainers.image.revision"] == released.report["commit"]
    text = json.dumps(config) + json.dumps(manifest)
    assert not re.search(r"/tmp/|/root/|https?://(?!github\.com/trellis-wasm)|PIP_|UV_", text)


@IMAGE
def test_platforms_differ_in_native_files_only(released: Released, key: str) -> None:
    name, found = IMAGES[key], {}
    for architecture, row in released.manifests(key, name).items():
        with released.layers(name, row["digest"]) as layers:
            found[architecture] = {entry.name for entry in layers[-1] if entry.isfile()}
    modules = [{path for path in own if path.endswith((".py", ".pyc"))} for own in found.values()]
    ours = [{path for path in paths if "/trellis/" in path or "/node_installer/" in path} for paths in modules]
    assert ours[0] == ours[1]
    assert len(ours[0]) > 10


@IMAGE
@PLATFORM
def test_scanners_find_the_packages_of_debian(released: Released, key: str, architecture: str) -> None:
    name = IMAGES[key]
    with released.layers(name, released.manifests(key, name)[architecture]["digest"]) as (base, own):
        listed = {entry.name.rpartition("/")[2] for entry in base if entry.name.startswith("var/lib/dpkg/status.d/")}
        listing = own.extractfile("usr/share/doc/trellis/base-packages.txt")
        assert listing is not None
        rows = [line.split() for line in listing.read().decode().splitlines()]
    assert {row[0] for row in rows} == listed
    assert {row[2] for row in rows} == {architecture, "all"}
    assert {"libc6", "python3.11-minimal", "util-linux", "ca-certificates"} <= listed
    assert not listed & {"apt", "debconf", "dpkg", "perl", "perl-base", "python3-pip"}


@IMAGE
def test_each_platform_has_its_sbom_as_an_attestation(released: Released, key: str) -> None:
    for row in released.manifests(key, IMAGES[key]).values():
        reference = f"{released.registry}/{IMAGES[key]}@{row['digest']}"
        arguments = ("--key", str(released.keys.public), NO_LOG, "--type", "cyclonedx", reference)
        assert run(program("cosign"), "verify-attestation", *arguments)


def publisher(released: Released, password: Path | None = None) -> Publisher:
    release = Release.parse(VERSION, released.registry, released.report["commit"], "0")
    key = Key(released.keys.private, password or released.keys.password)
    return Publisher(release, key, released.keys.public, Quiet())


def test_another_provenance_is_not_verified(released: Released, tmp_path: Path) -> None:
    artifact = Artifact(CHART_NAME, released.folder / "oci" / CHART_NAME, released.digest("chart"))
    publisher(released).verify(artifact, released.folder / "provenance.json")
    other = tmp_path / "provenance.json"
    other.write_text((released.folder / "provenance.json").read_text().replace(VERSION, "0.9.2"))
    with pytest.raises(ReleaseError, match="slsaprovenance1"):
        publisher(released).verify(artifact, other)


def test_a_wrong_password_ends_the_release_before_anything_is_pushed(released: Released, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not this\n")
    with pytest.raises(ReleaseError, match="public-key"):
        publisher(released, wrong).read_public_key()


def test_a_tag_that_another_has_moved_is_noticed(released: Released) -> None:
    layout = released.folder / "oci" / CHART_NAME
    with pytest.raises(ReleaseError, match="digest"):
        publisher(released).push(Artifact(CHART_NAME, layout, f"sha256:{'0' * 64}"))


def test_the_provenance_names_the_commit_the_locks_and_the_packages(released: Released) -> None:
    found = json.loads((released.folder / "provenance.json").read_text())["buildDefinition"]
    uris = [resolved_dependency["uri"] for resolved_dependency in found["resolvedDependencies"]]
    assert found["externalParameters"] == {"version": VERSION, "registry": released.registry}
    assert uris[0].endswith(f"@{released.report['commit']}")
    assert {"requirements-services.lock", "requirements-installer.lock"} <= set(uris)
    for architecture in MACHINES:
        assert [uri for uri in uris if uri.startswith("pkg:deb/debian/libc6@") and uri.endswith(f"={architecture}")]


def test_the_chart_has_the_version_and_the_images_by_digest(released: Released) -> None:
    shown = run(program("helm"), "show", "all", f"oci://{released.reference('chart')}", "--plain-http")
    chart = yaml.safe_load(shown.split("\n---\n")[0])
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    with tarfile.open(released.folder / f"trellis-{VERSION}.tgz") as archive:
        file = archive.extractfile("trellis/values.yaml")
        assert file is not None
        text = file.read().decode()
    assert released.digest("services") in text
    assert released.digest("installer") in text
    chart_reference = f"oci://{released.reference('chart')}"
    rendered = run(
        program("helm"), "template", "trellis", chart_reference, "--plain-http", "--kube-version", KUBERNETES
    )
    images = {line.split()[-1].strip("\"'") for line in rendered.splitlines() if line.strip().startswith("image:")}
    assert released.reference("services") in images


def test_the_wheel_is_installed_as_a_tool_and_as_a_plugin_of_kubectl(released: Released, tmp_path: Path) -> None:
    [wheel] = (released.folder / "python").glob("trellis_wasm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "console/static/index.html" in archive.namelist()
    names = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    uv = str(Path(sys.executable).with_name("uv"))
    environment = os.environ | names
    subprocess.run([uv, "tool", "install", "--quiet", str(wheel)], env=environment, check=True)
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    for command in (["trellis", "version"], [program("kubectl"), "trellis", "version"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == PYTHON_VERSION


def test_checksums_are_signed_and_right(released: Released) -> None:
    sums = released.folder / "SHA256SUMS"
    bundle = f"{sums}.sigstore.json"
    arguments = ("--key", str(released.keys.public), NO_LOG, "--bundle", bundle, str(sums))
    run(program("cosign"), "verify-blob", *arguments)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=released.folder, check=True)


def test_a_copy_in_another_place_keeps_digests_and_signatures(released: Released) -> None:
    source, target = f"{released.registry}/trellis:{VERSION}", f"{released.registry}/copies/trellis:{VERSION}"
    run(program("oras"), "cp", "--recursive", "--from-plain-http", "--to-plain-http", source, target)
    copied = f"{released.registry}/copies/trellis@{released.digest('services')}"
    assert run(program("crane"), "digest", target).strip() == released.digest("services")
    run(program("cosign"), "verify", "--key", str(released.keys.public), NO_LOG, copied)
    arguments = ("--key", str(released.keys.public), NO_LOG, "--type", "slsaprovenance1", copied)
    assert run(program("cosign"), "verify-attestation", *arguments)


def test_the_checkout_is_not_changed(released: Released) -> None:
    assert released.report["version"] == VERSION
    assert VERSION not in (ROOT / "deploy/helm/trellis/Chart.yaml").read_text()
