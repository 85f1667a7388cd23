"""``make test-e2e``: the parts that need more than ``make test`` has, each run or named as NOT RUN with the reason.

Exit status: 0 all parts passed, 1 a part failed, 3 nothing failed but a part was not run. Never 0 with a part left out.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NOT_RUN = 3


@dataclass(frozen=True)
class Part:
    """A part of the suite: its name, its tests, and why it cannot run here (None if it can)."""

    name: str
    tests: Path
    missing: Callable[[], str | None]


def _not_yet(option: str) -> Callable[[], str | None]:
    """Return the reason a local cluster gives for an option it does not have, asking the command itself."""

    def ask() -> str | None:
        command = [sys.executable, "-m", "trellis_bundle", "dev", "up", "--name", "e2e-probe", option]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return None if answer.returncode == 0 else answer.stderr.strip().splitlines()[-1]

    return ask


HERE = Path(__file__).parent
PARTS = (
    Part("a real node with kubelet and containerd", HERE / "real_node", _not_yet("--real-node")),
    Part("a real wasmCloud lattice with wadm", HERE / "lattice", _not_yet("--wadm")),
)


def main() -> int:
    """Run what can be run; print one line a part."""
    failed = left_out = 0
    for part in PARTS:
        if (reason := part.missing()) is not None:
            print(f"NOT RUN  {part.name}: {reason}")
            left_out += 1
            continue
        code = subprocess.run([sys.executable, "-m", "pytest", "-q", str(part.tests)], check=False).returncode
        print(f"{'passed ' if code == 0 else 'FAILED '}  {part.name}")
        failed += code != 0
    return 1 if failed else NOT_RUN if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
