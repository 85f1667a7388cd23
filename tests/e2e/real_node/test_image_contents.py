"""The contents of the images, file by file: the locks, this program and their own metadata, but not their origin."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tarfile
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.markers import Marker

from support.chart.services_image import services_image
from support.nodes.installer_image import installer_image
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.own_images import DOCUMENTS, documents
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.wasmshim import IN_IMAGE, SHIM, shim

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "deploy" / "images"))

import inventory  # noqa: E402 - a script beside the Dockerfiles

HOW = How(Lines(), threading.Event())
DEBIAN_12 = {"python_full_version": "3.11.2", "python_version": "3.11", "sys_platform": "linux"}


@dataclass(frozen=True)
class Built:
    """An image: the lock of its packages, where they lie, its configuration, the files that it adds to its base."""

    key: str
    root: str
    archive: Path
    config: dict[str, Any]
    files: dict[str, int]
    """Paths of its own layers and their sizes."""

    @property
    def lock(self) -> dict[str, Any]:
        return inventory.pins((ROOT / f"requirements-{self.key}.lock").read_text())

    @property
    def sbom(self) -> dict[str, Any]:
        return dict(json.loads(documents(self.archive)[inventory.SBOM]))


@pytest.fixture(scope="module", params=["services", "installer"])
def built(request: pytest.FixtureRequest) -> Built:
    key = request.param
    archive = services_image(HOW) if key == "services" else installer_image(HOW)
    files: dict[str, int] = {}
    with tarfile.open(archive) as image:

        def read(name: str) -> Any:
            file = image.extractfile(name)
            assert file is not None
            return file

        [manifest] = json.load(read("manifest.json"))
        config = json.load(read(manifest["Config"]))
        for layer in manifest["Layers"][1:]:
            with tarfile.open(fileobj=read(layer)) as content:
                files |= {entry.name.lstrip("./"): entry.size for entry in content if not entry.isdir()}
    return Built(key, {"services": "opt/trellis", "installer": "opt/trellis-installer"}[key], archive, config, files)


def test_it_adds_its_program_and_its_metadata_and_nothing_else(built: Built) -> None:
    ours = (f"{built.root}/", f"{DOCUMENTS}/")
    others = {path for path in built.files if not path.startswith(ours)} - {"etc/hosts"}  # buildah leaves an empty one
    runtime = f"{IN_IMAGE.lstrip('/')}/{SHIM}"
    assert others == ({"canary.wasm", runtime} if built.key == "installer" else set())
    assert {Path(path).name for path in built.files if path.startswith(DOCUMENTS)} == {
        "LICENSE", "base-packages.txt", "licenses.txt", "sbom.cdx.json",
    }  # fmt: skip


def test_there_is_nothing_to_install_or_build_with(built: Built) -> None:
    site = f"{built.root}/lib/python3.11/site-packages/"
    tops = {path.removeprefix(site).split("/")[0] for path in built.files if path.startswith(site)}
    assert tops
    assert not {top for top in tops if re.match(r"(pip|setuptools|wheel|pkg_resources|ensurepip|cyclonedx)\b", top)}
    assert not any(path.endswith((".whl", ".tar.gz")) or "/requirements-" in path for path in built.files)
    commands = {Path(path).name for path in built.files if path.startswith(f"{built.root}/bin/")}
    assert {name for name in commands if not name.startswith(("trellis", "kubectl", "python"))} == set()


def test_every_module_is_compiled(built: Built) -> None:
    modules = {path for path in built.files if path.endswith(".py")}
    compiled = {re.sub(r"__pycache__/(.*)\.cpython-311\.pyc$", r"\1.py", path) for path in built.files}
    assert modules
    assert modules <= compiled


def test_its_history_does_not_contain_sources_of_packages(built: Built) -> None:
    history = json.dumps(built.config["history"]) + json.dumps(built.config["config"])
    assert not re.search(r"pip install|index|PIP_|UV_|secret|https?:", history, flags=re.IGNORECASE)


def test_its_configuration_has_its_labels_and_its_user(built: Built) -> None:
    config = built.config["config"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["version"] == version("trellis-wasm")
    assert labels["licenses"] == "Apache-2.0"
    assert labels["base.name"].startswith("trellis.local/python")
    assert config["User"] == {"services": "65532:65532", "installer": "0:0"}[built.key]


def test_the_sbom_is_valid(built: Built) -> None:
    text = documents(built.archive)[inventory.SBOM].decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_sbom_has_each_package_of_the_lock_with_version_and_hashes_and_no_other(built: Built) -> None:
    wanted = {name: pin for name, pin in built.lock.items() if not pin.marker or Marker(pin.marker).evaluate(DEBIAN_12)}
    of_python = [component for component in built.sbom["components"] if component["purl"].startswith("pkg:pypi/")]
    found = {inventory.normalised(item["name"]): item for item in of_python}
    assert {name: item["version"] for name, item in found.items()} == {
        name: pin.version for name, pin in wanted.items()
    }
    for name, item in found.items():
        hashes = [file["hashes"] for file in item["externalReferences"] if file.get("hashes")]
        assert [[each["content"] for each in files] for files in hashes] == [list(wanted[name].hashes)]


def test_the_sbom_has_what_is_bundled_into_the_page_of_the_console_where_it_is(built: Built) -> None:
    lock = (ROOT / "services/console/page/package-lock.json").read_text(encoding="utf-8")
    wanted = inventory.page_components(lock) if built.key == "services" else []
    assert [component for component in built.sbom["components"] if component["purl"].startswith("pkg:npm/")] == wanted


def test_each_package_states_its_licence_and_brings_its_text(built: Built) -> None:
    components = built.sbom["components"]
    listed = documents(built.archive)[inventory.LICENSES].decode()
    for component in components:
        licenses_text = inventory.license_of(component)
        assert licenses_text
        assert not re.search(r"unknown|none|proprietary", licenses_text, flags=re.IGNORECASE)
        assert f"{component['name']} {component['version']}: {licenses_text}\n" in listed
        # Some crates and the C libraries carry none: their licence is with their sources.
        if component["type"] == "library" and not component["purl"].startswith(("pkg:cargo/", "pkg:generic/")):
            # One line in the list, and one above each of its texts.
            lines = f"\n{listed}".count(f"\n{component['name']} {component['version']}: ")
            assert lines >= 2, f"{component['name']} carries no text"


def test_the_sbom_has_the_runtime_with_its_checksum_and_its_crates_where_it_is(built: Built) -> None:
    found = {component["name"]: component for component in built.sbom["components"]}
    assert (SHIM in found) == (built.key == "installer")
    if SHIM in found:
        content = hashlib.sha256(shim(HOW).read_bytes()).hexdigest()
        assert found[SHIM]["hashes"] == [{"alg": "SHA-256", "content": content}]
        assert {found[name]["version"] for name in ("wasmtime", "wasmtime-wasi")} == {found["wasmtime"]["version"]}
        assert "containerd-shim-wasm" in found
        assert not {"cc", "ttrpc-codegen", "tempfile"} & found.keys(), "what only builds or tests it is no part of it"


def test_the_packages_of_the_base_are_listed(built: Built) -> None:
    lines = documents(built.archive)[inventory.BASE].decode().splitlines()
    assert all(len(line.split()) == 3 for line in lines)
    assert {"libc6", "python3.11-minimal"} <= {line.split()[0] for line in lines}
