"""Requests and answers of controllers in Wasm, and answers of registries and the API server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from controller_host.domain.call_fields import CallRefused
from controller_host.domain.calls import GuestEvent, Verb, answer, read
from controller_host.domain.results import WAIT_MAX, read_result
from fuzz.target import Target, jsonable, tried
from fuzz.targets.archives import room
from host_manager.domain.inputs import _registries
from node_installer.domain.errors import InstallError
from node_installer.fetch.oci import Registry, login_for, parse_reference
from node_installer.fetch.web import Response, Web
from support.suite.mutations import dumped, mutated_often, spoilt, text
from trellis.installer_api.result import FailureReason
from trellis.kube.errors import Call, KubeError, error_from
from trellis.kube.nesting import MOST_LEVELS, cut
from trellis.oci.references import credentials_for, parse_image
from trellis.registries.domain.errors import SourceError
from trellis.registries.registry import Registry as ModuleRegistry
from trellis.registries.web import Answer

_OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "team-a", "resourceVersion": "1"},
}
_TYPE = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team-a", "name": "a"}
_REQUESTS: tuple[dict[str, Any], ...] = (
    {"op": "get"} | _TYPE,
    {"op": "list", "labelSelector": "a=b", "limit": 5, "continue": "x"} | _TYPE,
    {"op": "create", "object": _OBJECT},
    {"op": "create", "object": _OBJECT | {"metadata": {"generateName": "a-"}}},
    {"op": "apply", "object": _OBJECT, "force": True, "subresource": "status"},
    {"op": "update", "object": _OBJECT},
    {"op": "patch", "type": "merge", "patch": {"a": 1}} | _TYPE,
    {"op": "patch", "type": "json", "patch": [{"op": "test"}], "subresource": "status"} | _TYPE,
    {"op": "delete", "propagationPolicy": "Orphan", "uid": "u"} | _TYPE,
    {"op": "event", "regarding": _TYPE, "reason": "Done", "message": "x", "type": "Warning"},
)
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-/")


def _request(rng: random.Random) -> tuple[bytes, bytes]:
    request = dumped(rng, mutated_often(rng, rng.choice(_REQUESTS)))
    listed = {"items": [_OBJECT, {}], "metadata": {"continue": "t"}}
    return request, dumped(rng, mutated_often(rng, {"error": "x", "requeueAfter": 5, "list": listed}))


def _judge_request(case: tuple[bytes, bytes]) -> str:
    request, result = case
    _check_result(result)
    outcome, found = tried(lambda: read(request, "trellis.dev/x"), CallRefused)
    if outcome != "accepted":
        assert json.loads(found.answer())["error"]["reason"] == found.reason
        return str(found.reason)
    if isinstance(found, GuestEvent):
        assert found.regarding["name"]
        assert len(found.message) <= 1024
        return "event"
    _check_verb(found, orjson.loads(request))
    return found.op


def _check_verb(verb: Verb, requested: dict[str, Any]) -> None:
    """Nothing of a guest leaves its part of the path, and what is sent is what it gave."""
    assert verb.op == requested["op"]
    assert _SAFE.issuperset(verb.api_version)
    assert verb.api_version.count("/") <= 1
    assert _SAFE.issuperset(verb.kind + verb.namespace + verb.subresource)
    assert "/" not in verb.kind + verb.namespace + verb.subresource + verb.name
    assert verb.name not in (".", "..")
    assert not {"%", "?", "#", "\\"} & set(verb.name)
    assert verb.name.isprintable()
    assert verb.collection == (verb.op in ("list", "create"))
    assert verb.name or verb.collection
    whole = requested.get("object")
    if isinstance(whole, dict):
        assert verb.body is not None
        assert (verb.name or None) == (whole["metadata"].get("name") or None)
        assert orjson.loads(verb.body) == whole
    listed = b'{"items": [{"metadata": {}}], "metadata": {"continue": "t"}}' if verb.op == "list" else b'{"a": 1} '
    orjson.loads(answer(verb, listed))


def _check_result(payload: bytes) -> None:
    found = read_result(payload)
    parsed = jsonable(payload)
    if found.again is not None:
        assert 0 <= found.again <= WAIT_MAX
        assert math.isclose(found.again, min(float(parsed["requeueAfter"]), WAIT_MAX))
    assert found.error.isprintable()
    assert len(found.error) <= 2000
    assert found.error or (isinstance(parsed, dict) and parsed.get("error") is None) or payload == b""


REQUEST = Target(
    "guest-calls",
    "requests of controllers to Kubernetes, and their results",
    "no value of a guest leaves its part of a path; the body is unchanged; every refusal is JSON of the ABI",
    _request,
    _judge_request,
    frozenset({"get", "list", "create", "apply", "update", "patch", "delete", "event", "InvalidRequest"}),
    share=16,
)

_SHA = "ab" * 32
_IMAGES = (
    "registry.example/team/shim:1.2", f"registry.example:5000/t/s@sha256:{_SHA}",
    f"docker.io/library/x:1@sha256:{_SHA}",
    "localhost/x", "r.example/a/b/c", "user@r/x", "R/X", "r.example//x", "r.example/x:", "r.example/x@sha256:abc",
)  # fmt: skip


def _reference(rng: random.Random) -> tuple[str, bytes]:
    auths = {
        "registry.example": {"auth": "dTpw"}, "https://index.docker.io/v1/": {"username": "u", "password": "p"},
        "localhost": {"username": "u"}, "r.example/a": {"auth": "dTpw"},
    }  # fmt: skip
    return text(rng, _IMAGES), dumped(rng, mutated_often(rng, {"auths": auths, "credsStore": "x"}))


def _judge_reference(case: tuple[str, bytes]) -> str:
    image, config = case
    outcome, found = tried(lambda: parse_image(image), ValueError)
    here, installed = tried(lambda: parse_reference(f"oci://{image}"), InstallError)
    for how, item in ((outcome, found), (here, installed)):
        if how == "accepted":
            again = item.registry + "/" + item.repository
            assert image.startswith(again), (image, again)
            assert "@" not in item.registry
            assert "/" not in item.registry
            assert not {"..", "", "."} & set(item.repository.split("/"))
            assert item.digest is None or image.endswith(f"@{item.digest}")
    if outcome == "accepted":
        assert found.url("x").startswith("https://")
        who, login = tried(lambda: credentials_for(found, config), ValueError)
        assert who != "accepted" or login is None or ":" in login or _is_of(config, login)
    if here == "accepted":
        tried(lambda: login_for(installed, config), InstallError)
    data = {"data": {".dockerconfigjson": _packed(config)}}
    registries, problem = _registries({("Secret", "s"): data}, "s")
    assert registries or problem is not None
    for registry in registries:
        assert all(isinstance(item, str) for item in (registry.server, registry.user, registry.password)), registry
    return outcome


def _is_of(config: bytes, login: str) -> bool:
    """Return whether a login without a colon was written that way."""
    return isinstance(login, str) and config != b""


def _packed(raw: bytes) -> str:
    import base64  # noqa: PLC0415

    return base64.b64encode(raw).decode()


REFERENCE = Target(
    "image-references",
    "image references, and Docker configurations with logins",
    "a reference is equal after a round trip, on no other host; logins are text, or absent",
    _reference,
    _judge_reference,
    frozenset({"accepted", "ValueError"}),
)


@dataclass(frozen=True)
class _Answers(Web):
    """A registry that answers what was drawn, and blobs by their digests."""

    documents: list[tuple[int, str, bytes]] = field(default_factory=list)
    blobs: Mapping[str, bytes] = field(default_factory=dict)

    def get(self, url: str, headers: Mapping[str, str], limit: int = 8 << 20) -> Response:
        del headers, limit
        self.check_scheme(url)
        if not self.documents:
            return Response(404, {}, b"")
        status, header, body = self.documents.pop(0)
        return Response(status, {"content-type": header, "www-authenticate": header}, body)

    def download(self, url: str, target: Path, *, headers: Any = None, limit: int = 0) -> str:
        del headers, limit
        content = self.blobs.get(url.rpartition("/")[2], b"nothing")
        target.write_bytes(content)
        return hashlib.sha256(content).hexdigest()


def _registry(rng: random.Random) -> tuple[list[tuple[int, str, bytes]], bytes, str | None]:
    content = rng.choice([b"\x7fELFshim", b"text", b"\0asm\1\0\0\0"])
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    title = {"org.opencontainers.image.title": "containerd-shim-spin-v2"}
    layer: dict[str, Any] = {"mediaType": "application/wasm", "digest": digest, "size": len(content)}
    layer |= {"annotations": title} if rng.random() < 0.5 else {}
    layers = [layer, *([layer | {"mediaType": "application/vnd.oci.image.layer.v1.tar"}] if rng.random() < 0.2 else [])]
    manifest = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "layers": layers,
        "config": {"digest": digest},
    }
    index = {
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {"digest": digest, "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": digest, "platform": {"os": "wasi", "architecture": "wasm"}},
            {"digest": digest, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}},
        ],
    }
    documents = []
    if rng.random() < 0.3:
        challenge = (
            spoilt(rng, b'Bearer realm="https://r/token",service="s",scope="x"') if rng.random() < 0.5 else b"Basic"
        )
        documents = [
            (401, challenge.decode("latin-1"), b""),
            (200, "", dumped(rng, mutated_often(rng, {"token": "t"}))),
        ]
    if rng.random() < 0.4:
        documents.append((200, "application/json", dumped(rng, mutated_often(rng, index))))
    documents.append((rng.choice([200, 200, 200, 404]), "application/json", dumped(rng, mutated_often(rng, manifest))))
    return documents, content, rng.choice([None, "u:p"])


def _judge_registry(case: tuple[list[tuple[int, str, bytes]], bytes, str | None]) -> str:
    documents, content, login = case
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if len(documents) % 2 == 0 or len(documents[-1][2]) % 4 == 0:  # an event loop of its own takes its time
        _check_module(documents, {digest: content}, login)
    web = _Answers(documents=list(documents), blobs={digest: content})
    registry = Registry(web, parse_reference("oci://r.example/t/s:1"), login)
    for old in room("registries").iterdir():
        old.unlink()
    outcome, found = tried(
        lambda: registry.fetch("amd64", room("registries"), None, ("containerd-shim-spin-v2",)), InstallError
    )
    if outcome == "accepted":
        assert found.read_bytes() == content
        return outcome
    assert isinstance(found.reason, FailureReason)
    return str(found.reason)


class _Transfer:
    """The same registry, for controller_host."""

    def __init__(self, documents: list[tuple[int, str, bytes]], blobs: Mapping[str, bytes]) -> None:
        self._documents = list(documents)
        self._blobs = blobs

    async def grow(self) -> None:
        """There is room."""

    async def ask(self, method: str, url: str, headers: Mapping[str, str], *, most: int) -> Answer:
        del method, most
        assert all(item.isascii() and item.isprintable() for item in headers.values()), headers
        if "/blobs/" in url:
            return Answer(200, {}, self._blobs.get(url.rpartition("/")[2], b"nothing"))
        status, header, body = self._documents.pop(0) if self._documents else (404, "", b"")
        return Answer(status, {"Content-Type": header, "WWW-Authenticate": header}, body)


def _check_module(documents: list[tuple[int, str, bytes]], blobs: Mapping[str, bytes], login: str | None) -> None:
    registry = ModuleRegistry(_Transfer(documents, blobs), parse_image("r.example/t/s:1"), login)
    how, found = tried(lambda: asyncio.run(registry.module()), SourceError)
    assert how != "accepted" or found in blobs.values()


REGISTRY = Target(
    "registries",
    "responses of registries and their token servers: challenges, indexes, manifests, tokens",
    "the exact blob of the digest, or an error with a reason",
    _registry,
    _judge_registry,
    frozenset({"accepted", "DownloadFailed", "NoSourceForPlatform", "InsecureSource"}),
    share=8,
)


_KUBE_STATUS = {
    "kind": "Status", "code": 422, "reason": "Invalid", "message": "no",
    "details": {"causes": [{"field": "metadata.uid"}], "retryAfterSeconds": 5},
}  # fmt: skip


def _kube_answer(rng: random.Random) -> tuple[int, bytes, dict[str, str], bytes]:
    body = dumped(rng, mutated_often(rng, _KUBE_STATUS))
    headers = {"Retry-After": text(rng, ["5", "0", "Wed, 21 Oct 2026 07:28:00 GMT"])} if rng.random() < 0.5 else {}
    depth = rng.choice([1, 5, MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1, 1500])
    opening = [rng.choice(['{"a":', "[", '["]",', '{"\\"[":1,"b":']) for _ in range(depth)]
    closing = ["}" if item.startswith("{") else "]" for item in reversed(opening)]
    deep = "".join([*opening, "7", *closing]).encode()
    return rng.choice([400, 401, 403, 404, 409, 410, 422, 429, 500, 503]), body, headers, deep


def _judge_kube_answer(case: tuple[int, bytes, dict[str, str], bytes]) -> str:
    status, body, headers, deep = case
    found = error_from(Call("GET", "Node", "nodes", "", "n1"), status, body, headers)
    assert isinstance(found, KubeError)
    assert str(found)
    assert found.retry_after is None or found.retry_after >= 0
    shallow = orjson.loads(cut(deep))
    whole, level = shallow, 0
    while isinstance(whole, dict | list):
        level += 1
        whole = list(whole.values())[-1] if isinstance(whole, dict) else whole[-1]
    assert level <= MOST_LEVELS
    assert whole == 7 or (whole is None and level == MOST_LEVELS)
    return type(found).__name__


KUBE_ANSWER = Target(
    "kubernetes-answers",
    "errors of the API server, or of a proxy in front of it, and JSON with too many nesting levels",
    "one of the errors of Trellis for any body; only levels beyond the limit are dropped",
    _kube_answer,
    _judge_kube_answer,
    frozenset({"NotFound", "Conflict", "Invalid"}),
    share=6,
)

TARGETS = (REQUEST, REFERENCE, REGISTRY, KUBE_ANSWER)
