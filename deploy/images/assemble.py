"""Assembles the contents of an image in its build stage; only the result is copied into the image.

In: the name of an image, the locked packages in /packages, the sources and pyproject.toml in the working directory.
Out: a Python environment in the image's directory without pip or other installers, bytecode that is not checked against
its source, and the commands. Called by the Dockerfiles in this directory, and by releases, which give other directories
for packages and result; standard library only. Invariants: nothing is downloaded, and no file of a package is run, so
that the packages can be those of another architecture.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any, Final

PACKAGES: Final = Path("/packages")


@dataclass(frozen=True)
class Contents:
    """The sources (files and directories) and commands of an image, and the directory of its environment."""

    root: Path
    sources: tuple[str, ...]
    commands: tuple[str, ...]
    """Names of console scripts; empty means all."""


IMAGES: Final = {
    "services": Contents(Path("/opt/trellis"), ("services/*", "shared/trellis"), ()),
    "installer": Contents(
        Path("/opt/trellis-installer"),
        ("services/node_installer", "shared/trellis/__init__.py", "shared/trellis/installer_api", "shared/trellis/oci"),
        ("trellis-node-installer",),
    ),
}

_NOT_OURS: Final = ("page",)
"""Directories that are not copied: the sources of the console's page, which are not served."""

PAGE: Final = Path("services/console/static/index.html")
"""Page that the console serves; it is built before, because this build downloads nothing."""

UNUSED: Final = (
    # Services send raw JSON by the client's session. Its generated classes, half the size of all packages, are unused.
    *(f"kubernetes/{client}/{part}/[!_]*.py" for client in ("client", "aio/client") for part in ("api", "models")),
    "*/tests",
    "bin",  # commands of packages
    "**/*.pyi",
)
"""Files that Trellis does not import, as patterns relative to the packages."""


def assemble(image: Contents, packages: Path, project: dict[str, Any], root: Path | None = None) -> Path:
    """Create an image's environment with the packages in ``packages`` and return the directory of its packages.

    ``root``: where it is created; by default where it is in the image.
    """
    root = root or image.root
    venv.create(root, with_pip=False, symlinks=True)
    for script in (root / "bin").glob("[aA]ctivate*"):
        script.unlink()
    shutil.rmtree(root / "include")
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(root)}))
    shutil.copytree(packages, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.lock"))
    _remove_unused(site)
    for pattern in image.sources:
        for source in sorted(Path().glob(pattern)):
            _copy(source, site)
    scripts = {name: entry for name, entry in project["scripts"].items() if name in (image.commands or {name})}
    _describe(site, project, scripts)
    for name, entry in scripts.items():
        _command(root / "bin" / name, image.root / "bin", entry)
    # Compiled here, because containers may have a read-only file system and would compile at each start.
    mode = PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(site, quiet=1, stripdir=root, prependdir=image.root, invalidation_mode=mode):
        raise SystemExit("assemble: a module does not compile, see above")
    return site


def _copy(source: Path, site: Path) -> None:
    """Copy a package or a module to its import path: the first directory is a source root."""
    target = site / Path(*source.parts[1:])
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", *_NOT_OURS))
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)


def _remove_unused(site: Path) -> None:
    """Remove unused files, and their lines in the RECORD files of distributions."""
    removed = set()
    for pattern in UNUSED:
        for path in sorted(site.glob(pattern)):
            removed |= set(_files(path))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    deleted = {str(path.relative_to(site)) for path in removed}
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.split(",")[0] not in deleted and not line.startswith("../")]
        record.write_text("".join(kept), encoding="utf-8")


def _files(path: Path) -> Iterator[Path]:
    yield from (item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]


def _describe(site: Path, project: dict[str, Any], scripts: dict[str, str]) -> None:
    """Write the metadata of an installed distribution: version (for commands and spans), licence, entry points."""
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    (info / "licenses").mkdir(parents=True)
    shutil.copyfile("LICENSE", info / "licenses" / "LICENSE")
    fields = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
        "License-File": "LICENSE",
    }
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()), encoding="utf-8")
    commands = "".join(f"{name} = {entry}\n" for name, entry in sorted(scripts.items()))
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{commands}", encoding="utf-8")


def _command(script: Path, directory: Path, entry: str) -> None:
    """Write a command; ``directory``: that of the interpreter in the image."""
    module, _, function = entry.partition(":")
    lines = [f"#!{directory}/python3", "import sys", f"from {module} import {function}", f"sys.exit({function}())"]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.chmod(0o755)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", choices=IMAGES)
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="directory of the locked packages")
    parser.add_argument("--root", type=Path, help="directory of the result; default: as in the image")
    arguments = parser.parse_args()
    if arguments.image == "services" and not PAGE.is_file():
        raise SystemExit("assemble: the console's page is not built: run `trellis dev page` in the checkout")
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    print("assembled", assemble(IMAGES[arguments.image], arguments.packages, project, arguments.root))
