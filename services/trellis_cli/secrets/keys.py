"""``trellis secrets rotate`` and ``drop-previous``: key rotation of the secrets backend without failed requests.

In: flags, the key Secret. Out: one or two writes of it, and a line of text. Called by the command line.
Invariants: each write requires the Secret to be unchanged; no seed is printed, logged or in an error; an interrupted
rotation leaves working keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from host_manager.watches import POD_SELECTOR
from secrets_backend.domain.key_secret import KeySecretError, announced, data_of, promoted, read_ring, without_previous
from secrets_backend.domain.keys import CurveKey, KeyRing
from trellis import names
from trellis.config.durations import parse_seconds
from trellis.config.settings import SettingsError
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, Forbidden, NotFound
from trellis.kube.preconditions import only_if
from trellis.kube.resources import PODS, SECRETS, Manifest
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.messages import print_note
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, print_document, print_result
from trellis_cli.common.settings import ClientSettings, client_settings

_WAIT: Final = "30s"
"""Time for two failed reads: replicas read the Secret every 10 s."""
_SETTLED: Final = timedelta(seconds=5)
"""Time until every replica distributes the new key: they read it every second under load; includes clock skew."""
_TRIES: Final = 10
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a command: distributed public key, number of previous keys that decrypt requests, and a text."""

    changed: bool
    public_key: str
    previous: int
    message: str

    def document(self) -> dict[str, object]:
        """Return the result for JSON."""
        return {
            "changed": self.changed,
            "public_key": self.public_key,
            "previous": self.previous,
            "message": self.message,
        }


def rotate(
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="time for all replicas to read the new key; 0 if a key has leaked"
        ),
    ] = _WAIT,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Rotate the encryption key of the secrets backend; previous keys still decrypt requests.

    The new key first decrypts requests only, and is given to hosts once every replica had time to read it. Hosts keep
    their key until they restart; after all have restarted, run `trellis secrets drop-previous`. JSON: `{"changed",
    "public_key", "previous", "message"}`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        _show(asyncio.run(_rotate(settings, _seconds(wait))), output)


