"""Runs the commands of the demo, as the report shows them.

In: words of a command line; the variables that the report prints. Out: the output and the exit status. Called by
``scenario`` and ``real_node``. Invariant: of the variables of Trellis, a command gets only these, so that a user who
exports them gets the same result.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from trellis_cli.common.errors import CommandError
from trellis_dev.demo.shims import Manifest
from trellis_dev.localcluster import ClusterInfo


@dataclass(frozen=True, slots=True)
class Shown:
    """A command that ended, its exit status, and its output without the last line feed."""

    arguments: tuple[str, ...]
    status: int
    output: str

    @property
    def line(self) -> str:
        """The command for a shell."""
        return shlex.join(self.arguments)

    def document(self) -> dict[str, object]:
        """Return the command for JSON."""
        return {"command": list(self.arguments), "status": self.status, "output": self.output}


def own_command() -> str:
    """Return how a shell of the user starts ``trellis``: by its name if it is on the PATH, else by its path."""
    beside = Path(sys.executable).with_name("trellis")
    if shutil.which("trellis"):
        return "trellis"
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m trellis_cli"


def exports(cluster: ClusterInfo) -> dict[str, str]:
    """Return the variables by which kubectl and trellis use a cluster, without ``PATH``."""
    variables = {"KUBECONFIG": str(cluster.kubeconfig), "TRELLIS_NATS_URL": cluster.nats_url}
    return variables | ({"TRELLIS_JAEGER_URL": cluster.jaeger_url} if cluster.jaeger_url else {})


def export_lines(cluster: ClusterInfo) -> list[str]:
    """Return the commands for a shell that set these variables, and ``PATH``."""
    programs = [path for path in (Path(sys.executable).parent,) if (path / "trellis").exists()]
    path = ":".join(shlex.quote(str(program)) for program in (*programs, cluster.bin_dir))
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in exports(cluster).items())
    return [f"export {variables}", f'export PATH={path}:"$PATH"']


def write_manifest(folder: Path, name: str, manifest: Manifest) -> Path:
    """Write a manifest for ``kubectl apply -f``, and return its path."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Commands:
    """Commands for one cluster; ``own``: the environment of this process without variables of Trellis."""

    cluster: ClusterInfo
    own: Mapping[str, str]

    async def run(self, *arguments: str, statuses: tuple[int, ...] = (0,)) -> Shown:
        """Run ``kubectl …`` or ``trellis …`` and return its output.

        Raises:
            CommandError: it ended with a status that is not in ``statuses``.
        """
        program = {
            "kubectl": (str(self.cluster.bin_dir / "kubectl"),),
            "trellis": (sys.executable, "-m", "trellis_cli"),
        }[arguments[0]]
        process = await asyncio.create_subprocess_exec(
            *program,
            *arguments[1:],
            env={**self.own, **exports(self.cluster)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        shown = Shown(arguments, await process.wait(), out.decode(errors="replace").rstrip("\n"))
        if shown.status not in statuses:
            raise CommandError(f"{shown.line} ended with {shown.status}: {err.decode(errors='replace').strip()}")
        return shown
