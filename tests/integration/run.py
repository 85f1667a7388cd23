"""Runs the integration tests two at a time; a few that fail are tried once more, by themselves, and named as FLAKY.

They run real servers on machines that others use too: a process that got no processor for its deadline is no fault of
what is tested. A fault fails again. Failures in more than ``FEW`` files are no coincidence and are not tried again
(files, because a cluster that was not got in time is a failure of each test that shares it).

The services of tests have the rights of ``deploy/rbac`` and no others: a refusal, and a rule that no test used, are
failures too.

Exit status: pytest's; 0 also if all that failed among the others passed alone; 1 for wrong rights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import day
from support.suite_rights import FOLDER_VARIABLE, faults

HERE = Path(__file__).parent
FEW = 3
TESTS_FAILED = 1
LEFT_OPEN = ("-W", "default::pytest.PytestUnraisableExceptionWarning")
"""A socket that nobody closed is found when garbage is collected, in a later test: shown at the end, not its fault."""


def run(tests: list[str], *options: str) -> tuple[int, list[str]]:
    """Run tests; return pytest's exit status, and the names of those that failed, as pytest takes them."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "pytest", "-q", *LEFT_OPEN, *tests, *options, "-o", f"cache_dir={cache}"]
        status = subprocess.run(command, check=False).returncode
        # What `--last-failed` reads. A report in JUnit's form has a base class's file for an inherited test.
        failed = Path(cache) / "v" / "cache" / "lastfailed"
        return status, list(json.loads(failed.read_bytes())) if failed.exists() else []


def main(options: list[str]) -> int:
    """Run all, and once more what failed, if that is little; look at the rights that were used."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        status = run_all(options)
        wrong = faults(Path(folder), whole=status == 0)
    for one in wrong:
        print(f"RIGHTS  {one}", flush=True)
    return status or int(bool(wrong))


def run_all(options: list[str]) -> int:
    """Run all, and once more what failed, if that is little; return pytest's exit status."""
    # What is tried once more after midnight is what failed before.
    os.environ.setdefault(day.VARIABLE, datetime.now(UTC).date().isoformat())
    status, names = run([str(HERE)], "-n", "2", "--dist", "loadgroup", *options)
    if status != TESTS_FAILED or not 0 < len({name.partition("::")[0] for name in names}) <= FEW:
        return status
    print(f"once more, by themselves: {', '.join(names)}", flush=True)
    again, still = run(names)
    for name in names:
        print(f"{'FAILED' if name in still or again > TESTS_FAILED else 'FLAKY (passed alone)'}  {name}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
