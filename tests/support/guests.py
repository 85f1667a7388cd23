"""The example controllers of sdk/, built: each language once, by what its sources and its compiler are.

In: a language and the name of an example. Out: the file of a module in the cache. Called by tests and benchmarks.
Invariant: the same sources and the same compiler make the same bytes, wherever they are built.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from trellis.localcluster.building import How, LoggedBuild, make_once
from trellis.localcluster.paths import cache_root
from trellis.localcluster.progress import Quiet

ROOT: Final = Path(__file__).parents[2]
SDK: Final = ROOT / "sdk"
PREBUILT: Final = ROOT / "deploy" / "examples" / "controllers"
EXAMPLES: Final = ("ring", "mirror", "ttl", "stateful")
LANGUAGES: Final = ("c",)
C_FLAGS: Final = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-Os", "-s", "-Wall", "-Wextra", "-Werror")

_HINT: Final = "Guests are built once, by compilers that the package registries have."
_FOREVER: Final = threading.Event()


def missing(language: str) -> str | None:
    """Return what keeps this machine from building a language's guests, in one line; None if nothing does."""
    return _MISSING[language]()


def needed(language: str) -> None:
    """Skip the test, with the reason, where this language's guests cannot be built."""
    if (reason := missing(language)) is not None:
        pytest.skip(f"NOT RUN: {reason}")


def example(language: str, name: str) -> Path:
    """Return the module of one example, building the language's examples if they are not in the cache.

    Raises:
        ToolError: if a build fails; it names the log's end.
    """
    how = How(Quiet(), _FOREVER)
    target = cache_root() / "guests" / f"{language}-{_digest(language)}"
    return make_once(target, f"build the guests in {language}", how, _BUILD[language]) / f"{name}.wasm"


def sources(language: str) -> list[Path]:
    """Return what the examples of a language are made of."""
    suffixes = {"c": {".c", ".h"}}[language]
    return sorted(path for path in (SDK / language).rglob("*") if path.suffix in suffixes and path.is_file())


def build_c(target: Path, log: Path, sdk: Path = SDK / "c") -> None:
    """Build every example in C into the directory ``target``, by zig's compiler, whose wheel is pinned."""
    target.mkdir(parents=True)
    build = LoggedBuild(sdk, log, _FOREVER, dict(os.environ), _HINT)
    for name in EXAMPLES:
        compiler = [sys.executable, "-m", "ziglang", "cc", *C_FLAGS, "-Iinclude"]
        files = [f"examples/{name}.c", *sorted(str(path.relative_to(sdk)) for path in sdk.glob("src/*.c"))]
        build.run([*compiler, *files, "-o", str(target / f"{name}.wasm")])


def _missing_c() -> str | None:
    found = importlib.util.find_spec("ziglang")
    return None if found else "guests in C are built by the wheel ziglang, which is not installed: `make install`"


def _digest(language: str) -> str:
    digest = hashlib.sha256(repr((language, _COMPILER[language](), EXAMPLES)).encode())
    for path in (Path(__file__), *sources(language)):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_MISSING: Final = {"c": _missing_c}
_BUILD: Final = {"c": build_c}
_COMPILER: Final = {"c": lambda: importlib.metadata.version("ziglang")}
