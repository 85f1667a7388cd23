"""An SBOM is of what is installed; where that and the lock differ there is none, and so no image."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

IMAGES = Path(__file__).parents[3] / "deploy" / "images"
sys.path.insert(0, str(IMAGES))

import assemble  # noqa: E402 - a script beside the Dockerfiles
import inventory  # noqa: E402

ONE, TWO = "1" * 64, "2" * 64
LOCK = f"""\
only-there==1.0 ; sys_platform == 'nowhere' \\
    --hash=sha256:{ONE}
some-package==2.0 \\
    --hash=sha256:{ONE} \\
    --hash=sha256:{TWO}
"""


def component(name: str = "Some_Package", version: str = "2.0", **more: Any) -> dict[str, Any]:
    licensed = {"licenses": [{"license": {"id": "MIT"}}]}
    return {"name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"} | licensed | more


def bom(*components: dict[str, Any]) -> dict[str, Any]:
    root = component("trellis-wasm", "0.1.0")
    del root["purl"]  # CycloneDX's tool writes none for the project itself
    return {"metadata": {"component": root}, "components": list(components)}


def test_a_component_has_all_hashes_of_its_lock() -> None:
    [found, python] = inventory.with_hashes(bom(component()), inventory.pins(LOCK))["components"]
    [files] = found["externalReferences"]
    assert [item["content"] for item in files["hashes"]] == [ONE, TWO]
    assert python["name"] == "python"


@pytest.mark.parametrize(
    ("components", "named"),
    [
        ([], "some-package 2.0"),
        ([component(version="2.1")], "some-package 2.1"),
        ([component(), component("other")], "other 2.0"),
        ([component(licenses=[])], "some-package"),
    ],
    ids=["missing", "another version", "one more", "no licence"],
)
def test_a_component_that_differs_from_the_lock_fails_the_build(components: list[dict[str, Any]], named: str) -> None:
    with pytest.raises(SystemExit, match=rf"\b{named}\b"):
        inventory.with_hashes(bom(*components), inventory.pins(LOCK))


OF_A_MACHINE = f"""\
some-package==2.0 \\
    --hash=sha256:{ONE}
only-arm==1.0 ; platform_machine == 'aarch64' and python_full_version < '3.12' \\
    --hash=sha256:{TWO}
