"""The objects of the cases: Secrets, accounts and their permissions in a cluster, keys and tokens of a host.

In: an API server, a client connected to NATS. Out: the world of :class:`World`. Accounts have the permissions under two
names, as ServiceAccounts and as users, because ``impersonate`` means the one to us and the other to the peer.
"""

from __future__ import annotations

import base64
import binascii
import http
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from support.cluster.grants import until_bound
from support.secrets.secrets_client import Headers, Key, Reply, SecretsClient
from trellis_dev.localcluster.api import Api

PREFIX: Final = "wasmcloud.secrets"
VERSION: Final = "v1alpha1"
HOST_XKEY: Final = "WasmCloud-Host-Xkey"
RESPONSE_XKEY: Final = "Server-Response-Xkey"
READER, MUTE, DEFAULT_ACCOUNT = "reader", "mute", "wasmcloud-secrets"
USER: Final = "somebody"
"""Who may read, and is no ServiceAccount."""
TEXT: Final = "p4ss-w0rd"
TOKEN_HEADER: Final = '{"typ":"jwt","alg":"Ed25519"}'
NOT_TEXT: Final[Mapping[str, bytes]] = {
    "byte-ff": b"\xff",
    "latin": "pä55".encode("latin-1"),
    "every-byte": bytes(range(256)),
    "half-a-letter": "pä".encode()[:-1],
    "surrogate": b"\xed\xa0\x80",
    "many-bytes": b"\x00\xff" * 50_000,
}
VALUES: Final[Mapping[str, str]] = {
    "text": TEXT,
    "other": "another value",
    "empty": "",
    "blank": " ",
    "letters": "pä55wörd 密码 🔑",
    "lines": "-----BEGIN-----\nabc\r\n\tdef\n-----END-----\n",
    "nul": "a\x00b",
    "control": "\x01\x1f\x7f\u2028\u2029",
    "quotes": '"\\"</script>&',
    "number": "007",
    "truth": "true",
    "null": "null",
    "json": '{"secret":{"string_secret":"x"}}',
    "mark": "\ufeffmarked",
    "long": "0123456789abcdef" * 31_250,
    "tls.crt": "in a name with a dot",
    ".hidden": "in a name that begins with one",
    "A_b-C.9": "in a name of all kinds",
}
TOO_LONG: Final = "too-long"
"""An entry that a Secret can hold and a message cannot: every character takes six as JSON."""


