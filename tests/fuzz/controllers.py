"""Kills a host of thirty-six controllers again and again, seed after seed, until one fails.

In: how many seeds, and the first. Out: pytest's output for each, and its exit status. Each seed takes half a minute and
a real API server of its own session. A seed that fails is run again by itself with ``--first SEED --seeds 1``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).parents[1] / "integration" / "controller_host" / "test_killed.py"


def main() -> int:
    """Run the seeds in one session."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    environment = os.environ | {"KILLED_SEEDS": ",".join(map(str, seeds))}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--durations=0", str(TEST)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
