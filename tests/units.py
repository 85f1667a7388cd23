"""Runs the unit and contract tests: ``python tests/units.py [OPTION…] [pytest's options]``.

In: the checkout, or with ``--wheel`` the wheels that are built from it, in an environment of their own and beside a
copy of the files: then what is tested is what users install. Each test runs once, in CI with the wheels.
``--quick`` leaves out the tests that ``tests/slow.json`` names, ``--record`` writes that file, and ``--thorough`` runs
only the tests with the mark of that name. Out: pytest's exit status.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from support.suite import slow

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
PARTS = ("tests/unit", "tests/contract")
VARIABLES = {"--quick": slow.LEAVE_OUT_VARIABLE, "--record": slow.RECORD_VARIABLE}


def pytest_of(python: str | Path, tier: str) -> list[str | Path]:
    """Return the command line of pytest with an interpreter for the tests of a tier, a marker expression.

    Some of the slow tests wait, so there is one worker more than cores for them; each worker collects all tests, which
    takes its time too.
    """
    workers = str((os.cpu_count() or 1) + (slow.LEAVE_OUT_VARIABLE not in os.environ))
    return [python, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal", "-m", tier, *PARTS]


def main(options: list[str]) -> int:
    """Run them."""
    tier = "thorough" if "--thorough" in options else "not thorough"
    others = [item for item in options if item not in {"--wheel", "--thorough", *VARIABLES}]
    os.environ.update({VARIABLES[option]: "1" for option in options if option in VARIABLES})
    if "--wheel" not in options:
        return subprocess.run([*pytest_of(sys.executable, tier), *others], cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="trellis-wheel-") as place:
        folder = Path(place)
        python = install(folder)
        copy_files(folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        where = "import trellis as a, trellis_dev as b, node_watcher as c; print(a.__file__, b.__file__, c.__file__)"
        found = subprocess.run(
            [python, "-c", where], cwd=folder, env=environment, check=True, capture_output=True, text=True
        ).stdout
        if any(not path.startswith(str(folder / "venv")) for path in found.split()):
            sys.exit(f"the wheel is not what is imported: {found}")
        command = [*pytest_of(python, tier), "-p", "no:cacheprovider", *others]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def install(folder: Path) -> Path:
    """Build the wheels and install them in an environment of their own; return that environment's interpreter."""
    python = folder / "venv" / "bin" / "python"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    for project in (ROOT, ROOT / "devtools"):
        subprocess.run(build, cwd=project, check=True)
    lock = ROOT / "requirements-dev.lock"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    subprocess.run(
        [UV, "pip", "sync", "--quiet", "--compile-bytecode", "--python", python, "--require-hashes", lock], check=True
    )
    wheels = sorted(folder.glob("*.whl"))
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, "--no-deps", *wheels], check=True)
    return python


def copy_files(folder: Path) -> None:
    """Copy what git knows: tests read manifests, documents, and sources as text."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
