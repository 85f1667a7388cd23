"""The commands of a page in docs, run as they are printed.

In: a page, the heading of a section. Out: the text of its ``sh`` blocks in their order, and a shell that runs them in
an empty folder which looks like a clone. Called by tests of pages. Invariant: a command is changed only by the named
replacements, each of which must occur in it.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.chart.rendered import CHART
from support.suite.typed import bare_environment

_FENCE: Final = re.compile(r"^ *```", re.MULTILINE)
_BLOCK: Final = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_SECONDS: Final = 300


def section(page: Path, heading: str) -> str:
    """Return the text below a heading, up to the next heading."""
    kept, found, fenced = [], False, False
    for line in page.read_text(encoding="utf-8").splitlines(keepends=True):
        fenced ^= _FENCE.match(line) is not None
        if not fenced and re.match(r"#+ ", line):
            found = line.lstrip("#").strip() == heading
        elif found:
            kept.append(line)
    assert kept, f"{page.name} has no section {heading}"
    return "".join(kept)


def steps(text: str) -> list[str]:
    """Return the ``sh`` blocks of a text, those in lists included."""
    return [textwrap.dedent(block) for _, block in _BLOCK.findall(text)]


def block(text: str, language: str) -> str:
    """Return the only block of a language in a text."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return str(found)


def replaced(commands: str, **replacements: str) -> str:
    """Return commands with the values of a user in place of those of the page."""
    for printed, value in replacements.items():
        assert printed in commands, f"{printed} is not in {commands}"
        commands = commands.replace(printed, value)
    return commands


@dataclass(frozen=True)
class PageShell:
    """A shell of a user with a kubeconfig, in a folder with the chart, and with a terminal where it reads.

    ``programs``: folders that precede the others of the PATH.
    """

    folder: Path
    kubeconfig: Path
    programs: tuple[Path, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        chart = self.folder / CHART.relative_to(CHART.parents[2])
        chart.parent.mkdir(parents=True, exist_ok=True)
        chart.symlink_to(CHART)

    def run(self, commands: str, *, answer: str = "") -> str:
        """Run commands, each only if the one before succeeded, and return what they print.

        ``answer``: what the user types when a command asks.

        Raises:
            AssertionError: a command failed; with its output.
        """
        path = os.pathsep.join([*map(str, self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        ours, terminal = pty.openpty()
        try:
            os.write(ours, answer.encode())
            done = subprocess.run(
                ["/bin/sh", "-ec", commands],
                cwd=self.folder,
                env=bare_environment(KUBECONFIG=str(self.kubeconfig), PATH=path),
                stdin=terminal,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(terminal)
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout
