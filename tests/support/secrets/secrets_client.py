"""The secrets protocol from the side of a wasmCloud host: keys, boxes, tokens and requests by a host's own crates.

In: questions as ``secrets_client/src/main.rs`` lists them. Out: its answers. Called by conformance tests of secrets
backends, tests with real hosts, and benchmarks. The program is built once, into the cache; it needs a Rust toolchain
and a C compiler. Invariant: nothing of `secrets_backend` is used here, so a fault cannot be in both.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.crates import CrateBuild, lacking, sources_digest
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Lines

_PROJECT: Final = Path(__file__).parent / "secrets_client"
_SOURCES: Final = ("Cargo.toml", "crates.lock", "src/main.rs", "src/load.rs", "src/tokens.rs")
_NAME: Final = "secrets-client"
_HINT: Final = "The client is built once, from crates: it needs a crate registry, a C compiler and 1 GB of free disk."

Headers = tuple[tuple[str, str], ...]


class ClientError(Exception):
    """The client could not do it, in its words: no answer came, or what it was given is no key."""


@dataclass(frozen=True)
class Key:
    """A key as nkeys makes it."""

    public: str
    seed: str


@dataclass(frozen=True)
class Reply:
    """The reply over NATS."""

    data: bytes
    headers: Headers


def missing() -> str | None:
    """Return what keeps this machine from building the client, in one line; None if nothing does, or it is built."""
    if _path().exists():
        return None
    lacks = lacking(("cargo", "cc"))
    return f"the client of the secrets protocol cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def program() -> Path:
    """Return the client's program, building it if it is not in the cache.

    Raises:
        ToolError: if something to build it with is missing, or the build fails.
    """
    if (reason := missing()) is not None:
        raise ToolError(reason)
    how, step = How(Lines(), threading.Event()), f"build {_NAME}"

    def make(target: Path, log: Path) -> None:
        build = CrateBuild(_PROJECT, cache_root() / "build" / f"{_path().name}.work", log, step, _HINT, how)
        try:
            (build.run([]) / "debug" / _NAME).rename(target)
        finally:
            build.clean()

    return make_once(_path(), step, how, make)


def _path() -> Path:
    """Return where the cache keeps it: under a name that changes with its sources."""
    return cache_root() / "bin" / f"{_NAME}-{sources_digest(_PROJECT, _SOURCES)}"


class SecretsClient:
    """The program, connected to a NATS server. A context manager; not for several threads at once."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [program(), self._url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def processor_seconds(self) -> float:
        """Return how much processor time it took since its start."""
        return sum(psutil.Process(self._process.pid).cpu_times()[:2])

    def make_key(self, kind: str) -> Key:
        """Make a key: account, cluster, component, curve, host, operator, provider or user."""
        return Key(**self._ask("key", kind=kind))

    def sign(self, seed: str, header: str, claims: str) -> str:
        """Return a token with header and claims to the letter."""
        return str(self._ask("sign", seed=seed, header=header, claims=claims)["token"])

    def make_token(self, kind: str, issuer: Key, subject: str, **times: int) -> str:
        """Return a token made by wascap: of a component, provider or host; ``expires``, ``not_before`` if wanted."""
        requested = {"kind": kind, "seed": issuer.seed, "subject": subject, "name": f"a {kind}", **times}
        return str(self._ask("token", **requested)["token"])

    def is_good(self, kind: str, token: str) -> bool:
        """Return whether wascap takes a token."""
        return bool(self._ask("judge", kind=kind, token=token)["good"])

    def make_component(self, text: str, issuer: Key, subject: str) -> bytes:
        """Return a signed component of WebAssembly's text format."""
        answer = self._ask("component", text=text, seed=issuer.seed, subject=subject, name="test")
        return base64.b64decode(answer["data"])

    def seal(self, data: bytes, seed: str, to: str) -> bytes:
        """Return a box for a public key."""
        return base64.b64decode(self._ask("seal", seed=seed, to=to, data=base64.b64encode(data).decode())["data"])

    def open(self, data: bytes, seed: str, from_: str) -> bytes:
        """Return what is in a box."""
        answer = self._ask("open", seed=seed, **{"from": from_}, data=base64.b64encode(data).decode())
        return base64.b64decode(answer["data"])

    def request(self, subject: str, data: bytes, headers: Headers = (), seconds: float = 10.0) -> Reply:
        """Ask, and return what came back."""
        payload = base64.b64encode(data).decode()
        answer = self._ask("request", subject=subject, data=payload, headers=headers, seconds=seconds)
        return Reply(base64.b64decode(answer["data"]), tuple((name, value) for name, value in answer["headers"]))

    def publish(self, subject: str, data: bytes, headers: Headers = ()) -> None:
        """Publish without a subject for a reply."""
        self._ask("publish", subject=subject, data=base64.b64encode(data).decode(), headers=headers)

    def ask_as_host(self, prefix: str, backend: str, request: dict[str, Any]) -> dict[str, Any]:
        """Ask for a secret with a host's own client: its version, and its value as text or bytes."""
        return self._ask("ask_as_host", prefix=prefix, backend=backend, request=request)

    def load(
        self,
        subject: str,
        server_xkey: str,
        requests: Iterable[tuple[str, str]],
        *,
        at_once: int,
        count: int,
        seconds: float = 10.0,
    ) -> dict[str, Any]:
        """Ask for ``count`` secrets, some at once: ``took`` (ns each), ``elapsed`` (ns), ``wrong`` (what else came)."""
        plan = {"subject": subject, "server_xkey": server_xkey, "requests": list(requests)}
        return self._ask("load", **plan, at_once=at_once, count=count, seconds=seconds)

    def _ask(self, op: str, **about: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **about}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ClientError("the client ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer
