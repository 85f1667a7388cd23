"""Builds the example controllers in Rust, by whichever toolchain here has a standard library for Wasm.

In: the SDK's directory. Out: modules. Called by support.guests.built. rustup's toolchains have the target wasm32-wasip1
once it was added; else Debian 12's packages are taken apart in the cache, nothing is installed: rustc 1.63 with
wasm32-wasi, whose cargo knows no sparse registries, so the machine's own cargo fetches the crates.
Invariant: the crates are those of ``crates.lock``; no path of this machine gets into a module.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import How, LoggedBuild
from trellis_dev.localcluster.crates import lacking, write_lock
from trellis_dev.localcluster.debian import unpacked
from trellis_dev.localcluster.progress import Quiet

TARGET: Final = "wasm32-wasip1"
DEBIAN_TARGET: Final = "wasm32-wasi"
_VERSION: Final = "1.63.0+dfsg1-2"
_PACKAGES: Final = (
    *(f"{name}={_VERSION}" for name in ("rustc", "libstd-rust-1.63", "libstd-rust-dev", "libstd-rust-dev-wasm32")),
    *("cargo=0.66.0+ds1-1", "lld-14", "libllvm14", "libz3-4", "libedit2", "libbsd0", "libmd0", "libxml2", "libicu72"),
    *("libgit2-1.5", "libhttp-parser2.9", "libmbedcrypto7", "libmbedx509-1", "libmbedtls14", "libssh2-1"),
    *("libcurl3-gnutls", "libpcre2-8-0"),
)
_NEVER: Final = threading.Event()
_HOW: Final = How(Quiet(), _NEVER)
_HINT: Final = "It needs a crate registry and, without the target wasm32-wasip1, Debian 12's packages."


def missing() -> str | None:
    """Return what keeps this machine from building them, in one line; None if nothing does."""
    if lacks := lacking(("cargo", "cc")):
        return f"guests in Rust cannot be built here; missing: {', '.join(lacks)}"
    if _has_target() or _is_debian_12():
        return None
    return f"guests in Rust need `rustup target add {TARGET}`, or Debian 12, whose rustc has a library for Wasm"


def compiler() -> str:
    """Return the version of the compiler."""
    return _version("rustc") if _has_target() else _VERSION


def build(sdk: Path, target: Path, log: Path, names: Iterable[str]) -> None:
    """Build these examples of the SDK into the new directory ``target``."""
    with _copied(sdk, target) as work:
        write_lock(work / "sdk", LoggedBuild(work / "sdk", log, _NEVER, dict(os.environ), _HINT))
        shutil.rmtree(work / "sdk" / "probe")
        built = _compile(work, work / "sdk", log, ["--examples"]) / "examples"
        target.mkdir()
        for name in names:
            shutil.copyfile(built / f"{name}.wasm", target / f"{name}.wasm")


def build_user(files: Mapping[str, str], sdk: Path, target: Path, log: Path) -> Path:
    """Build a user's project, whose Cargo.toml names the SDK by the path ``../sdk``; return its one module."""
    with _copied(sdk, target) as work:
        write_lock(work / "sdk", LoggedBuild(work / "sdk", log, _NEVER, dict(os.environ), _HINT))
        for name, text in files.items():
            (work / "user" / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "user" / name).write_text(text)
        # The same crates; cargo adds the project itself.
        shutil.copyfile(work / "sdk" / "Cargo.lock", work / "user" / "Cargo.lock")
        (built,) = _compile(work, work / "user", log, []).glob("*.wasm")
        return Path(shutil.copyfile(built, target))


@contextmanager
def _copied(sdk: Path, target: Path) -> Iterator[Path]:
    work = target.with_name(f"{target.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sdk, work / "sdk", ignore=shutil.ignore_patterns("target", "Cargo.lock"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile(work: Path, project: Path, log: Path, options: Iterable[str]) -> Path:
    """Fetch the crates, where any cargo finds them without a network, and compile; return where cargo puts modules."""
    settings = LoggedBuild(project, log, _NEVER, dict(os.environ), _HINT).run(["cargo", "vendor", str(work / "vendor")])
    lock = project / "Cargo.lock"
    # Newer cargos write a number that Debian's does not know, and nothing else that it does not.
    lock.write_text(lock.read_text().replace("\nversion = 4\n", "\nversion = 3\n"))
    (project / ".cargo").mkdir()
    (project / ".cargo" / "config.toml").write_text(settings)
    triple, cargo, environment = (TARGET, "cargo", dict(os.environ)) if _has_target() else _debian(work)
    environment |= {"RUSTFLAGS": f"--remap-path-prefix={work}=/build", "CARGO_TARGET_DIR": str(work / "target")}
    run = LoggedBuild(project, log, _NEVER, environment, _HINT)
    run.run([cargo, "build", "--release", "--offline", "--locked", "--target", triple, *options])
    return work / "target" / triple / "release"


def _debian(work: Path) -> tuple[str, str, dict[str, str]]:
    """Return Debian's target, its cargo, and an environment in which that finds Debian's compiler and linker."""
    usr = unpacked(f"rust-wasm-{_VERSION}", _PACKAGES, _HOW) / "usr"
    libraries = [usr / "lib" / "x86_64-linux-gnu", usr / "lib" / "aarch64-linux-gnu", usr / "lib" / "llvm-14" / "lib"]
    return (
        DEBIAN_TARGET,
        str(usr / "bin" / "cargo"),
        {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in libraries if path.exists()),
            "RUSTC": str(usr / "bin" / "rustc"),
            "CARGO_HOME": str(work / "home"),
            "CARGO_TARGET_WASM32_WASI_LINKER": str(usr / "bin" / "wasm-ld-14"),
        },
    )


@cache
def _has_target() -> bool:
    answer = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", TARGET], capture_output=True, text=True, check=False
    )
    return answer.returncode == 0 and Path(answer.stdout.strip()).is_dir()


def _version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _is_debian_12() -> bool:
    release = Path("/etc/os-release")
    text = release.read_text() if release.exists() else ""
    return "ID=debian" in text and 'VERSION_ID="12"' in text and not lacking(("apt-get", "dpkg"))