@dataclass
class World:
    """The cluster and the NATS server of the cases."""

    client: SecretsClient
    api: Api
    namespace: str
    """The cases' own; ``default`` is the protocol's default."""
    backend: str
    name: str
    """Of the Secrets, in each namespace."""
    outside: str
    """A namespace whose Secrets nobody was given."""
    account: Key = field(init=False)
    host_account: Key = field(init=False)
    subjects: dict[str, Key] = field(init=False)
    server_xkey: str = ""

    def __post_init__(self) -> None:
        self.account, self.host_account = self.client.make_key("account"), self.client.make_key("account")
        self.subjects = {kind: self.client.make_key(kind) for kind in ("component", "provider", "host")}

    def subject(self, operation: str) -> str:
        """Return the subject of an operation."""
        return f"{PREFIX}.{VERSION}.{self.backend}.{operation}"

    def issuer(self, kind: str) -> Key:
        """Return who signs the tokens of components and providers, or those of hosts."""
        return self.host_account if kind == "host" else self.account

    def token(self, kind: str) -> str:
        """Return a token as wascap makes it."""
        return self.client.make_token(kind, self.issuer(kind), self.subjects[kind].public)

    def ask_key(self) -> str:
        """Ask for the server's key."""
        return self.client.request(self.subject("server_xkey"), b"").data.decode("ascii", "replace")

    def prepare(self) -> None:
        """Make Secrets, accounts and their permissions."""
        for namespace in (self.namespace, "default", self.outside):
            self._secret(namespace)
        for namespace in (self.namespace, "default"):
            for account in (READER, MUTE, DEFAULT_ACCOUNT):
                self._create(namespace, "/api/v1", "serviceaccounts", {"metadata": {"name": account}}, exists=True)
            for account in (READER, DEFAULT_ACCOUNT, USER):
                self._may_read(namespace, account)

    def remove(self) -> None:
        """Remove what is in the default namespace; the others are the caller's."""
        for name in (self.name, f"{self.name}-long"):
            self.api.call("DELETE", f"/api/v1/namespaces/default/secrets/{name}")
        for account in (READER, DEFAULT_ACCOUNT, USER):
            for resource in ("roles", "rolebindings"):
                path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{resource}/{self.name}-{account}"
                self.api.call("DELETE", path)

    def _secret(self, namespace: str) -> None:
        values = {name: value.encode() for name, value in VALUES.items()} | dict(NOT_TEXT)
        data = {name: base64.b64encode(value).decode() for name, value in values.items()}
        self._create(namespace, "/api/v1", "secrets", {"metadata": {"name": self.name}, "data": data})
        long = {TOO_LONG: base64.b64encode(b"\x01" * 700_000).decode()}
        self._create(namespace, "/api/v1", "secrets", {"metadata": {"name": f"{self.name}-long"}, "data": long})

    def _may_read(self, namespace: str, account: str) -> None:
        name, group = f"{self.name}-{account}", "rbac.authorization.k8s.io"
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        path = f"/apis/{group}/v1"
        self._create(namespace, path, "roles", {"metadata": {"name": name}, "rules": [rule]})
        subjects = [{"kind": "User", "apiGroup": group, "name": account}]
        if account != USER:
            subjects.append({"kind": "ServiceAccount", "name": account, "namespace": namespace})
        reference = {"apiGroup": group, "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        self._create(namespace, path, "rolebindings", binding)
        until_bound(self.api, binding | {"metadata": {"name": name, "namespace": namespace}})

    def _create(self, namespace: str, base: str, kind: str, body: dict[str, Any], *, exists: bool = False) -> None:
        status, answer = self.api.call("POST", f"{base}/namespaces/{namespace}/{kind}", body)
        assert status == http.HTTPStatus.CREATED or (exists and status == http.HTTPStatus.CONFLICT), answer


@dataclass(frozen=True)
class Forge:
    """The parts of a token, which a case changes before it is signed, or after."""

    world: World
    kind: str
    claims: dict[str, Any]
    header: str = TOKEN_HEADER

    @classmethod
    def of(cls, world: World, kind: str) -> Forge:
        """Return the parts of a good token."""
        about: dict[str, Any] = {"name": f"a {kind}"}
        about |= {"labels": {"self_signed": "true"}} if kind == "host" else {"hash": "00", "prov": False}
        claims = {
            "jti": "IwQkrdwquxjh08VY0AXvmQ",
            "iat": int(time.time()),
            "iss": world.issuer(kind).public,
            "sub": world.subjects[kind].public,
            "wascap": about,
            "wascap_revision": 3,
        }
        return cls(world, kind, claims)

    def signed(self, key: Key | None = None, **changes: Any) -> str:
        """Return the token with other claims; ``...`` leaves one out."""
        claims = {name: value for name, value in (self.claims | changes).items() if value is not ...}
        return self.signed_text(json.dumps(claims), key)

    def signed_text(self, claims: str, key: Key | None = None) -> str:
        """Return the token with these claims to the letter."""
        return self.world.client.sign((key or self.world.issuer(self.kind)).seed, self.header, claims)

    def headed(self, header: str) -> str:
        """Return the token with this header to the letter."""
        return replace(self, header=header).signed()

    def issued_by(self, kind: str) -> str:
        """Return the token, issued and signed by a key of another kind."""
        key = self.world.client.make_key(kind)
        return self.signed(key, iss=key.public)


def nkey(prefix: int, raw: bytes) -> str:
    """Return bytes as nkeys writes them: right in everything but maybe their number."""
    body = bytes([prefix]) + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode().rstrip("=")


@dataclass(frozen=True)
class Sealing:
    """A request before it is sealed, and the keys."""

    world: World
    text: bytes
    host: Key

    def sealed(self, text: bytes | None = None, to: str | None = None) -> bytes:
        """Return the box for the server, or for another key."""
        text = self.text if text is None else text
        return self.world.client.seal(text, self.host.seed, to or self.world.server_xkey)


Tokens = Callable[[Forge], str]
Texts = Callable[[dict[str, Any]], str | bytes]
Boxes = Callable[[Sealing], bytes]
Heads = Callable[[World, Key], Headers]


def the_host(_: World, host: Key) -> Headers:
    """Return the header that a host sends."""
    return ((HOST_XKEY, host.public),)


@dataclass(frozen=True)
class Ask:
    """A request: a good one, but for what a case says of it."""

    operation: str = "get"
    entity: Tokens | None = None
    host: Tokens | None = None
    policy: Callable[[World], Any] | None = None
    name: Callable[[World], str] | None = None
    field: str = "text"
    text: Texts = json.dumps
    box: Boxes = Sealing.sealed
    headers: Heads = the_host
    replies: bool = True

    def request(self, world: World) -> dict[str, Any]:
        """Return the request as a host writes it."""
        entity = self.entity(Forge.of(world, "component")) if self.entity else world.token("component")
        host = self.host(Forge.of(world, "host")) if self.host else world.token("host")
        policy = self.policy(world) if self.policy else policy_of(world.namespace, READER)
        application = {"name": "shop", "policy": policy}
        return {
            "key": self.name(world) if self.name else world.name,
            "field": self.field,
            "version": None,
            "context": {"entity_jwt": entity, "host_jwt": host, "application": application},
        }

    def send(self, world: World) -> tuple[Reply | None, Key]:
        """Send it; return what came, and the key that opens it."""
        host = world.client.make_key("curve")
        text = self.text(self.request(world))
        sealing = Sealing(world, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, host)
        subject, box, headers = world.subject(self.operation), self.box(sealing), self.headers(world, host)
        if not self.replies:
            world.client.publish(subject, box, headers)
            return None, host
        return world.client.request(subject, box, headers, seconds=10.0), host


def policy_of(namespace: str | None, account: str | None, /, **others: Any) -> str:
    """Return a policy as hosts send it; None leaves a property out."""
    properties = {"namespace": namespace, "impersonate": account}
    given = {name: value for name, value in properties.items() if value is not None} | others
    return json.dumps({"type": "properties.secret.wasmcloud.dev/v1alpha1", "properties": given})