def drop_previous(
    force: Annotated[bool, typer.Option("--force", help="also if running hosts may have only a previous key")] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Drop previous keys: a host that still uses one gets DecryptionError until it is restarted.

    Refused while pods of hosts run that are older than the last rotation. Hosts of other clusters are not checked.
    JSON as of `rotate`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        _show(asyncio.run(_drop(settings, force=force)), output)


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise SettingsError(f"--wait: has {text!r}, {error}") from None


async def _rotate(settings: ClientSettings, wait: float) -> Done:
    key = CurveKey.make()
    async with connected(settings) as kube:
        if wait:
            await _change(kube, settings, lambda ring: announced(ring, key))
            print_note(
                f"{key.public} decrypts requests; hosts receive it in {wait:g} s, when all replicas have read it"
            )
            await asyncio.sleep(wait)
        ring = await _change(kube, settings, lambda ring: promoted(ring, key), rotated=True)
    message = (
        f"new hosts receive {key.public}; previous keys that still decrypt requests: {len(ring.previous)}; "
        "once all hosts are restarted, run `trellis secrets drop-previous`"
    )
    return Done(True, key.public, len(ring.previous), message)


async def _drop(settings: ClientSettings, *, force: bool) -> Done:
    async with connected(settings) as kube:
        manifest = await _read(kube, settings)
        ring = _ring(manifest, settings)
        if not ring.previous:
            return Done(False, ring.current.public, 0, f"no previous key: only {ring.current.public} decrypts requests")
        if not force:
            await _refuse_if_hosts_are_older(kube, manifest)
        dropped = len(ring.previous)
        ring = await _change(kube, settings, without_previous)
    return Done(True, ring.current.public, 0, f"{dropped} dropped: only {ring.current.public} decrypts requests now")


async def _refuse_if_hosts_are_older(kube: Kube, manifest: Manifest) -> None:
    """Check for pods of hosts that may have only a previous key.

    Raises:
        CommandError: such pods exist.
    """
    rotated = str((manifest["metadata"].get("annotations") or {}).get(names.ANNOTATION_ROTATED) or "")
    try:
        pods = (await kube.list(PODS, label_selector=POD_SELECTOR)).items
    except Forbidden as error:
        raise CommandError(f"cannot list the hosts that may use a previous key: {error}; or use --force") from None
    settled = _settled(rotated)
    older = sorted(_place(pod) for pod in pods if _started(pod) <= settled or not settled)
    if not older:
        return
    some = ", ".join(older[:_NAMED]) + (f" and {len(older) - _NAMED} more" if len(older) > _NAMED else "")
    when = (
        f"started before {settled}, when the new key was distributed,"
        if settled
        else "may be older than the last rotation"
    )
    raise CommandError(
        f"{len(older)} pods of hosts {when} and would get DecryptionError: {some}. Restart them first "
        "(`kubectl rollout restart` of their Deployments and DaemonSets), or use --force"
    )


def _settled(rotated: str) -> str:
    """Return the time from which every replica distributed the new key; empty if unknown."""
    try:
        return _written(datetime.fromisoformat(rotated) + _SETTLED)
    except (ValueError, OverflowError):
        return ""


def _started(pod: Manifest) -> str:
    """Return the start time of the first running container in Kubernetes format; the current time if none runs."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    started = [str(run["startedAt"]) for status in statuses if (run := (status.get("state") or {}).get("running"))]
    return min(started, default=_now())


def _place(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _change(
    kube: Kube, settings: ClientSettings, wanted: Callable[[KeyRing], KeyRing], *, rotated: bool = False
) -> KeyRing:
    """Write changed keys into the Secret, and return them.

    Raises:
        CommandError: the Secret does not exist or has no valid keys.
        KubeError: the write was rejected, or the Secret changed continuously.
    """
    for left in reversed(range(_TRIES)):
        manifest = await _read(kube, settings)
        ring = wanted(_ring(manifest, settings))
        try:
            await kube.json_patch(
                SECRETS,
                names.SECRETS_KEY,
                _ops(manifest, ring, rotated=rotated),
                settings.namespace,
                field_manager=names.FIELD_MANAGER_COMMAND_LINE,
            )
        except Conflict:
            if not left:
                raise
        else:
            return ring
    raise AssertionError("the last attempt returns or raises")


def _ops(manifest: Manifest, ring: KeyRing, *, rotated: bool) -> list[dict[str, Any]]:
    metadata, data = manifest["metadata"], data_of(ring)
    ops = only_if(metadata["uid"], metadata["resourceVersion"])
    ops += [{"op": "add", "path": f"/data/{entry}", "value": value} for entry, value in data.items()]
    if names.SECRETS_PREVIOUS in (manifest.get("data") or {}) and names.SECRETS_PREVIOUS not in data:
        ops.append({"op": "remove", "path": f"/data/{names.SECRETS_PREVIOUS}"})
    if rotated:
        if metadata.get("annotations") is None:
            ops.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        path = "/metadata/annotations/" + names.ANNOTATION_ROTATED.replace("/", "~1")
        ops.append({"op": "add", "path": path, "value": _now()})
    return ops


def _now() -> str:
    return _written(datetime.now(UTC))


def _written(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _read(kube: Kube, settings: ClientSettings) -> Manifest:
    try:
        return await kube.get(SECRETS, names.SECRETS_KEY, settings.namespace)
    except NotFound:
        raise CommandError(
            f'Secret "{names.SECRETS_KEY}" not found in namespace {settings.namespace}: secrets_backend creates '
            "it at its start; check TRELLIS_NAMESPACE"
        ) from None


def _ring(manifest: Manifest, settings: ClientSettings) -> KeyRing:
    try:
        return read_ring(manifest)
    except KeySecretError as error:
        reason = str(error)
    raise CommandError(
        f"Secret {settings.namespace}/{names.SECRETS_KEY} cannot be used: {reason}; delete it, and "
        "secrets_backend creates a new one; running hosts get DecryptionError until they are restarted"
    )


def _show(done: Done, output: Format) -> None:
    if output.structured:
        print_document(output, done.document())
    else:
        print_result(Text(done.message))