"""


def test_the_lock_is_read_for_the_machine_and_the_python_of_the_image() -> None:
    pins = inventory.pins(OF_A_MACHINE)
    inventory.with_hashes(bom(component()), pins, inventory.Target("x86_64", "3.11.2"))
    inventory.with_hashes(bom(component()), pins, inventory.Target("aarch64", "3.12.1"))
    with pytest.raises(SystemExit, match=r"\bonly-arm 1\.0\b"):
        inventory.with_hashes(bom(component()), pins, inventory.Target("aarch64", "3.11.2"))


def test_the_interpreter_in_the_sbom_is_that_of_the_image() -> None:
    *_, python = inventory.with_hashes(bom(component()), inventory.pins(LOCK), inventory.Target("aarch64", "3.11.2"))[
        "components"
    ]
    assert (python["name"], python["version"]) == ("python", "3.11.2")


@pytest.mark.parametrize(
    ("licenses", "expected"),
    [
        ([{"expression": "MIT OR Apache-2.0"}], "MIT OR Apache-2.0"),
        ([{"license": {"name": "3-Clause BSD License"}}], "3-Clause BSD License"),
        ([{"license": {"name": "License :: OSI Approved :: Apache Software License"}}], "Apache Software License"),
        ([{"license": {"id": "ISC"}}, {"license": {"name": "License :: OSI Approved :: BSD License"}}], "ISC"),
    ],
    ids=["expression", "own words", "classifier", "exact before classifier"],
)
def test_a_licence_is_stated_as_precisely_as_in_its_package(licenses: list[dict[str, Any]], expected: str) -> None:
    assert inventory.license_of(component(licenses=licenses)) == expected


def test_the_list_has_a_line_for_each_component_and_the_texts_below() -> None:
    text = inventory.license_list(bom(component()), {"some-package": [("licenses/LICENSE", "Permission is granted\n")]})
    assert text.startswith("Some_Package 2.0: MIT\ntrellis-wasm 0.1.0: MIT\n")
    assert "Some_Package 2.0: licenses/LICENSE\n" in text
    assert text.endswith("Permission is granted\n")


def test_an_assembled_image_has_the_commands_of_trellis_and_no_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, checkout = tmp_path / "packages", tmp_path / "checkout"
    for path, text in {
        packages / "some/__init__.py": "",
        packages / "some/tests/test_it.py": "",
        packages / "some-2.0.dist-info/RECORD": "some/__init__.py,,\nsome/tests/test_it.py,,\n../../bin/some,,\n",
        packages / "bin/some": "#!/usr/bin/python3",
        checkout / "services/one/__init__.py": "",
        checkout / "services/one/__main__.py": "def main() -> None:\n    print('one runs')\n",
        checkout / "shared/trellis/names.py": "",
        checkout / "LICENSE": "text",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(checkout)
    scripts = {"trellis-one": "one.__main__:main", "trellis-two": "two.__main__:main"}
    project = {"name": "trellis-wasm", "version": "1.2", "description": "…", "license": "MIT", "scripts": scripts}
    contents = assemble.Contents(tmp_path / "root", ("services/*", "shared/trellis/names.py"), ("trellis-one",))

    site = assemble.assemble(contents, packages, project)

    files = {str(path.relative_to(site)) for path in site.rglob("*.py")}
    assert files == {"some/__init__.py", "one/__init__.py", "one/__main__.py", "trellis/names.py"}
    assert (site / "some-2.0.dist-info" / "RECORD").read_text() == "some/__init__.py,,\n"
    assert "Version: 1.2\n" in (site / "trellis_wasm-1.2.dist-info" / "METADATA").read_text()
    assert sorted(path.stem for path in site.rglob("*.pyc")) == sorted(
        f"{Path(name).stem}.{sys.implementation.cache_tag}" for name in files
    )
    commands = {path.name for path in (tmp_path / "root" / "bin").iterdir() if not path.name.startswith("python")}
    assert commands == {"trellis-one"}
    done = subprocess.run([tmp_path / "root/bin/trellis-one"], capture_output=True, text=True, check=True)
    assert done.stdout == "one runs\n"


def test_a_text_that_several_components_have_stands_once_below_all_of_them() -> None:
    texts = {
        "pkg:pypi/a@1": [("LICENSE", "The text.\n")],
        "b": [("COPYING", "The text.")],
        "c": [("LICENSE", "Other.")],
    }
    text = inventory.license_list(bom(*(component(name, "1") for name in "abc")), texts)
    assert text.count("The text.") == 1
    assert "\na 1: LICENSE\nb 1: COPYING\n" in text


def test_an_image_that_is_assembled_elsewhere_has_the_paths_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, checkout = tmp_path / "packages", tmp_path / "checkout"
    for path, text in {
        packages / "some/__init__.py": "",
        checkout / "services/one/__main__.py": "def main() -> None:\n    print('one runs')\n",
        checkout / "LICENSE": "text",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(checkout)
    scripts = {"trellis-one": "one.__main__:main"}
    project = {"name": "trellis-wasm", "version": "1.2", "description": "…", "license": "MIT", "scripts": scripts}
    contents = assemble.Contents(Path("/opt/there"), ("services/*",), ())

    site = assemble.assemble(contents, packages, project, tmp_path / "root")

    assert site.is_relative_to(tmp_path / "root")
    script = tmp_path / "root/bin/trellis-one"
    assert script.read_text().startswith("#!/opt/there/bin/python3\n")
    assert not Path("/opt/there").exists()
    [compiled] = (site / "one/__pycache__").glob("__main__.*.pyc")
    content = compiled.read_bytes()
    assert b"/opt/there/lib" in content
    assert str(tmp_path).encode() not in content


PAGE = IMAGES.parents[1] / "services" / "console" / "page"


def npm(**packages: dict[str, Any]) -> str:
    return json.dumps(
        {"packages": {"": {"name": "page"}} | {f"node_modules/{name}": of for name, of in packages.items()}}
    )


def test_packages_bundled_into_the_page_are_components_of_the_image() -> None:
    found = inventory.page_components((PAGE / "package-lock.json").read_text(encoding="utf-8"))
    assert [item["name"] for item in found] == ["@preact/signals", "@preact/signals-core", "preact"]
    assert found[0]["purl"].startswith("pkg:npm/%40preact/signals@")
    assert all(len(item["hashes"][0]["content"]) == 128 for item in found)


def test_build_dependencies_of_the_page_are_no_components() -> None:
    found = inventory.page_components(
        npm(tool={"version": "1", "dev": True}, maybe={"version": "1", "devOptional": True})
    )
    assert found == []


@pytest.mark.parametrize("lacks", ["license", "integrity"])
def test_a_package_of_the_page_without_licence_or_hash_fails_the_build(lacks: str) -> None:
    package = {"version": "1", "license": "MIT", "integrity": "sha512-AAAA"}
    del package[lacks]
    with pytest.raises(SystemExit, match=r"\bthing 1\b"):
        inventory.page_components(npm(thing=package))


def test_the_texts_of_the_pages_licences_are_in_the_list() -> None:
    texts = inventory.page_texts("preact 11 (MIT)\n\nThe text.\n\n----\n\n@preact/signals 2 (MIT)\n\nAnother.\n")
    listed = inventory.license_list(bom(component("@preact/signals", "2")), texts)
    assert "@preact/signals 2: MIT" in listed
    assert listed.endswith("Another.\n")


# --- the runtime ---

PROGRAM = "containerd-shim-wasi-v1"


def crate(name: str, **more: Any) -> dict[str, Any]:
    return {"id": f"registry#{name}@1.0.0", "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"} | more


def depends(name: str, **kinds: str | None) -> dict[str, Any]:
    deps = [{"pkg": f"registry#{other}@1.0.0", "dep_kinds": [{"kind": kind}]} for other, kind in kinds.items()]
    return {"id": f"registry#{name}@1.0.0", "deps": deps}


def a_runtime(folder: Path, **changed: Any) -> Path:
    """Write what the build of a runtime leaves: it links `engine`, which links `memory`; `tool` only builds it."""
    packages = [crate(PROGRAM, license="Apache-2.0"), crate("engine", **changed), crate("memory"), crate("tool")]
    nodes = [
        depends(PROGRAM, engine=None, tool="build"),
        depends("engine", memory=None, tool="dev"),
        depends("memory"),
        depends("tool"),
    ]
    metadata = {"packages": packages, "resolve": {"root": f"registry#{PROGRAM}@1.0.0", "nodes": nodes}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    lock = [f'[[package]]\nname = "{name}"\nversion = "1.0.0"\nchecksum = "{ONE}"\n' for name in ("engine", "tool")]
    lock.append(f'[[package]]\nname = "memory"\nversion = "1.0.0"\nchecksum = "{TWO}"\n')
    (folder / "crates.lock").write_text("\n".join(lock))
    (folder / PROGRAM).write_bytes(b"the program")
    (folder / "libraries.txt").write_text("libseccomp 2.5.4\nglibc 2.36\n")
    (folder / "licenses" / "engine-1.0.0").mkdir(parents=True)
    (folder / "licenses" / "engine-1.0.0" / "LICENSE").write_text("Permission is granted")
    return folder


def test_the_sbom_has_the_runtime_and_what_is_linked_into_it(tmp_path: Path) -> None:
    program, seccomp, glibc, *crates = inventory.runtime_components(a_runtime(tmp_path))
    assert [(item["name"], item["version"]) for item in (seccomp, glibc)] == [
        ("libseccomp", "2.5.4"),
        ("glibc", "2.36"),
    ]
    assert (program["name"], program["hashes"][0]["content"]) == (PROGRAM, hashlib.sha256(b"the program").hexdigest())
    assert [(item["purl"], item["hashes"][0]["content"]) for item in crates] == [
        ("pkg:cargo/engine@1.0.0", ONE),
        ("pkg:cargo/memory@1.0.0", TWO),
    ]
    assert inventory.license_of(crates[0]) == "MIT OR Apache-2.0"


@pytest.mark.parametrize("changed", [{"license": None}, {"version": "2.0.0"}], ids=["no licence", "not in the lock"])
def test_a_crate_without_licence_or_checksum_fails_the_build(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=r"\bengine\b"):
        inventory.runtime_components(a_runtime(tmp_path, **changed))


def test_a_crate_may_have_its_licence_in_a_file_alone(tmp_path: Path) -> None:
    found = inventory.runtime_components(a_runtime(tmp_path, license=None, license_file="LICENSE.txt"))
    assert inventory.license_of(next(item for item in found if item["name"] == "engine")) == "LICENSE.txt"


def test_a_c_library_of_unknown_licence_fails_the_build(tmp_path: Path) -> None:
    runtime = a_runtime(tmp_path)
    (runtime / "libraries.txt").write_text("libother 1\n")
    with pytest.raises(SystemExit, match=r"\blibother\b"):
        inventory.runtime_components(runtime)


def test_the_texts_of_crates_are_by_their_purl(tmp_path: Path) -> None:
    runtime = a_runtime(tmp_path)
    (runtime / "licenses" / "wasi-0.11.1+wasi-snapshot-preview1").mkdir()
    assert inventory.runtime_texts(runtime) == {
        "pkg:cargo/engine@1.0.0": [("LICENSE", "Permission is granted")],
        "pkg:cargo/wasi@0.11.1+wasi-snapshot-preview1": [],
    }
