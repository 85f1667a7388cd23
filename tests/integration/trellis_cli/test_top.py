"""`trellis top` before a real API server: once, as lines for programs, on a terminal, and as who may see little."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http
import json
import os
import pty
import re
import secrets
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.console import seen_objects as objects
from support.console.viewing import READ_ALL, Accounts
from support.guests.controllers_world import define
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster
SECONDS = 60.0


@pytest.fixture
def accounts(cluster_api: Api, namespace: str) -> Iterator[Accounts]:
    define(cluster_api)
    found = Accounts(cluster_api, namespace)
    yield found
    found.leave()


@pytest.fixture
def node(cluster_api: Api) -> Iterator[str]:
    name = f"topmost-{secrets.token_hex(4)}"
    made = {"apiVersion": "v1", "kind": "Node"} | objects.node(name)
    assert cluster_api.call("POST", "/api/v1/nodes", made)[0] == http.HTTPStatus.CREATED
    yield name
    cluster_api.call("DELETE", f"/api/v1/nodes/{name}")


def environment(kubeconfig: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE", "NO_COLOR"))}
    return own | {"TRELLIS_KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trellis_cli", "top", *arguments]


def once(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(kubeconfig),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def kubeconfig_of(cluster: ClusterInfo, token: str, path: Path) -> Path:
    given: dict[str, Any] = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    given["users"] = [{"name": user["name"], "user": {"token": token}} for user in given["users"]]
    path.write_text(yaml.safe_dump(given))
    return path


def opt_in(api: Api, node: str, value: str) -> None:
    patch = {"metadata": {"annotations": {"kwasm.sh/kwasm-node": value}}}
    assert api.call("PATCH", f"/api/v1/nodes/{node}", patch)[0] == http.HTTPStatus.OK


@pytest.mark.thorough
def test_once_it_prints_what_there_is_and_what_keeps_it_from_more(
    cluster: ClusterInfo, cluster_api: Api, accounts: Accounts, node: str, tmp_path: Path
) -> None:
    opt_in(cluster_api, node, "maybe")
    admin = Path(cluster.kubeconfig)
    done = once(admin, "nodes", "--once", "--filter", node)
    assert done.returncode == 0, done.stderr
    [heading, line] = done.stdout.splitlines()
    assert heading.split()[:2] == ["NAME", "HEALTH▼"]
    assert re.match(rf"{node} +Degraded +InvalidAnnotation .*maybe", line), line

    document = json.loads(once(admin, "--once", "--filter", node, "-o", "json").stdout)
    assert list(document["entities"]) == [f"node/{node}"]
    assert document["entities"][f"node/{node}"]["opt_in"] == "invalid"
    assert document["lacking"] == []

    token = accounts.create("tenant")
    accounts.allow("tenant", READ_ALL, namespace=accounts.namespace)
    tenant = kubeconfig_of(cluster, token, tmp_path / "kubeconfig")
    refused = once(tenant, "nodes", "--once")
    assert refused.returncode == 1
    assert "list nodes" in refused.stderr
    assert node not in refused.stdout
    confined = once(tenant, "controllers", "--namespace", accounts.namespace, "--once")
    assert (confined.returncode, confined.stdout) == (0, "no controllers\n"), confined.stderr
    assert once(tenant, "--once", "-o", "json").returncode == 0, "all that may be seen is what was asked for"


async def test_its_output_for_programs_contains_each_change(cluster: ClusterInfo, cluster_api: Api, node: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command("nodes", "--filter", node, "-o", "json"),
        env=environment(Path(cluster.kubeconfig)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            first = json.loads(await process.stdout.readline())
            assert (
                first["set"][f"node/{node}"]["opt_in"] == "false"
                or first["set"][f"node/{node}"]["phase"] == "NotOptedIn"
            )
            opt_in(cluster_api, node, "maybe")
            while True:
                change = json.loads(await process.stdout.readline())
                if change["set"].get(f"node/{node}", {}).get("opt_in") == "invalid":
                    break
            cluster_api.call("DELETE", f"/api/v1/nodes/{node}")
            while f"node/{node}" not in change["deleted"]:
                change = json.loads(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


class Terminal:
    """`trellis top` on a terminal of its own, which remembers all that was drawn."""

    def __init__(self, kubeconfig: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
        self.former = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            command(*arguments), env=environment(kubeconfig), stdin=slave, stdout=slave, stderr=slave
        )
        os.set_blocking(self.master, False)
        self.drawn = ""

    def press(self, text: str) -> None:
        """Send keys; what was drawn before them counts no more."""
        self._read()
        self.drawn = ""
        os.write(self.master, text.encode())

    async def until(self, holds: Callable[[str], object]) -> str:
        async with asyncio.timeout(SECONDS):
            while not holds(self.drawn):
                assert self.process.poll() is None, self.drawn
                self._read()
                await asyncio.sleep(0.02)
        return self.drawn

    async def ended(self) -> int:
        async with asyncio.timeout(SECONDS):
            while self.process.poll() is None:
                self._read()
                await asyncio.sleep(0.02)
        self._read()
        return int(self.process.returncode)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while block := os.read(self.master, 65536):
                self.drawn += block.decode(errors="replace")


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["q", "Ctrl-C", "kill"])
async def test_on_a_terminal_a_change_is_drawn_keys_count_and_it_is_left_as_it_was(
    cluster: ClusterInfo, cluster_api: Api, accounts: Accounts, node: str, end: str
) -> None:
    assert accounts.namespace
    terminal = Terminal(Path(cluster.kubeconfig))
    try:
        await terminal.until(lambda drawn: "q quit" in drawn and " nodes" in drawn)
        terminal.press(f"/{node}\r")
        await terminal.until(lambda drawn: re.search(r" 1 match", drawn) and f"filter: {node} " in drawn)
        terminal.press("")
        opt_in(cluster_api, node, "maybe")
        await terminal.until(lambda drawn: "InvalidAnnotation" in drawn and f"trellis explain node/{node}" in drawn)
        terminal.press("7")
        await terminal.until(lambda drawn: "WAKES" in drawn)
        if end == "q":
            terminal.press("q")
        else:  # SIGINT is what a terminal that is a session's own makes of Ctrl-C
            terminal.process.send_signal(signal.SIGINT if end == "Ctrl-C" else signal.SIGTERM)
        assert await terminal.ended() == (130 if end == "Ctrl-C" else 0)
        assert "Traceback" not in terminal.drawn
        assert "\x1b[?1049l" in terminal.drawn, "the screen is what it was"
        assert termios.tcgetattr(terminal.slave) == terminal.former, "letters are shown again"
    finally:
        terminal.close()


@pytest.mark.thorough
def test_an_unreachable_server_and_an_invalid_column_are_one_line(tmp_path: Path, cluster: ClusterInfo) -> None:
    given = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    given["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    unavailable = tmp_path / "away"
    unavailable.write_text(yaml.safe_dump(given))
    done = once(unavailable, "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert "https://127.0.0.1:1" in done.stderr
    assert "--kubeconfig" in done.stderr
    wrong = once(unavailable, "shims", "--sort", "wakes")
    assert wrong.returncode == 2
    for named in ("--sort: ", "'wakes'", "name", "health", "phase"):
        assert named in wrong.stderr
