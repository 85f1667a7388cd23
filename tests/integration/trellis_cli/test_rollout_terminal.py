"""`trellis rollout status --watch` on a terminal of its own: a bar that moves, and the right end."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


def watch(fleet: Fleet, shim: str) -> tuple[int, str]:
    """Return the exit status and all that was drawn."""
    master, slave = pty.openpty()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE", "NO_COLOR"))}
    environment = own | {
        "TRELLIS_KUBECONFIG": str(fleet.info.kubeconfig),
        "TRELLIS_NAMESPACE": fleet.system,
        "TRELLIS_CLAIM_NAMESPACE": fleet.system,
        "TRELLIS_INSTALLER_NAMESPACE": fleet.installers,
        "TERM": "xterm-256color",
        "COLUMNS": "100",
    }
    command = [sys.executable, "-m", "trellis_cli", "rollout", "status", shim, "--watch", "--timeout", "100s"]
    with subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        drawn = b""
        try:
            while block := os.read(master, 4096):
                drawn += block
        except OSError:  # the terminal's other end is closed
            pass
        finally:
            os.close(master)
    return process.returncode, drawn.decode(errors="replace")


async def test_on_a_terminal_a_bar_moves_until_the_rollout_is_complete(fleet: Fleet, shim: Shim) -> None:
    shim.add_nodes(3)
    async with fleet.services(), kubelets(fleet):
        shim.apply(path="take-5s")
        status, drawn = await asyncio.to_thread(watch, fleet, shim.name)
        assert status == 0, drawn
        assert "\x1b[" in drawn  # it is drawn anew in its place
        counts = list(dict.fromkeys(re.findall(r"(\d) ?(?:/|of) ?3", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn))))
        assert counts[-1] == "3", drawn
        assert len(counts) > 1, drawn
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
