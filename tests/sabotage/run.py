"""Breaks the product on purpose and sees that a test fails: ``python tests/sabotage/run.py [PART OF A NAME]``.

For each break of ``breaks`` the sources are linked into a directory, one line is changed, and the test that is named
for it runs against them. Out: a line for each break; exit status 1 if a test passed nevertheless, or failed for another
reason than a test's failure (an import that fails is no proof). ``--check`` only sees that each break still has its
place; ``--page`` writes docs/sabotage.md.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sabotage.breaking import SOURCES, Break, copy_broken, misplaced
from sabotage.breaks import BREAKS
from sabotage.page import page

ROOT = Path(__file__).parents[2]
TESTS_FAILED = 1
BROKEN_OFF = 70
AT_ONCE = os.cpu_count() or 1
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
SHOWN = 4000


@dataclass
class Attempt:
    """A break whose test runs in a process of its own; ``output`` is what it prints."""

    broken: Break
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="trellis-sabotage-")
    )
    began: float = field(default_factory=time.monotonic)
    pid: int = 0

    @property
    def output(self) -> Path:
        """Return the file for its output."""
        return Path(self.folder.name) / "output"

    def begin(self) -> None:
        """Begin it; raises MisplacedError."""
        copy_broken(self.broken, ROOT, Path(self.folder.name))
        self.pid = os.fork()
        if not self.pid:
            code = BROKEN_OFF
            try:
                code = self._run()
            except BaseException:  # noqa: BLE001 (whatever it is, it is no test that failed)
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def _run(self) -> int:
        import pytest  # noqa: PLC0415 (loaded before)

        with self.output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(self.folder.name)
        paths = [str(Path(self.folder.name) / name) for name in SOURCES]
        sys.path[:0] = paths
        os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        code = int(pytest.main([*OPTIONS, "--rootdir", self.folder.name, self.broken.test]))
        sys.stdout.flush()
        return code

    def verdict(self, code: int) -> tuple[bool, str]:
        """Return whether the test caught the break, and a line on it."""
        took = f"{time.monotonic() - self.began:.1f} s"
        end_of_output = self.output.read_text(errors="replace")[-SHOWN:]
        self.folder.cleanup()
        if code == TESTS_FAILED:
            return True, f"caught     {self.broken.name} by {self.broken.test} ({took})"
        return False, f"NOT CAUGHT {self.broken.name} by {self.broken.test} ({took})\n{end_of_output}"


def preload() -> None:
    """Import what tests import, and forget what is here: a break costs little more than its test then."""
    sys.path[:0] = [str(ROOT / name) for name in SOURCES]
    for name in ("pytest", "_pytest.assertion.rewrite", "hypothesis", "pytest_asyncio.plugin", "conftest"):
        for plugin in getattr(importlib.import_module(name), "pytest_plugins", ()):
            importlib.import_module(plugin)
    # Before any is forgotten: a folder without a module of its own finds its place through its parent.
    places = {
        name: getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        for name, module in list(sys.modules.items())
    }
    for name, file in places.items():
        if Path(file).is_relative_to(ROOT) and ".venv" not in file and not name.startswith(("sabotage", "__main__")):
            del sys.modules[name]
    del sys.path[: len(SOURCES)]


def attempts(breaks: Sequence[Break]) -> Iterator[tuple[bool, str]]:
    """Try breaks, some at a time; yields the verdicts as they come."""
    preload()
    left, running = list(breaks), dict[int, Attempt]()
    while left or running:
        if left and len(running) < AT_ONCE:
            item = Attempt(left.pop(0))
            item.begin()
            running[item.pid] = item
            continue
        pid, status = os.wait()
        yield running.pop(pid).verdict(os.waitstatus_to_exitcode(status))


def main() -> int:
    """Try all, or those whose name contains the argument."""
    parser = argparse.ArgumentParser(description="Break the product, and see that a test fails for each break.")
    parser.add_argument("part", nargs="*", help="part of the name of a break; default: all")
    parser.add_argument("--check", action="store_true", help="only see that each break still has its place")
    parser.add_argument("--page", action="store_true", help="only write docs/sabotage.md")
    options = parser.parse_args()
    if options.page:
        (ROOT / "docs/sabotage.md").write_text(page(ROOT), encoding="utf-8")
        return 0
    wanted = [item for item in BREAKS if all(part in item.name for part in options.part)]
    if wrong := misplaced(wanted, ROOT):
        print(*wrong, f"{len(wrong)} of {len(wanted)} are not in place", sep="\n")
        return 1
    if options.check:
        print(f"{len(wanted)} are in place")
        return 0
    began, caught = time.monotonic(), 0
    for good, line in attempts(wanted):
        caught += good
        print(line, flush=True)
    print(f"{caught} of {len(wanted)} in {time.monotonic() - began:.0f} s")
    return int(caught != len(wanted))


if __name__ == "__main__":
    sys.exit(main())
