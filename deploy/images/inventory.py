"""Writes the inventory of an image: a CycloneDX SBOM, the licences with their texts, the packages of the base image.

In: the directory of an assembled image, its lock, the tools of requirements-images.lock; the console's sources if its
page is in the image; the built runtime if it is in the image. Out: files in a directory that is copied into the image.
Called by the Dockerfiles in this directory, and by releases, whose images can be for another machine. Invariant: the
SBOM lists the installed packages; the build fails if they differ from the lock, or if a package declares no licence.
For the console's page, which is one file, the SBOM lists the packages of npm's lock, and for the runtime its crates.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

TOOLS: Final = Path("/tools")
SBOM: Final = "sbom.cdx.json"
LICENSES: Final = "licenses.txt"
BASE: Final = "base-packages.txt"
_PINNED: Final = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+?)(?: *; *([^\\\n]+?))? \\\n((?:    --hash=sha256:\S+.*\n?)+)", re.MULTILINE
)
_LIBRARIES: Final = {"glibc": "LGPL-2.1-or-later", "libseccomp": "LGPL-2.1-only"}
"""Licences of the C libraries that are linked into the runtime."""
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """A package of a lock: name, version, environment marker (empty: always) and permitted hashes."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """The machine and the Python version of an image, as in environment markers; by default those of this process.

    ``base``: a file with the packages of its base; without one they are queried on this machine. ``tools``: directory
    of the packages of requirements-images.lock. It is not in PYTHONPATH, which would put them into the SBOM.
    """

    machine: str = platform.machine()
    python: str = platform.python_version()
    base: Path | None = None
    tools: Path = TOOLS

    @property
    def markers(self) -> dict[str, str]:
        """Return the values of environment markers that differ from those of this process."""
        version = ".".join(self.python.split(".")[:2])
        return {"platform_machine": self.machine, "python_full_version": self.python, "python_version": version}


@dataclass(frozen=True)
class Parts:
    """Parts of an image that are no Python packages: sources of the console, result of ``build.sh`` of the runtime."""

    console: Path | None
    runtime: Path | None


def pins(lock: str) -> dict[str, Pin]:
    """Return the packages of a lock by normalised name."""
    return {
        normalised(name): Pin(name, version, marker, tuple(_HASH.findall(hashes)))
        for name, version, marker, hashes in _PINNED.findall(lock)
    }


def normalised(name: str) -> str:
    """Return the normalised name, by which package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def differences(components: dict[str, Any], wanted: dict[str, Pin], target: Target) -> Iterator[str]:
    """Yield each error: a package or version that is not in the lock, no declared licence, a missing package."""
    from packaging.markers import Marker  # noqa: PLC0415 - of the tools

    for name, component in components.items():
        pin = wanted.get(name)
        if pin is None or pin.version != component["version"]:
            yield f"{name} {component['version']} is installed and not in the lock"
        if not component.get("licenses"):
            yield f"{name} declares no licence"
    for name, pin in wanted.items():
        if name not in components and (not pin.marker or Marker(pin.marker).evaluate(target.markers)):
            yield f"{name} {pin.version} is in the lock and not installed"


def with_hashes(bom: dict[str, Any], wanted: dict[str, Pin], target: Target | None = None) -> dict[str, Any]:
    """Return the SBOM with the hashes of the lock and with the Python interpreter.

    Raises:
        SystemExit: lock and components differ.
    """
    target = target or Target()
    components = {normalised(item["name"]): item for item in bom["components"]}
    wrong = sorted(differences(components, wanted, target))
    if wrong:
        raise SystemExit("inventory: " + "; ".join(wrong))
    for name, component in components.items():
        files = {
            "type": "distribution",
            # Each hash is that of one file of the package, for some platform.
            "url": component["purl"],
            "comment": "files that the lock allows",
            "hashes": [{"alg": "SHA-256", "content": content} for content in wanted[name].hashes],
        }
        component["externalReferences"] = [*component.get("externalReferences", ()), files]
    return bom | {"components": [*bom["components"], _python(target.python)]}


def license_list(bom: dict[str, Any], texts: dict[str, list[tuple[str, str]]]) -> str:
    """Return a line for each component, then each licence text once, below the components that have it.

    ``texts``: files by normalised name of the package, or by its purl.
    """
    components = sorted([bom["metadata"]["component"], *bom["components"]], key=lambda item: str(item["name"]).lower())
    lines = [f"{component['name']} {component['version']}: {license_of(component)}" for component in components]
    files_of: dict[str, list[str]] = {}
    for component in components:
        for file, text in texts.get(component.get("purl", ""), texts.get(normalised(component["name"]), ())):
            files_of.setdefault(text.rstrip(), []).append(f"{component['name']} {component['version']}: {file}")
    for text, files in files_of.items():
        lines += ["", "=" * 80, *files, "=" * 80, text]
    return "\n".join(lines) + "\n"


