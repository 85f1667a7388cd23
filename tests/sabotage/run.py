"""Breaks the product on purpose and sees that a test fails: ``python tests/sabotage/run.py [PART OF A NAME]``.

For each break of ``breaks.py`` the sources are copied, one line is changed, and the test that is named for it runs
against the copy. Out: a line for each break; exit status 1 if a test passed nevertheless, or failed for another reason
than a test's failure (an import that fails is no proof). ``--check`` only sees that each break still has its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sabotage.breaking import SOURCES, Break, MisplacedError, apply
from sabotage.breaks import BREAKS

ROOT = Path(__file__).parents[2]
TESTS_FAILED = 1
AT_ONCE = os.cpu_count() or 1


def copied(place: Path) -> None:
    """Copy what tests need; sources are copied, the rest is linked."""
    for one in ROOT.iterdir():
        if one.name in SOURCES:
            shutil.copytree(one, place / one.name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        elif not one.name.startswith(".") and one.name != "build":
            (place / one.name).symlink_to(one)


def attempt(broken: Break) -> tuple[bool, str]:
    """Return whether a test caught a break, and a line on it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trellis-sabotage-") as folder:
        place = Path(folder)
        copied(place)
        try:
            apply(broken, place)
        except MisplacedError as error:
            return False, f"MISPLACED  {error}"
        paths = [str(place / name) for name in SOURCES]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", folder]
        done = subprocess.run(
            [*command, broken.test], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
    took = f"{time.monotonic() - began:.1f} s"
    if done.returncode == TESTS_FAILED:
        return True, f"caught     {broken.name} by {broken.test} ({took})"
    return False, f"NOT CAUGHT {broken.name} by {broken.test} ({took})\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def check(broken: Break) -> tuple[bool, str]:
    """Return whether a break has its place in the sources, without running anything."""
    with tempfile.TemporaryDirectory(prefix="trellis-sabotage-") as folder:
        copied(Path(folder))
        try:
            apply(broken, Path(folder))
        except MisplacedError as error:
            return False, f"MISPLACED  {error}"
    return True, f"in place   {broken.name}"


def main(arguments: list[str]) -> int:
    """Try all, or those whose name holds the argument."""
    only = [one for one in arguments if not one.startswith("--")]
    wanted = [one for one in BREAKS if all(part in one.name for part in only)]
    caught = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for good, line in pool.map(check if "--check" in arguments else attempt, wanted):
            caught += good
            print(line, flush=True)
    print(f"{caught} of {len(wanted)}")
    return int(caught != len(wanted))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
