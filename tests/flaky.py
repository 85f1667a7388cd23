"""Runs one test many times beside busy processes: ``python tests/flaky.py RUNS TEST...``, or ``make flaky``.

A test that waits for a moment instead of a condition fails here. Out: a line for each run, the output of each run that
failed, and how many failed; exit status 1 if any did.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

_BUSY = "while True: pass"


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Keep every core busy for the time of the block."""
    hogs = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def main(arguments: list[str]) -> int:
    """Run the tests so often; return 1 if any run failed."""
    runs, tests = int(arguments[0]), arguments[1:]
    if not tests:
        sys.exit("name a test: make flaky TEST=tests/…::test_… RUNS=50")
    failed = 0
    with busy():
        for number in range(1, runs + 1):
            began = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                failed += 1
                print(done.stdout, done.stderr, sep="\n")
            outcome = "failed" if done.returncode else "passed"
            print(f"{number}/{runs} {outcome} in {time.monotonic() - began:.1f} s", flush=True)
    print(f"{failed} of {runs} runs failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
