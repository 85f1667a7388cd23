"""The programs of docs/bus.md as processes: what they print, and how they end."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.suite.pages import BUS_PAGE, DOCUMENTED_URL, blocks, table
from trellis_dev.localcluster.gotoolchain import Go, go_program
from trellis_dev.localcluster.progress import Quiet

GO_MODULE = Path(__file__).parents[2] / "data" / "bus_page"


@dataclass
class Running:
    """A program of the page: what it has printed so far, and how it ended."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    def has_printed(self, text: str) -> bool:
        assert self.process.returncode is None, f"ended by itself with {self.process.returncode}: {self.lines}"
        return any(text in line for line in self.lines)


@asynccontextmanager
async def running(command: list[str], environment: Mapping[str, str] | None = None) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=2**22,
    )
    assert process.stdout is not None
    started, stdout = Running(process), process.stdout

    async def read() -> None:
        async for line in stdout:
            started.lines.append(line.decode(errors="replace"))

    reading = asyncio.create_task(read())
    try:
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@dataclass
class Programs:
    """The page's programs, changed as a reader changes them; Go is compiled once a change."""

    folder: Path
    built: dict[str, Path] = field(default_factory=dict)

    def command(self, language: str, name: str, url: str, seed: Path | None = None) -> list[str]:
        def edit(code: str) -> str:
            code = code.replace(DOCUMENTED_URL, url)
            return code if seed is None else as_user(language, code, seed)

        if language == "go":
            return [str(self._go(edit) / name)]
        script = self.folder / f"{name}-{len(list(self.folder.iterdir()))}.py"
        script.write_text(edit(blocks(BUS_PAGE)[language, name]))
        return [sys.executable, str(script)]

    def _go(self, edit: Callable[[str], str]) -> Path:
        """Compile with modules whose versions and hashes are committed."""
        sources = {name: edit(blocks(BUS_PAGE)["go", name]) for name in ("live", "past")}
        key = "".join(sources.values())
        if key not in self.built:
            module = self.folder / f"go-{len(self.built)}"
            for name, source in sources.items():
                (module / name).mkdir(parents=True)
                (module / name / "main.go").write_text(source)
            for file in ("go.mod", "go.sum"):
                shutil.copy(GO_MODULE / file, module)
            go = Go(go_program(Quiet()), module, module / "log", threading.Event())
            go.run(["build", "-mod=readonly", "-o", f"{module / 'out'}{os.sep}", "./..."])
            self.built[key] = module / "out"
        return self.built[key]


def as_user(language: str, code: str, seed: Path) -> str:
    """A program with what the page's table of clients adds to ``connect``."""
    (call,) = [row[1] for row in table(BUS_PAGE, "client") if row[0].lower() == language]
    added = re.search(r"…, (.*)\)`", call)
    assert added is not None, call
    before = {"python": "max_reconnect_attempts=-1", "go": "nats.MaxReconnects(-1)"}[language]
    assert before in code
    return code.replace(before, f"{before}, {added[1].replace('outside.nk', str(seed))}")
