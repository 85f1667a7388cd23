"""Puts what an image holds together, in the stage that builds it; the image itself gets the result and none of this.

In: the name of an image, the locked packages in /packages, our sources and pyproject.toml in the working directory.
Out: an environment of Python in the image's directory, without pip or anything else that installs; bytecode that needs
no check; our commands. Called by the Dockerfiles beside it; standard library only. Invariant: nothing is fetched.
"""

from __future__ import annotations

import compileall
import shutil
import sys
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
    """What of ours an image has (files and directories), which commands, and where all of it lies."""

    root: Path
    sources: tuple[str, ...]
    commands: tuple[str, ...]
    """Names of console scripts; none is all."""


IMAGES: Final = {
    "services": Contents(Path("/opt/trellis"), ("services/*", "shared/trellis"), ()),
    "installer": Contents(
        Path("/opt/trellis-installer"),
        ("services/node_installer", "shared/trellis/__init__.py", "shared/trellis/installer_api", "shared/trellis/oci"),
        ("trellis-node-installer",),
    ),
}

_NOT_OURS: Final = ("page",)
"""Below our sources: what the console's page is built from, which is not what is served."""

PAGE: Final = Path("services/console/static/index.html")
"""What the console serves; built before, since nothing is fetched here."""

UNUSED: Final = (
    # Services speak raw JSON over the client's session, and never by its generated classes: half of all packages' size.
    *(f"kubernetes/{client}/{part}/[!_]*.py" for client in ("client", "aio/client") for part in ("api", "models")),
    "*/tests",
    "bin",  # commands of others
    "**/*.pyi",
)
"""What nothing here imports, as patterns below the packages."""


def assemble(image: Contents, packages: Path, project: dict[str, Any]) -> Path:
    """Make an image's environment and return the directory of its packages, which were in ``packages`` before."""
    venv.create(image.root, with_pip=False, symlinks=True)
    for script in (image.root / "bin").glob("[aA]ctivate*"):
        script.unlink()
    shutil.rmtree(image.root / "include")
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(image.root)}))
    shutil.copytree(packages, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.lock"))
    _remove_unused(site)
    for pattern in image.sources:
        for source in sorted(Path().glob(pattern)):
            _copy(source, site)
    scripts = {name: entry for name, entry in project["scripts"].items() if name in (image.commands or {name})}
    _describe(site, project, scripts)
    for name, entry in scripts.items():
        _command(image.root / "bin", name, entry)
    # Here, because the file system of a container may be read-only, and each run would compile anew.
    if not compileall.compile_dir(site, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH):
        raise SystemExit("assemble: a module does not compile, see above")
    return site


def _copy(source: Path, site: Path) -> None:
    """Copy a package, or a module of one, as it is imported: the first directory is a source root."""
    target = site / Path(*source.parts[1:])
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", *_NOT_OURS))
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)


def _remove_unused(site: Path) -> None:
    """Remove what nothing imports, and its lines in what distributions say of their files."""
    removed = set()
    for pattern in UNUSED:
        for path in sorted(site.glob(pattern)):
            removed |= set(_files(path))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    gone = {str(path.relative_to(site)) for path in removed}
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.split(",")[0] not in gone and not line.startswith("../")]
        record.write_text("".join(kept), encoding="utf-8")


def _files(path: Path) -> Iterator[Path]:
    yield from (one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def _describe(site: Path, project: dict[str, Any], scripts: dict[str, str]) -> None:
    """Write what an installed distribution has: the version, which commands print and spans carry, and the licence."""
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


def _command(directory: Path, name: str, entry: str) -> None:
    module, _, function = entry.partition(":")
    script = directory / name
    lines = [f"#!{directory}/python3", "import sys", f"from {module} import {function}", f"sys.exit({function}())"]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.chmod(0o755)


if __name__ == "__main__":
    if sys.argv[1] == "services" and not PAGE.is_file():
        raise SystemExit("assemble: the console's page is not built: `trellis dev page` in the checkout builds it")
    told = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    print("assembled", assemble(IMAGES[sys.argv[1]], PACKAGES, told))
