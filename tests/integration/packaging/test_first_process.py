"""SIGTERM has no default action in the first process of a container: our programs end by it while they start, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest

from trellis.services import SERVICES

PATIENCE = 60.0
"""Seconds; a kubelet has 30. What does not hear the signal runs for ever here, as there is no cluster."""
FIRST = "the first import after the handler"
HANDLER = "trellis.installer_api.pid1"
ENDED_BY_SIGTERM = 128 + signal.SIGTERM
AHEAD = 4096
"""Bytes, some 50 imports: how far the program gets while nobody reads what it imports."""
PROGRAMS = {
    **{f"trellis-{service.name}": (FIRST, f"{service.package}.app") for service in SERVICES.values()},
    "trellis run": (FIRST, "typer", "trellis_cli.command_line", "provisioner.handlers"),
    "trellis uninstall --remove-finalizers --yes --timeout=60s": (FIRST, "trellis_cli.commands"),
    "trellis check --no-bus provisioner": (FIRST, "trellis_cli.commands"),
    "trellis-node-installer --help": (FIRST, "node_installer.domain.report"),
}
"""Command lines of images, and the modules after whose import each is told to end."""
CASES = [
    pytest.param(
        *(command, module),
        marks=pytest.mark.thorough if module.endswith(".app") and command != "trellis-node-watcher" else (),
        id=f"{command}-{module}",
    )
    for command, modules in PROGRAMS.items()
    for module in modules
]


@cache
def new_namespace() -> tuple[str, ...]:
    """Return the command that makes the next one process 1 of a PID namespace; empty if this machine allows none."""
    command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    for prefix in (command, (*command, "--user", "--map-root-user")):
        try:
            done = subprocess.run([*prefix, "true"], capture_output=True, check=False)
        except FileNotFoundError:
            return ()
        if done.returncode == 0:
            return prefix
    return ()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Settings with which every service starts, and then waits for a cluster and a bus that are not there."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: away,"
        " contexts: [{name: away, context: {cluster: away, user: me}}],"
        ' clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: me, user: {token: t}}]}'
    )
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "TRELLIS_KUBECONFIG": str(kubeconfig),
        "TRELLIS_NATS_URL": "nats://127.0.0.1:1",
        "TRELLIS_HEALTH_PORT": "0",
        "TRELLIS_CONTROLLER_DATA_DIR": str(tmp_path / "controllers"),
        "PYTHONPROFILEIMPORTTIME": "1",
    }


@pytest.fixture
def started(request: pytest.FixtureRequest, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The program of ``param``, which says on stderr what it imports."""
    if not (prefix := new_namespace()):
        pytest.skip("unshare makes no PID namespace here")
    name, *arguments = request.param.split()
    command = [*prefix, str(Path(sys.executable).with_name(name)), *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pipesize=AHEAD
    ) as process:
        yield process
        process.kill()


def imports_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the names of modules as their imports end."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("import time:"):
            yield line.rpartition("|")[2].strip()


@pytest.mark.parametrize(("started", "moment"), CASES, indirect=["started"])
def test_sigterm_during_startup_ends_it_at_once(started: subprocess.Popen[str], moment: str) -> None:
    names = imports_of(started)
    wanted = HANDLER if moment == FIRST else moment
    assert wanted in names, f"{wanted} is not imported"  # looks at them one by one, up to this one
    while moment == FIRST and next(names).endswith("__main__"):
        pass  # whose own import ends before it sets the handler
    [first] = psutil.Process(started.pid).children()
    first.send_signal(signal.SIGTERM)
    started.communicate(timeout=PATIENCE)
    # After the import of its app a service may run by the time the signal arrives, and then it stops as asked.
    assert started.returncode in ({ENDED_BY_SIGTERM, 0} if moment.endswith(".app") else {ENDED_BY_SIGTERM})