def license_of(component: dict[str, Any]) -> str:
    """Return the licences in a component's metadata."""
    found = component.get("licenses", ())
    exact = [item.get("expression") or item["license"].get("id") for item in found]
    named = [item["license"]["name"].rpartition(" :: ")[2] for item in found if "name" in item.get("license", {})]
    return "; ".join(dict.fromkeys([item for item in exact if item] or named))


def page_components(lock: str) -> list[dict[str, Any]]:
    """Return the packages bundled into the page: those of npm's lock that are not development dependencies.

    Raises:
        SystemExit: a package declares no licence, or has no hash.
    """
    found = []
    for path, package in sorted(json.loads(lock)["packages"].items()):
        if not path or package.get("dev") or package.get("devOptional"):
            continue
        name = path.rpartition("node_modules/")[2]
        algorithm, _, digest = package.get("integrity", "").partition("-")
        if algorithm != "sha512" or not package.get("license"):
            raise SystemExit(f"inventory: {name} {package['version']} has no licence or no SHA-512 in the page's lock")
        purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
        found.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": package["version"],
                "description": "bundled into the console's page",
                "licenses": [{"license": {"id": package["license"]}}],
                "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
                "purl": purl,
            }
        )
    return found


def page_texts(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the licence texts that the page's build collected, by name of the package."""
    parts = [part.partition("\n\n") for part in text.split("\n----\n\n")]
    return {normalised(head.split(" ")[0]): [("LICENSE", body)] for head, _, body in parts}


def runtime_components(runtime: Path) -> list[dict[str, Any]]:
    """Return the runtime, the C libraries and the crates that are linked into it, those of its macros included.

    ``runtime``: the result of ``build.sh`` of the runtime, with the metadata that cargo reports for its platform.

    Raises:
        SystemExit: a crate declares no licence, or has no checksum in the lock; a C library is unknown.
    """
    metadata = json.loads((runtime / "metadata.json").read_text(encoding="utf-8"))
    lock = tomllib.loads((runtime / "crates.lock").read_text(encoding="utf-8"))
    sums = {(item["name"], item["version"]): item.get("checksum") for item in lock["package"]}
    packages = {item["id"]: item for item in metadata["packages"]}
    root = packages[metadata["resolve"]["root"]]
    found = [_runtime(root, runtime), *_libraries((runtime / "libraries.txt").read_text(encoding="utf-8"))]
    for package in sorted(
        _linked(metadata["resolve"]), key=lambda item: (packages[item]["name"], packages[item]["version"])
    ):
        name, version = packages[package]["name"], packages[package]["version"]
        checksum = sums.get((name, version))
        declared = packages[package].get("license") or packages[package].get("license_file")
        if not checksum or not declared:
            raise SystemExit(f"inventory: {name} {version} has no licence or no checksum in the lock of the runtime")
        purl = f"pkg:cargo/{name}@{version}"
        expression = " ".join(declared.replace("/", " OR ").split())
        licensed = {"expression": expression} if packages[package].get("license") else None
        found.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "description": "linked into the runtime",
                "licenses": [licensed or {"license": {"name": declared}}],
                "hashes": [{"alg": "SHA-256", "content": checksum}],
                "purl": purl,
            }
        )
    return found


