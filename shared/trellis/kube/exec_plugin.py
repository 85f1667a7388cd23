"""Runs the credential plugin of a kubeconfig (``exec``) and parses its output.

In: the ``exec`` entry of a user. Out: an ``ExecCredential``, or ``PluginFailed`` with the program and the cause. Called
by ``trellis.kube.access``. Invariants: a plugin and its child processes end within ``PluginTimings.run``; it has no
terminal; its output is in no message, because it contains the token. Source: client.authentication.k8s.io/v1,
"client-go credential plugins".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from trellis.installer_api.json_text import read_json
from trellis.installer_api.redaction import redact_url
from trellis.kube.timings import PluginTimings

_MOST_BYTES: Final = 1 << 20
_MOST_MESSAGE: Final = 300


class PluginFailed(Exception):  # noqa: N818 - named after the outcome
    """A plugin could not be started, failed, did not end, or printed no credentials."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """Credentials from a plugin: a token, or a certificate with its key. ``expires``: None if not given."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None

    def expired(self, now: datetime) -> bool:
        """Return whether the credentials are expired, by the clock of this machine."""
        return self.expires is not None and self.expires <= now


@dataclass(eq=False)
class Plugin:
    """The credential plugin of a kubeconfig, with the result of its last run; times are monotonic."""

    timings: PluginTimings
    credential: ExecCredential = field(default_factory=ExecCredential)
    failure: str = ""
    ran_at: float = -math.inf
    valid_until: float = math.inf

    async def run(self, entry: Mapping[str, Any]) -> None:
        """Run the plugin, unless it ran within ``pause``; a failure is only recorded."""
        if time.monotonic() - self.ran_at < self.timings.pause:
            return
        self.failure, self.valid_until = "", math.inf
        try:
            self.credential = await run_plugin(entry, self.timings)
        except PluginFailed as failure:
            self.failure = str(failure)
        self.ran_at = time.monotonic()
        if not self.failure and self.credential.expires is not None:
            left = (self.credential.expires - datetime.now(UTC)).total_seconds()
            # Credentials that seem expired when they are printed can be valid: this machine's clock may be ahead.
            self.valid_until = self.ran_at + left if left > 0 else math.inf

    def refused(self) -> None:
        """Record that the API server rejected the credentials; expired credentials become a failure."""
        if not self.failure and self.credential.expired(datetime.now(UTC)):
            self.failure = f"the credential plugin printed credentials that expired at {self.credential.expires}"

    def due(self) -> bool:
        """Return whether the next run of the plugin is due."""
        now = time.monotonic()
        return now >= self.valid_until or (bool(self.failure) and now - self.ran_at >= self.timings.pause)


async def run_plugin(entry: Mapping[str, Any], timings: PluginTimings = PluginTimings()) -> ExecCredential:
    """Run the plugin of an ``exec`` entry and return its credentials.

    Raises:
        PluginFailed: with the program's name and the cause.
    """
    command = str(entry.get("command") or "")
    name = f"credential plugin {command or '(no command)'}"
    try:
        async with asyncio.timeout(timings.run):
            printed = await _output(command, entry, timings.death)
    except TimeoutError:
        raise PluginFailed(f"{name} did not end within {timings.run:g} s") from None
    except PluginFailed as failure:
        raise PluginFailed(f"{name} {failure}") from None
    except (OSError, ValueError, TypeError, LookupError) as error:
        hint = str(entry.get("installHint") or "").strip()[:_MOST_MESSAGE]
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise PluginFailed(f"{name} cannot be run: {reason}" + (f"; {hint}" if hint else "")) from None
    try:
        return _credential(printed, str(entry.get("apiVersion") or ""))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        reason = str(error) if isinstance(error, _UnfitError) else "invalid format"
        raise PluginFailed(f"{name} printed no valid ExecCredential: {reason}") from None


class _UnfitError(ValueError):
    """A problem of the output, without its content."""


async def _output(command: str, entry: Mapping[str, Any], death: float) -> bytes:
    spec = {"apiVersion": entry.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = {str(item["name"]): str(item["value"]) for item in entry.get("env") or ()}
    process = await asyncio.create_subprocess_exec(
        command,
        *(str(item) for item in entry.get("args") or ()),
        env=os.environ | variables | {"KUBERNETES_EXEC_INFO": json.dumps(spec)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    try:
        assert process.stdout is not None, "it is a pipe"
        assert process.stderr is not None, "it is a pipe"
        stdout, stderr = await asyncio.gather(_bounded(process.stdout, end), _bounded(process.stderr, end))
        code = await process.wait()
    finally:
        end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.communicate(), death)
    if stdout is None or stderr is None:
        raise PluginFailed(f"printed more than {_MOST_BYTES} bytes")
    if code:
        last = (stderr.decode("utf-8", "replace").strip().splitlines() or ["no error message"])[-1]
        raise PluginFailed(f"ended with status {code}: {redact_url(last[:_MOST_MESSAGE])}")
    return stdout


async def _bounded(stream: asyncio.StreamReader, end: Callable[[], None]) -> bytes | None:
    """Return the output; None if it is too large, after ending the plugin."""
    try:
        await stream.readexactly(_MOST_BYTES)
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    end()
    while await stream.read(_MOST_BYTES):
        pass
    return None


def _credential(printed: bytes, api_version: str) -> ExecCredential:
    found = read_json(printed.decode())
    if found["apiVersion"] != api_version or found["kind"] != "ExecCredential":
        raise _UnfitError(f"it is not an ExecCredential of {api_version}")
    status = found["status"]
    token, certificate, key = (
        _text(status.get(field)) for field in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not (certificate and key):
        raise _UnfitError("it has neither a token nor a certificate with a key")
    expires = _text(status.get("expirationTimestamp"))
    return ExecCredential(token, certificate, key, datetime.fromisoformat(expires).astimezone(UTC) if expires else None)


def _text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value or ""
