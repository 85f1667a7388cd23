"""The command line in an image without the extra `local`."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = "import sys; sys.modules['psutil'] = None; from trellis_bundle.__main__ import main; main()"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_everything_else_works_without_the_extra() -> None:
    done = run("version")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_demo_says_how_to_get_it() -> None:
    done = run("demo", "--nodes", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "trellis-wasm[local]" in done.stderr
    assert done.stderr.count("\n") == 1
