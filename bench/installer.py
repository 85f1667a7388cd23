"""The time and the memory of the installer on a node, without waiting for a network or a runtime.

In: ``--megabytes``, the size of the shim. Out: figures and the machine they were measured on, on stdout. Each run is a
process of its own on a node with containerd 2 (a fixture tree) whose runtime is a stand-in that restarts in no time.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from backports import zstd

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from machine import describe
from node_installer.node.commands import Answer as Reply
from node_installer.node.disk import Disk
from node_installer.operations import Node, perform
from node_installer.session import Session
from node_installer.settings import read_settings
from node_installer.spans import Tracer
from unit.node_installer.world import DATA, FakeRuntime, a_shim, a_spec, sha256

FIXTURE = "containerd-v3-imports"
SHIM = "containerd-shim-spin"
REPEATS = 5
LIMIT_SECONDS = 2.0
LIMIT_MEBIBYTES = 128


def installer(root: Path, image: Path, arguments: list[str]) -> None:
    """Be the installer: its ``main``, but for the node's runtime."""
    settings = read_settings([*arguments, "--node-root", str(root)], os.environ)
    disk = Disk(root)
    runtime = FakeRuntime(disk, version="2.1.4")
    session = Session(settings, lambda _: None, Tracer(None, None), image_root=image)
    result = perform(session, lambda _: Node(disk, runtime.preset, runtime, lambda *_: Reply(0, "Version: 1")))
    # Not what wait4 tells: that counts the parent's memory too, from between fork and exec.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    sys.stdout.write(json.dumps({"outcome": result.outcome, "seconds": result.seconds, "peak": int(peak.split()[1])}))


def a_tar(shim: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(SHIM)
        info.size = len(shim)
        tar.addfile(info, io.BytesIO(shim))
    return buffer.getvalue()


def a_zip(shim: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(SHIM, shim)
    return buffer.getvalue()


class Bench:
    """A node, an image with one shim in each form, and the figures."""

    def __init__(self, work: Path, megabytes: int) -> None:
        self.root, self.image = work / "node", work / "image"
        self.image.mkdir()
        noise = random.Random(1)
        # Programs compress to a third or so.
        body = b"".join(noise.randbytes(1 << 18) + bytes(3 << 18) for _ in range(megabytes))
        self.shim = a_shim() + body
        self.forms: dict[str, bytes] = {
            "bare": self.shim,
            "tar.gz": gzip.compress(a_tar(self.shim)),
            "tar.zst": zstd.compress(a_tar(self.shim), 19),
            "zip": a_zip(self.shim),
        }
        for form, content in self.forms.items():
            (self.image / form).write_bytes(content)

    def spec(self, form: str, location: str = "") -> str:
        """Return a specification that asks for the shim in one form, at an address or in the image."""
        source = {"location": location or f"/{form}", "sha256": sha256(self.forms[form])}
        wanted = {"name": "spin", "handler": "spin", "owner": "bench", "digest": form, "sources": [source]}
        return a_spec(wanted, allowHttp=bool(location))

    def fresh(self) -> None:
        """Make the node one that nothing was installed on."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(DATA / FIXTURE / "tree", self.root, symlinks=True)

    def run(self, outcome: str, *arguments: str) -> tuple[float, float, float]:
        """Return wall time of the process, time that the installer reports, both in seconds, and peak memory in MiB."""
        command = [sys.executable, __file__, "--as-installer", str(self.root), str(self.image), *arguments]
        started = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - started
        result = json.loads(done.stdout)
        assert result["outcome"] == outcome, result
        return seconds, result["seconds"], result["peak"] / 1024

    def show(self, name: str, outcome: str, arguments: list[str], before: Callable[[], object]) -> bool:
        """Print the median of several runs; return whether all were within the limits."""
        figures = []
        for _ in range(REPEATS):
            before()
            figures.append(self.run(outcome, *arguments))
        walls, own, memory = zip(*figures, strict=True)
        print(
            f"{name:<32} {statistics.median(walls):6.2f} s  {statistics.median(own):6.2f} s  "
            f"{max(walls):6.2f} s  {max(memory):6.0f} MiB"
        )
        return max(walls) <= LIMIT_SECONDS and max(memory) <= LIMIT_MEBIBYTES


def main() -> int:
    if sys.argv[1:2] == ["--as-installer"]:
        installer(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=60, help="size of the shim (60)")
    chosen = parser.parse_args()
    print(f"the installer, a shim of {chosen.megabytes} MiB, on {FIXTURE}\n{describe()}")
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        bench = Bench(Path(folder), chosen.megabytes)
        sizes = ", ".join(f"{form} {len(content) / 2**20:.0f}" for form, content in bench.forms.items())
        print(f"in the installer's image, MiB: {sizes}; {REPEATS} runs each, a process each")
        print(f"{'':<32} {'median':>8}  {'its own':>8}  {'slowest':>8}  {'most memory':>10}")
        ok = measure(bench)
    print(f"limits: {LIMIT_SECONDS:g} s a process, {LIMIT_MEBIBYTES} MiB: {'kept' if ok else 'NOT KEPT'}")
    return 0 if ok else 1


def measure(bench: Bench) -> bool:
    """Print one line an operation; return whether all kept the limits."""
    from unit.node_installer.servers import Answer, serving  # noqa: PLC0415 (not into the installer's memory)

    rows = []
    for form in bench.forms:
        install = ["install", "--spec", bench.spec(form)]
        rows.append(bench.show(f"install, {form}", "Installed", install, bench.fresh))
    first, other = ["install", "--spec", bench.spec("zip")], ["install", "--spec", bench.spec("tar.zst")]
    with serving(lambda request: Answer(body=bench.forms[request.path.strip("/")])) as server:
        fetched = ["install", "--spec", bench.spec("tar.zst", f"{server.url}/tar.zst")]
        rows.append(bench.show("install, tar.zst over http", "Installed", fetched, bench.fresh))

    def installed() -> None:
        bench.fresh()
        bench.run("Installed", *first)

    rows.append(bench.show("upgrade, tar.zst", "Installed", other, installed))
    rows.append(bench.show("install, nothing to do", "Unchanged", first, installed))
    rows.append(bench.show("inspect", "Inspected", ["inspect"], installed))
    rows.append(bench.show("uninstall", "Removed", ["uninstall", "--all"], installed))
    return all(rows)


if __name__ == "__main__":
    sys.exit(main())
