"""A profile of a start: ``python bench/load/profile.py [--full N,A,L,C] [--separate] [--without]``.

In: nothing; it makes the world of ``run.py`` at one size. Out, on stdout with the machine: of a start with
everything new, and of one with nothing left to do, when each part was ready, what the process took, and by
``py-spy`` the functions in which it ran Python: by themselves, with all that they called, and those of Trellis with
all that they called. ``--without`` profiles nothing, as a profiler stops its processes a hundred times a second:
then figures are as of ``run.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from load.bundle import SERVICES, Bundle, running, until_ready
from load.measuring import measure
from load.run import quiet, settled
from load.sizes import Size
from load.world import World, world
from trellis_dev.localcluster.ports import LOOPBACK

_SIZE: Final = Size(1000, 300, 30, 0)
_RATE: Final = 100
_MOST_SECONDS: Final = 600
_SHOWN: Final = 25
_LOOK_SECONDS: Final = 0.05
_END_SECONDS: Final = 60.0
_PACKAGES: Final = "site-packages/"
_OURS: Final = frozenset({"trellis", "trellis_cli", *(name.replace("-", "_") for name in SERVICES)})


@dataclass
class Timeline:
    """When each part of each service was not ready last, in seconds from the start; sampled in a thread."""

    bundle: Bundle
    last: dict[str, float] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look until stopped."""
        while not self.stopped.wait(_LOOK_SECONDS):
            for port in self.bundle.ports.values():
                for reason in _reasons(port):
                    self.last[reason] = time.monotonic() - self.bundle.began

    def lines(self) -> Iterator[str]:
        """Yield the latest parts first."""
        for reason, at in sorted(self.last.items(), key=lambda item: -item[1]):
            yield f"{at:7.2f} s  {reason}"


def _reasons(port: int) -> Iterator[str]:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=10) as answer:
            body = json.load(answer)
    except urllib.error.HTTPError as error:
        body = json.load(error)
    except OSError:
        yield "the health port"
        return
    for service, readiness in body["services"].items():
        yield from (f"{service}: {reason.partition(':')[0]}" for reason in readiness["reasons"])


@contextmanager
def profiled(bundle: Bundle, directory: Path) -> Iterator[None]:
    """Sample the processes with py-spy for the time of a block; what it saw is in the directory, a file for each."""
    program = Path(sys.executable).with_name("py-spy")
    started = []
    for name, item in bundle.processes.items():
        file = directory / f"{name or 'bundle'}.raw"
        # Whoever has the interpreter's lock: on a busy machine threads that wait look as if they worked.
        options = ["--gil", "--format", "raw", "--function", "--rate", str(_RATE), "--duration", str(_MOST_SECONDS)]
        argv = [str(program), "record", "--pid", str(item.pid), *options, "--output", str(file)]
        started.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        for profiler in started:
            profiler.send_signal(signal.SIGINT)
        for profiler in started:
            profiler.wait(_END_SECONDS)


def own_and_total(stacks: Iterable[str]) -> tuple[Counter[str], Counter[str], int]:
    """Return samples by function, by itself and with what it called, and all; ``stacks``: ``frame;frame count``."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = [_short(frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            total[frame] += int(count)
    return own, total, own.total()


def _short(frame: str) -> str:
    name, _, place = frame.partition(" (")
    return f"{name} ({place.rpartition(_PACKAGES)[2].removeprefix(str(Path.cwd())).lstrip('/')}"


def _is_ours(name: str) -> bool:
    return name.partition(" (")[2].partition("/")[0] in _OURS


def show(directory: Path) -> None:
    """Print the functions of all profiles in a directory, and remove these."""
    for file in sorted(directory.glob("*.raw")):
        own, total, samples = own_and_total(file.read_text().splitlines())
        file.unlink()
        print(f"  {file.stem}: {samples} samples, {samples / _RATE:.1f} s")
        ours = Counter({name: count for name, count in total.items() if _is_ours(name)})
        for title, counted in (("own", own), ("total", total), ("total, of Trellis", ours)):
            print(f"    {title}")
            for name, count in counted.most_common(_SHOWN):
                print(f"      {100 * count / samples:5.1f} %  {name}")


async def start(made: World, directory: Path, options: argparse.Namespace, *, new: bool) -> None:
    """Start Trellis once, and print what that took."""
    with running(made.environment(directory), directory, made.monitors, separate=options.separate) as bundle:
        timeline = Timeline(bundle)
        looking = threading.Thread(target=timeline.run)
        looking.start()
        with ExitStack() as stack:
            stack.callback(timeline.stopped.set)
            if not options.without:
                stack.enter_context(profiled(bundle, directory))
            ready = await asyncio.to_thread(until_ready, bundle)
            times = await settled(made, bundle) if new else {}
            times["quiet"] = await quiet(bundle)
        await asyncio.to_thread(looking.join)
        count = await asyncio.to_thread(bundle.count)
        memory = bundle.memory()
    print(f"{'everything new' if new else 'nothing to do'}: ready {ready:.2f} s, {times},")
    print(f"  {count.processor:.2f} s of a processor, {memory[0]:.1f} MiB resident, at most {memory[1]:.1f}")
    print("  not ready until", flush=True)
    for line in timeline.lines():
        print(f"    {line}")
    await asyncio.to_thread(show, directory)


async def run(options: argparse.Namespace, directory: Path) -> None:
    """Make the world, and start Trellis in it twice."""
    async with world(options.full, directory) as made:
        await made.grow(options.full, [])
        await start(made, directory, options, new=True)
        for _ in range(options.again):
            await start(made, directory, options, new=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = lambda text: Size(*map(int, text.split(",")))  # noqa: E731 - as in run.py
    parser.add_argument("--full", type=size, default=_SIZE, help="NODES,APPLICATIONS,LATTICES,CONTROLLERS")
    parser.add_argument("--separate", action="store_true", help="each service in a process of its own")
    parser.add_argument("--without", action="store_true", help="profile nothing")
    parser.add_argument("--again", type=int, default=1, help="starts with nothing to do (1)")
    options = parser.parse_args()
    measure("profile", lambda directory: run(options, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
