"""The presets' commands and directories on what they meet: stand-in programs, control groups, mounts that refuse.

Each runs in a mount namespace of its own, where it may mount over the machine's directories.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from node_installer.domain.presets import PRESETS
from support.suite.tiers import first_of
from trellis.installer_api.result import FailureReason
from unit.node_installer.world import DATA, a_spec, a_wanted_shim

WAYS = sorted({(way.kind, way.command) for preset in PRESETS for way in preset.restarts if way.kind != "systemd"})
"""Each way to restart a runtime but systemd's, which the real nodes have."""
LOGGING = '#!/bin/sh\necho "$$ $(basename "$0") $*" >> {log}\n'


def unshare() -> list[str]:
    mount = ["unshare", "--mount", "--propagation", "private"]
    return mount if os.geteuid() == 0 else [*mount, "--user", "--map-root-user"]


def can_unshare() -> bool:
    """Return whether this machine permits a mount namespace."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*unshare(), "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_unshare(), reason="NOT RUN: this machine gives no mount namespace")


def in_namespace(mounts: str, program: str) -> str:
    """Return what a Python program prints once these mounts are made."""
    script = f'set -e\n{textwrap.dedent(mounts)}\nexec {sys.executable} -c "$1"'
    command = [*unshare(), "sh", "-c", script, "sh", textwrap.dedent(program)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def stand_ins(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(LOGGING.format(log=folder.parent / "log"))
        (folder / name).chmod(0o755)


def restarted(folder: Path, command: tuple[str, ...], groups: tuple[str, ...]) -> Any:
    """Run a preset's command on a machine of stand-ins; return its answer, what was called, and the groups' members."""
    stand_ins(folder / "bin", "rc-service", "snap", "kill")
    stand_ins(folder / "init", "containerd")
    mounts = f"""
        mount -t tmpfs none /sys/fs/cgroup
        mount -t tmpfs none /etc
        mkdir /etc/init.d
        cp {folder}/init/* /etc/init.d
        cd /sys/fs/cgroup
        for group in {" ".join(groups)}; do mkdir -p $group; : > $group/cgroup.procs; done
        export PATH={folder}/bin:$PATH
    """
    program = f"""
        import json
        from pathlib import Path
        from node_installer.node.commands import on_node
        answer = on_node(Path("/"))({command!r}, 60.0)
        members = [(Path("/sys/fs/cgroup") / group / "cgroup.procs").read_text().strip() for group in {groups!r}]
        print(json.dumps([answer.code, answer.output, Path({str(folder / "log")!r}).read_text(), members]))
    """
    return json.loads(in_namespace(mounts, program))


@pytest.mark.parametrize("groups", [(".",), ("cpu", "memory", "pids")], ids=["v2", "v1"])
@pytest.mark.parametrize(("kind", "command"), WAYS, ids=[f"{kind}-{command[-1]}" for kind, command in WAYS])
def test_each_command_calls_its_program_outside_of_its_pod(
    kind: str, command: tuple[str, ...], groups: tuple[str, ...], tmp_path: Path
) -> None:
    named = tuple(part.replace("{}", "containerd") for part in command)
    code, output, log, members = restarted(tmp_path, named, groups)
    assert (code, output) == (0, "")
    number, called = log.strip().split(" ", 1)
    assert called == " ".join(named[named.index("sh", 1) + 1 :] if named[0] == "sh" else named).split("/")[-1]
    # A daemon that is started by our child must not die with our pod.
    assert members == ([number] * len(groups) if kind in ("openrc", "init.d") else [""] * len(groups))


def test_a_program_the_node_lacks_is_reported(tmp_path: Path) -> None:
    stand_ins(tmp_path / "bin")
    [way] = [command for kind, command in WAYS if kind == "openrc"]
    program = f"""
        from pathlib import Path
        from node_installer.node.commands import on_node
        answer = on_node(Path("/"))({way!r}, 60.0)
        print(answer.code, answer.output)
    """
    mounts = "mount -t tmpfs none /sys/fs/cgroup\n: > /sys/fs/cgroup/cgroup.procs"
    code, _, output = in_namespace(mounts, program).partition(" ")
    assert int(code) == 127
    assert "rc-service" in output


def installer(folder: Path, fixture: str, mounts: str, *arguments: str) -> str:
    """Run the installer as it is in its image on a node's tree with mounts below ``$NODE``; return what it prints."""
    shutil.copytree(DATA / fixture / "tree", folder / "node", symlinks=True)
    (folder / "image").mkdir()
    (folder / "spec.json").write_text(a_spec(a_wanted_shim(folder / "image")))
    call = ["install", "--node-root", str(folder / "node"), "--spec", str(folder / "spec.json"), *arguments]
    program = f"""
        import subprocess, sys
        answer = subprocess.run([sys.executable, "-m", "node_installer", *{call!r}], capture_output=True, text=True)
        print(answer.returncode, answer.stdout, answer.stderr)
    """
    return in_namespace(f"NODE={folder}/node; mkdir -p $NODE/opt $NODE/var/lib; {mounts}", program)


@pytest.mark.parametrize(
    ("options", "expected_text"),
    first_of([pytest.param("ro", "read-only file system"), pytest.param("noexec", "noexec")]),
    ids=["read-only", "noexec"],
)
def test_a_node_that_no_shim_can_lie_on_is_refused(options: str, expected_text: str, tmp_path: Path) -> None:
    mounts = f"for one in opt var/lib; do mount -t tmpfs -o {options} none $NODE/$one; done"
    printed = installer(tmp_path, "containerd-v2", mounts, "-o", "json")
    assert printed.startswith("1 ")
    assert f'"reason":"{FailureReason.READ_ONLY_TARGET}"' in printed.replace(" ", "").replace('":"', '":"')
    assert expected_text in printed
    assert "/opt/trellis" in printed
    assert "/var/lib/trellis" in printed


@pytest.mark.thorough
def test_another_directory_is_used_if_opt_is_read_only(tmp_path: Path) -> None:
    printed = installer(tmp_path, "containerd-v2", "mount -t tmpfs -o ro none $NODE/opt", "--dry-run")
    assert "/var/lib/trellis/bin/containerd-shim-spin" in printed
    assert "/opt/trellis" not in printed


def test_on_container_optimized_os_shims_lie_where_something_can_be_executed(tmp_path: Path) -> None:
    """Its root is read-only, /var is mounted noexec, and only kubelet's own directory is as needed."""
    mounts = """
        mkdir -p $NODE/home/kubernetes/bin
        mount --bind $NODE $NODE
        mount -t tmpfs -o noexec none $NODE/var/lib
        mount -t tmpfs none $NODE/home/kubernetes/bin
        mount -o remount,bind,ro $NODE
    """
    printed = installer(tmp_path, "gke-cos", mounts, "--dry-run")
    assert printed.startswith("0 "), printed
    assert "/home/kubernetes/bin/trellis/bin/containerd-shim-spin" in printed
