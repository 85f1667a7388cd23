"""`trellis demo`, run as a user runs it, in a state directory of its own.

In: a directory. Out: processes and what they say. Called by the tests of the demo, and of what a kept one shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from trellis_dev.localcluster.supervisor import CLUSTER_VARIABLE

SECONDS = 150.0


@dataclass(frozen=True)
class Machine:
    """The state directory of demos, and a way to run one."""

    state: Path

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBECONFIG"))}
        return own | {"XDG_STATE_HOME": str(self.state), "TMPDIR": str(self.state)}

    @property
    def clusters(self) -> list[str]:
        return [path.name for path in (self.state / "trellis" / "clusters").glob("*") if path.is_dir()]

    def processes(self) -> list[psutil.Process]:
        """Return what runs on behalf of a demo of this machine: it has the token, or the directory in its arguments."""
        found = []
        for process in psutil.process_iter():
            try:
                environment, command = process.environ(), " ".join(process.cmdline())
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
            except (psutil.Error, OSError):
                continue
            if str(self.state) in command or (CLUSTER_VARIABLE in environment and str(self.state) in str(environment)):
                found.append(process)
        return found

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "trellis_cli", *arguments],
            env=self.environment | environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*arguments, stdin=subprocess.DEVNULL, **environment)
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        return process.returncode, out, err

    def assert_clean(self) -> None:
        deadline = time.monotonic() + 20
        while left := self.processes():
            assert time.monotonic() < deadline, [process.cmdline() for process in left]
            time.sleep(0.1)
        assert self.clusters == []
