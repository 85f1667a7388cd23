"""Asks registries about images of workloads, with their pull Secrets, and reads the types of components.

In: images with the names of their Secrets. Out: answers. Called for a page if the user requests it. Invariants:
credentials stay in memory, and are sent to their own registry and its token server only; a Secret that cannot be read
makes the answer unknown, not denied; a registry that cannot be asked is never a registry without the image; time, bytes
and number of the requests are bounded. Source: OCI distribution specification 1.1.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
from collections.abc import Collection
from typing import Final

from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import SECRETS
from trellis.oci.references import DOCKER_HUB_NAMES, Reference, credentials_for, parse_image
from trellis.read_model.reading.cluster import Reading
from trellis.registries.domain.errors import SourceError, SourceReason, TlsProblem, TransportError
from trellis.registries.registry import Registry
from trellis.registries.timings import FetchTimings
from trellis.registries.transfers import Transfers
from trellis.registries.web import Client, Web, host_of
from trellis.v2.components import read_component
from trellis.v2.images import ImageAnswer, ImageKey, ImageState, without_other_digest
from trellis.v2.start_failures import DEFAULT_REGISTRY, registry_of
from trellis_cli.v2.options import CA_FILE, INSECURE, RegistryAccess

MOST: Final = 16
"""Images that are asked about for one page."""
_EVERYWHERE: Final = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
"""A user can reach any registry: the command runs with their network access."""
_DOCKER_CONFIG: Final = ".dockerconfigjson"
_TLS_STATES: Final = {
    TlsProblem.PLAIN_HTTP: ImageState.WITHOUT_TLS,
    TlsProblem.ISSUER_UNKNOWN: ImageState.NOT_TRUSTED,
    TlsProblem.CERTIFICATE_INVALID: ImageState.NOT_TRUSTED,
}
_STATES: Final = {SourceReason.NOT_FOUND: ImageState.NOT_FOUND, SourceReason.FORBIDDEN: ImageState.DENIED}


class _LoginError(Exception):
    """The login of an image cannot be read; the message names the Secret."""


async def ask_registries(
    reading: Reading,
    images: Collection[ImageKey],
    access: RegistryAccess = RegistryAccess(),  # noqa: B008 - frozen
    timings: FetchTimings | None = None,
    web: Web | None = None,
) -> dict[ImageKey, ImageAnswer]:
    """Return the answers about at most 16 images; ``web``: the HTTPS client, by default one for any network.

    Raises:
        KubeError: the API server is unavailable.
    """
    timings = timings or FetchTimings()
    web = web or Web(_EVERYWHERE, access.tls, timings, Client(insecure=access.insecure))
    transfers = Transfers(web, timings)
    chosen = sorted(images, key=lambda key: (key.namespace, key.image, key.secret))[:MOST]
    try:
        answers = await asyncio.gather(*(_ask(reading, key, transfers, access.insecure) for key in chosen))
    finally:
        await web.close()
    return dict(zip(chosen, answers, strict=True))


async def _ask(reading: Reading, key: ImageKey, transfers: Transfers, insecure: frozenset[str]) -> ImageAnswer:
    try:
        reference = parse_image(_with_registry(key.image))
    except ValueError as error:
        if without_other_digest(key.image) != key.image:
            return ImageAnswer(ImageState.UNKNOWN, "this command verifies digests of sha256 only")
        return ImageAnswer(ImageState.INVALID, str(error))
    try:
        credentials = await _login(reading, key, reference)
    except _LoginError as error:
        return ImageAnswer(ImageState.UNKNOWN, str(error))
    without = bool(key.secret) and credentials is None
    async with transfers.begin(key.namespace) as transfer:
        registry = Registry(transfer, reference, credentials, insecure)
        try:
            async with transfer.in_time(key.image):
                await registry.confirm()
        except SourceError as error:
            state = _state(error, reference)
            detail = "" if state is ImageState.DENIED else _detail(error)
            return ImageAnswer(state, detail, plain=registry.plain, without_login=without)
        try:
            async with transfer.in_time(key.image):
                wasm = await registry.module()
        except SourceError as error:
            return ImageAnswer(ImageState.FOUND, _detail(error), plain=registry.plain, without_login=without)
        types = await asyncio.to_thread(read_component, wasm)
        detail = "" if types else "it is not a WebAssembly component"
        return ImageAnswer(ImageState.FOUND, detail, types, registry.plain, without)


def _with_registry(image: str) -> str:
    """Return an image with its registry: as hosts read it, one that names none is of Docker Hub.

    One without a user there is of ``library``, also if its registry is named.
    """
    registry = registry_of(image)
    name = image.removeprefix(f"{registry}/") if registry else image
    if registry not in {"", *DOCKER_HUB_NAMES}:
        return image
    return f"{DEFAULT_REGISTRY}/{name if '/' in name else f'library/{name}'}"


def _state(error: SourceError, reference: Reference) -> ImageState:
    """Return the state of an image; problems of other hosts, such as its token server, are not of the registry."""
    if isinstance(error, TransportError) and error.reason is SourceReason.UNAVAILABLE:
        own = error.host == host_of(reference.url(""))
        return _TLS_STATES.get(error.tls, ImageState.UNKNOWN) if own and error.tls else ImageState.UNKNOWN
    return _STATES.get(error.reason, ImageState.UNKNOWN)


def _detail(error: SourceError) -> str:
    """Return the message with the flag that resolves the problem."""
    if not isinstance(error, TransportError):
        return error.message
    match error.tls:
        case TlsProblem.PLAIN_HTTP:
            return f"{error.message}; {INSECURE} {error.host} permits it"
        case TlsProblem.ISSUER_UNKNOWN:
            return f"{error.message}; {CA_FILE} FILE adds its CA"
        case _:
            return error.message


async def _login(reading: Reading, key: ImageKey, reference: Reference) -> str | None:
    """Return ``user:password``, None if the workload has no pull Secret, or if that has no login for the registry.

    The runtime-operator passes an empty login to the host then, and reports nothing.
    """
    if not key.secret:
        return None
    where = f"pull Secret {key.namespace}/{key.secret}"
    try:
        secret = await reading.kube.get(SECRETS, key.secret, key.namespace)
    except NotFound:
        raise _LoginError(f"{where} does not exist") from None
    except Forbidden as error:
        reading.lacks(error, SECRETS)
        raise _LoginError(f"this account cannot read {where}") from None
    try:
        config = base64.b64decode((secret.get("data") or {})[_DOCKER_CONFIG], validate=True)
        # The runtime-operator compares registries only: it uses a login for one path for all of them.
        return credentials_for(reference, config) or credentials_for(reference, config, by_path=False)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise _LoginError(f"{where} has no usable {_DOCKER_CONFIG}") from None