def runtime_texts(runtime: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the licence files of crates, by purl; some crates have none."""
    found = {}
    for folder in sorted((runtime / "licenses").iterdir()):
        # `name-1.2.3`, `name-1.2.3+build`: the version begins at the first dash before a digit and a dot.
        name, version = re.split(r"-(?=\d+\.)", folder.name, maxsplit=1)
        files = [(path.name, path.read_text(encoding="utf-8", errors="replace")) for path in sorted(folder.iterdir())]
        found[f"pkg:cargo/{name}@{version}"] = files
    return found


def _runtime(package: dict[str, Any], runtime: Path) -> dict[str, Any]:
    purl = f"pkg:generic/{package['name']}@{package['version']}"
    return {
        "type": "application",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "description": "the runtime that the default Shim installs",
        "licenses": [{"expression": package["license"]}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((runtime / package["name"]).read_bytes()).hexdigest()}],
        "purl": purl,
    }


def _libraries(text: str) -> Iterator[dict[str, Any]]:
    """Yield the C libraries, which the distribution that builds the runtime provides, one ``name version`` a line."""
    for name, version in map(str.split, text.splitlines()):
        if name not in _LIBRARIES:
            raise SystemExit(f"inventory: the licence of {name}, which is linked into the runtime, is unknown")
        purl = f"pkg:generic/{name}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "description": "linked into the runtime",
            "licenses": [{"expression": _LIBRARIES[name]}],
            "purl": purl,
        }


def _linked(resolve: dict[str, Any]) -> set[str]:
    """Return the ids of the crates that the root depends on, without those of build scripts and tests."""
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in resolve["nodes"]
    }
    found: set[str] = set()
    pending = [*needs[resolve["root"]]]
    while pending:
        package = pending.pop()
        if package not in found:
            found.add(package)
            pending += needs[package]
    return found


def main(root: Path, lock: Path, out: Path, target: Target, parts: Parts) -> None:
    """Write the inventory of the packages installed in ``root``, and of the parts that are no packages."""
    sys.path.insert(0, str(target.tools))
    out.mkdir(parents=True)
    [site] = root.glob("lib/python*/site-packages")
    bom = with_hashes(_installed(root, site, out / SBOM), pins(lock.read_text(encoding="utf-8")), target)
    texts = dict(_texts(site))
    if parts.console is not None:
        bom["components"] += page_components((parts.console / "page/package-lock.json").read_text(encoding="utf-8"))
        texts |= page_texts((parts.console / "static/licences.txt").read_text(encoding="utf-8"))
    if parts.runtime is not None:
        bom["components"] += runtime_components(parts.runtime)
        texts |= runtime_texts(parts.runtime)
    text = json.dumps(bom, indent=1, sort_keys=True) + "\n"
    _validate(text)
    (out / SBOM).write_text(text, encoding="utf-8")
    (out / LICENSES).write_text(license_list(bom, texts), encoding="utf-8")
    shutil.copyfile("LICENSE", out / "LICENSE")
    if target.base is not None:
        shutil.copyfile(target.base, out / BASE)
    elif dpkg := shutil.which("dpkg-query"):
        form = "-f=${Package} ${Version} ${Architecture}\n"
        (out / BASE).write_bytes(subprocess.run([dpkg, "-W", form], check=True, capture_output=True).stdout)


def _python(version: str) -> dict[str, Any]:
    return {
        "type": "platform",
        "bom-ref": f"python=={version}",
        "name": "python",
        "version": version,
        "description": "of the base image",
        "licenses": [{"license": {"id": "PSF-2.0"}}],
        "purl": f"pkg:generic/python@{version}",
    }


def _installed(root: Path, site: Path, file: Path) -> dict[str, Any]:
    """Return the SBOM that CycloneDX's tool writes for the environment."""
    arguments = ["environment", "--pyproject", "pyproject.toml", "--output-reproducible", "-o", str(file)]
    sys.argv = ["cyclonedx-py", *arguments, str(root / "bin" / "python3")]
    try:
        runpy.run_module("cyclonedx_py", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    bom: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for component in bom["components"]:
        if not component.get("licenses"):
            component["licenses"] = _named_license(site, component["name"])
    return bom


def _named_license(site: Path, name: str) -> list[dict[str, Any]]:
    """Return the licence name of a package that is not an SPDX identifier; the tool omits such names."""
    [distribution] = distributions(name=name, path=[str(site)])
    licence = str(distribution.metadata.json.get("license", "")).strip()
    return [{"license": {"name": licence, "acknowledgement": "declared"}}] if licence and "\n" not in licence else []


def _validate(text: str) -> None:
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - of the tools
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415 - of the tools

    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise SystemExit(f"inventory: the SBOM is not valid: {wrong}")


def _texts(site: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield names of distributions, and their licence files with text."""
    for info in sorted(site.glob("*.dist-info")):
        name = normalised(info.name.removesuffix(".dist-info").rpartition("-")[0])
        files = sorted(path for path in info.rglob("*") if path.is_file() and _is_license(path.relative_to(info)))
        read = [(str(path.relative_to(info)), path.read_text(encoding="utf-8", errors="replace")) for path in files]
        yield name, read


def _is_license(path: Path) -> bool:
    return path.parts[0] in {"licenses", "license_files"} or path.name.upper().startswith(
        ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="directory of an assembled image")
    parser.add_argument("lock", type=Path, help="lock of its packages")
    parser.add_argument("out", type=Path, help="directory of the inventory")
    parser.add_argument("--console", type=Path, help="sources of the console, whose page is in the image")
    parser.add_argument("--runtime", type=Path, help="result of build.sh of the runtime, which is in the image")
    parser.add_argument("--machine", default=platform.machine(), help="machine of the image, as `uname -m` reports it")
    parser.add_argument("--python", default=platform.python_version(), help="version of its Python interpreter")
    parser.add_argument("--base", type=Path, help="list of the packages of its base; default: those of this machine")
    parser.add_argument("--tools", type=Path, default=TOOLS, help="directory of the packages of the tools")
    options = parser.parse_args()
    made_for = Target(options.machine, options.python, options.base, options.tools)
    main(options.root, options.lock, options.out, made_for, Parts(options.console, options.runtime))
