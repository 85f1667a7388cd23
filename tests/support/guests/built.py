"""The example controllers of sdk/, built: each language once, by what its sources and its compiler are.

In: a language and the name of an example. Out: the file of a module in the cache. Called by tests and benchmarks.
Invariant: the same sources and the same compiler make the same bytes, wherever they are built.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.guests import rust_guests
from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Quiet
from trellis_dev.localcluster.versions import products

ROOT: Final = Path(__file__).parents[3]
SDK: Final = ROOT / "sdk"
PREBUILT: Final = ROOT / "deploy" / "examples" / "controllers"
EXAMPLES: Final = ("ring", "mirror", "ttl", "stateful")
C_FLAGS: Final = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-Os", "-s", "-Wall", "-Wextra", "-Werror")
GO_FLAGS: Final = ("-trimpath", "-ldflags=-s -w", "-buildmode=c-shared")

_HINT: Final = "Guests are built once, by compilers that the package registries have."
_NEVER: Final = threading.Event()
_HOW: Final = How(Quiet(), _NEVER)

Build = Callable[[Path, Path, Path], None]
"""Builds every example of the SDK in a directory into a new one: ``(sdk, target, log)``."""


@dataclass(frozen=True)
class Language:
    """The build of one language's guests: command and sources."""

    build: Build
    missing: Callable[[], str | None]
    compiler: Callable[[], str]
    suffixes: frozenset[str]


def missing(language: str) -> str | None:
    """Return what keeps this machine from building a language's guests, in one line; None if nothing does."""
    return LANGUAGES[language].missing()


def needed(language: str) -> None:
    """Skip the test, with the reason, where this language's guests cannot be built."""
    if (reason := missing(language)) is not None:
        pytest.skip(f"NOT RUN: {reason}")


def example(language: str, name: str) -> Path:
    """Return the module of one example, building the language's examples if they are not in the cache.

    Raises:
        ToolError: if a build fails; it names the log's end.
    """
    target = cache_root() / "guests" / f"{language}-{_digest(language)}"

    def make(temporary: Path, log: Path) -> None:
        LANGUAGES[language].build(SDK / language, temporary, log)

    return make_once(target, f"build the guests in {language}", _HOW, make) / f"{name}.wasm"


def build_c(sdk: Path, target: Path, log: Path) -> None:
    """Build by zig's compiler, whose wheel is pinned."""
    target.mkdir()
    for name in EXAMPLES:
        compile_c(Path("examples") / f"{name}.c", target / f"{name}.wasm", log, sdk)


def compile_c(source: Path, module: Path, log: Path, sdk: Path = SDK / "c") -> Path:
    """Build one controller from one file, relative to the SDK if not absolute; return the module."""
    build = LoggedBuild(sdk, log, _NEVER, dict(os.environ), _HINT)
    library = sorted(str(path.relative_to(sdk)) for path in sdk.glob("src/*.c"))
    compiler = [sys.executable, "-m", "ziglang", "cc", *C_FLAGS, "-Iinclude"]
    build.run([*compiler, str(source), *library, "-o", str(module)])
    return module


def build_go(sdk: Path, target: Path, log: Path) -> None:
    """Build by the Go that also builds the tools of a local cluster."""
    target.mkdir()
    go = go_program(Quiet())
    build = LoggedBuild(sdk, log, _NEVER, environment(go) | {"GOOS": "wasip1", "GOARCH": "wasm"}, _HINT)
    for name in EXAMPLES:
        build.run([str(go), "build", *GO_FLAGS, "-o", str(target / f"{name}.wasm"), f"./examples/{name}"])


def build_rust(sdk: Path, target: Path, log: Path) -> None:
    """Build by a Rust toolchain with a standard library for Wasm: this machine's, or Debian's."""
    rust_guests.build(sdk, target, log, EXAMPLES)


def _missing_c() -> str | None:
    found = importlib.util.find_spec("ziglang")
    return None if found else "guests in C are built by the wheel ziglang, which is not installed: `make install`"


def _digest(language: str) -> str:
    described = LANGUAGES[language]
    digest = hashlib.sha256(repr((language, described.compiler(), C_FLAGS, GO_FLAGS, EXAMPLES)).encode())
    files = [path for path in sorted((SDK / language).rglob("*")) if path.suffix in described.suffixes]
    for path in files:
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


LANGUAGES: Final = {
    "c": Language(build_c, _missing_c, lambda: importlib.metadata.version("ziglang"), frozenset({".c", ".h"})),
    "go": Language(
        build_go, lambda: None, lambda: f"{products()['go']} {platform.machine()}", frozenset({".go", ".mod"})
    ),
    "rust": Language(build_rust, rust_guests.missing, rust_guests.compiler, frozenset({".rs", ".toml", ".lock"})),
}
LANGUAGE_PARAMETERS: Final = [
    pytest.param(name, marks=() if name == "c" else pytest.mark.thorough) for name in LANGUAGES
]
"""For tests of every language; `make test` has the one whose compiler is a wheel."""
