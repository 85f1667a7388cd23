"""Applications to convert to wasmCloud v2, as users write them and in unusual forms; and what a conversion has to keep.

In: a ``random.Random``, or hypothesis in its place. Out: manifests that wadm accepts; the parts that a conversion lost.
Called by the property test and the fuzz target. The walk over the manifest is independent of the converter's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from support.lattices.v2_objects import errors_of
from support.suite.mutations import TEXTS
from trellis.lattice.domain.projection import Projection, project
from trellis.lattice.domain.reading import LatticeDataError
from trellis_cli.migrate.model.to_v2.report import Conversion, Reason

Manifest = dict[str, Any]

CREDENTIAL = "hunter2"
"""In every setting and secret with a credential: no workload and no line of a report has it."""
_WORDS = [*(text for text in TEXTS if text.isprintable() and "\ud800" not in text), "ui", "cart", "api", "web-1", "Ünï"]
_PROVIDERS = [
    "ghcr.io/wasmcloud/http-server:0.27.0", "wasmcloud+builtin://http-server", "ghcr.io/wasmcloud/http-client:0.13.0",
    "ghcr.io/wasmcloud/keyvalue-nats:0.3.1", "localhost:5000/x/keyvalue-redis@sha256:abc",
    "ghcr.io/wasmcloud/kvredis:1", "ghcr.io/wasmcloud/blobstore-nats:0.1.0", "ghcr.io/wasmcloud/blobstore-fs:0.12.0",
    "wasmcloud+builtin://messaging-nats", "ghcr.io/wasmcloud/sqldb-postgres:0.9.0", "example.com/acme/cron:1", "",
]  # fmt: skip
_WIT = [
    ("wasi", "http", ["incoming-handler"]), ("wasi", "http@0.2.0", ["outgoing-handler"]),
    ("wasi", "keyvalue", ["store", "atomics", "watcher"]), ("wasi", "blobstore", ["blobstore"]),
    ("wasmcloud", "messaging", ["handler"]), ("wasmcloud", "messaging", ["consumer@0.2.0"]),
    ("wasmcloud", "postgres", ["query"]), ("acme", "shop", ["cart"]), ("wasi", "keyvalue", []),
]  # fmt: skip
_FITTING = [
    ("http-server", _WIT[0]), ("http-client", _WIT[1]), ("keyvalue", _WIT[2]), ("kvredis", _WIT[2]),
    ("blobstore", _WIT[3]), ("messaging", _WIT[4]), ("messaging", _WIT[5]), ("postgres", _WIT[6]),
]  # fmt: skip
"""What links to a provider are for, by a part of its image."""
_SETTINGS: Manifest = {
    "address": "0.0.0.0:8080", "default_address": "[::]:9090", "port": 8081, "routing_mode": "path", "path": "/a",
    "host": "shop.example.com", "cors_allowed_origins": "[]", "cluster_uri": "nats://nats.data:4222",
    "cluster_uris": "nats://a:1,nats://b:2", "bucket": "carts", "js_domain": "hub", "url": "redis://redis:6379",
    "URL": f"redis://u:{CREDENTIAL}@redis:6379", "root": "/data", "subscriptions": "a.>,b|q", "ROOT": "/other",
    "client_seed": CREDENTIAL, "POSTGRES_PASSWORD": CREDENTIAL, "POSTGRES_DATABASE": "shop", "log level": "x",
    "log-level": "y", "A": True,
}  # fmt: skip
_BACKENDS = ("kube", "kube", "nats-kv", "vault")


def _word(rng: random.Random) -> str:
    return rng.choice(_WORDS) if rng.random() < 0.3 else rng.choice(["ui", "cart", "store", "kv", "http", "default"])


def _config(rng: random.Random, keys: list[str]) -> Manifest:
    if rng.random() < 0.15:
        return {"name": _word(rng)}
    chosen = rng.sample(keys, rng.randrange(min(4, len(keys) + 1)))
    return {"name": _word(rng), "properties": {key: _SETTINGS[key] for key in chosen}}


def _configs(rng: random.Random) -> list[Manifest]:
    keys = [key for key in _SETTINGS if CREDENTIAL not in str(_SETTINGS[key])] if rng.random() < 0.5 else [*_SETTINGS]
    return [_config(rng, keys) for _ in range(rng.choice([0, 0, 1, 2]))]


def _plain_configs(rng: random.Random) -> list[Manifest]:
    keys = [key for key in _SETTINGS if CREDENTIAL not in str(_SETTINGS[key])]
    return [_config(rng, keys) for _ in range(rng.choice([0, 0, 1, 2]))]


def _secrets(rng: random.Random) -> list[Manifest]:
    return [
        {
            "name": rng.choice(["url", "api-key", _word(rng)]),
            "properties": {
                "policy": rng.choice(["vault", "vault", "none"]),
                "key": rng.choice(["api", "db", "No Name"]),
            }
            | rng.choice([{}, {"field": "url"}, {"field": "key", "version": "1"}]),
        }
        for _ in range(rng.choice([0, 0, 0, 1, 2]))
    ]


def _link(rng: random.Random, own: Manifest, pieces: list[Manifest]) -> Manifest:
    """Return a link of a component or provider, mostly one that makes sense."""
    other = rng.choice(pieces)
    provider = next((item for item in (own, other) if item["type"] == "capability"), None)
    image = str(provider["properties"].get("image")) if provider else ""
    fitting = [wit for part, wit in _FITTING if part in image]
    namespace, package, interfaces = rng.choice(fitting if fitting and rng.random() < 0.8 else _WIT)
    properties: Manifest = {"namespace": namespace, "package": package, "interfaces": interfaces}
    name = other["name"] if rng.random() < 0.95 else "missing"
    target: Manifest = {"name": name, "config": _configs(rng), "secrets": _secrets(rng)}
    properties["target"] = target if rng.random() < 0.9 else target["name"]
    if rng.random() < 0.6:
        properties["source"] = {"config": _configs(rng), "secrets": _secrets(rng)}
    if rng.random() < 0.2:
        properties["name"] = _word(rng)
    return {"type": "link", "properties": properties}


def _scaler(rng: random.Random) -> Manifest:
    count = rng.choice([0, 1, 3, 100, 2**31, 2**40])
    spreads = [
        {"name": zone, "requirements": rng.choice([{}, {"zone": zone}, {"zone": zone, "arch": "arm"}])}
        | rng.choice([{}, {"weight": 30}, {"weight": 0}])
        for zone in rng.sample(["a", "b", "c"], rng.choice([0, 0, 1, 1, 2, 3]))
    ]
    kind = rng.choice(["spreadscaler", "spreadscaler", "daemonscaler"])
    return {"type": kind, "properties": {rng.choice(["instances", "replicas"]): count, "spread": spreads}}


def _piece(rng: random.Random, name: str) -> Manifest:
    """Return a component or provider without its links."""
    provider = rng.random() < 0.5
    image = (
        rng.choice(_PROVIDERS)
        if provider
        else rng.choice([f"example.com/{len(name)}:1"] * 4 + ["file:///x.wasm", "not a ref!!", ""])
    )
    properties: Manifest = {"image": image}
    if rng.random() < 0.1:
        properties = {"application": {"name": "other", "component": _word(rng)}}
    if rng.random() < 0.1:
        properties["id"] = _word(rng)
    properties["config"] = _configs(rng) if provider else _plain_configs(rng)
    properties["secrets"] = _secrets(rng)
    traits = [_scaler(rng) for _ in range(rng.choice([0, 1, 1, 2]))]
    if rng.random() < 0.1:
        traits.append({"type": "custom", "properties": {"x": 1}})
    kind = "capability" if provider else rng.choice(["component", "actor"])
    return {"name": name, "type": kind, "properties": properties, "traits": traits}


def application(rng: random.Random) -> Manifest:
    """Return a manifest that wadm accepts."""
    names = dict.fromkeys(_word(rng) for _ in range(rng.choice([1, 2, 3, 4, 6, 8])))
    pieces = [_piece(rng, name) for name in names]
    for piece in pieces:
        piece["traits"] += [_link(rng, piece, pieces) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
    policy = {"backend": rng.choice(_BACKENDS), "namespace": rng.choice(["shop", "shop", "other"])}
    if rng.random() < 0.3:
        policy["impersonate"] = "reader"
    annotations = {
        "version": "v1", "description": "x", "experimental.wasmcloud.dev/shared": "true",
        "trellis.dev/service": rng.choice(["false", "true"]), "trellis.dev/service-type": rng.choice(["NodePort", "x"]),
        "trellis.dev/service-hostnames": "*.example.com,shop.example.com", "trellis.dev/service-gateway": "edge/main",
        "trellis.dev/service-ports": "kv=5432", "service-label.trellis.dev/team": rng.choice(["web", "not valid"]),
        "service-annotation.trellis.dev/x__y": "z", "trellis.dev/service-session-affinity": "ClientIP",
        "long": "x" * 300_000, "argocd.argoproj.io/sync-wave": "2", "trellis.dev/later": "x",
    }  # fmt: skip
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {
            "name": _word(rng) or "x",
            "labels": rng.choice(
                [{}, {"team": "web"}, {"team": "not valid", "Ä": "x", "app.kubernetes.io/managed-by": "Helm"}]
            ),
            "annotations": {key: annotations[key] for key in rng.sample(sorted(annotations), rng.randrange(5))},
        },
        "spec": {
            "components": pieces,
            "policies": [
                {"name": "vault", "type": "policy.secret.wasmcloud.dev/v1alpha1", "properties": policy},
                {"name": "other", "type": "x", "properties": {}},
            ][: rng.randrange(3)],
        },
    }


_ODD: list[Any] = [
    *("", "-", "@", "@@", "a@b@c", "é" * 90, "x" * 5000, "a b", "a/b", "0", "\u2028", "x" * 1_000_000),
    *(None, True, 0, -1, 1.5, 2**53, [], ["a", None, {}], {}, {"a": {"b": [1]}}),
]
"""Values where a manifest has a text, a number or a map."""
_ODD_TRAITS: list[Any] = [
    {"type": "custom", "properties": {"instances": 3, "spread": [{"name": "a", "requirements": {"zone": "a"}}]}},
    {"type": "custom", "properties": {"namespace": "wasi", "package": "http", "interfaces": ["x"], "target": "ui"}},
    {"type": "link", "properties": {"instances": 1}},
    {"type": "spreadscaler", "properties": {"namespace": "wasi", "package": "http", "interfaces": [], "target": "ui"}},
    {"type": "daemonscaler", "properties": {"other": 1}},
    *({"type": "custom", "properties": value} for value in ("x", 5, None)),
]


def strange(rng: random.Random, manifest: Manifest) -> Manifest:
    """Return a manifest with odd values, unknown fields, traits of other shapes and many links; some are refused."""
    made: Manifest = json.loads(json.dumps(manifest))
    components = made["spec"]["components"]
    for _ in range(rng.choice([1, 2, 3, 8])):
        fields = [*_fields(made["spec"])]
        texts = [(holder, key) for holder, key in fields if isinstance(holder[key], str)]
        holder, key = rng.choice(texts if texts and rng.random() < 0.7 else fields)
        match rng.randrange(4):
            case 0:
                _add_traits(rng.choice(components), [_one_of(rng, _ODD_TRAITS)])
            case 1 if isinstance(holder, dict):
                holder[rng.choice(["later", "é", "x" * 300, ""])] = _one_of(rng, _ODD)
            case _:
                alike = [value for value in _ODD if isinstance(value, type(holder[key]))]
                holder[key] = _one_of(rng, alike if alike and rng.random() < 0.9 else _ODD)
    if rng.random() < 0.1:
        name = rng.choice([item["name"] for item in manifest["spec"]["components"]])
        _add_traits(rng.choice(components), [_numbered(rng, name, number) for number in range(90)])
    if rng.random() < 0.2:
        made["metadata"]["name"] = rng.choice(["x" * 300, "Größe", "a.b/c", " ", "UPPER"])
    return made


def _one_of(rng: random.Random, values: list[Any]) -> Any:
    """Return a copy of a value, which a later change can fill."""
    return json.loads(json.dumps(rng.choice(values)))


def _add_traits(component: Any, traits: list[Manifest]) -> None:
    if isinstance(component, dict) and isinstance(component.setdefault("traits", []), list):
        component["traits"] += traits


def _numbered(rng: random.Random, target: str, number: int) -> Manifest:
    namespace, package, interfaces = rng.choice(_WIT)
    properties = {"namespace": namespace, "package": package, "interfaces": interfaces, "target": {"name": target}}
    return {"type": "link", "properties": properties | {"name": f"n{number}"}}


def _fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each field of an object and each item of a list, with its holder."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        yield value, key
        yield from _fields(item)


def accepted(manifest: Any, name: str = "") -> bool:
    """Return whether wadm accepts the form of a manifest, and the names of its components."""
    try:
        orjson.dumps(manifest)
        components = project(manifest, name).manifest["spec"]["components"]
    except (LatticeDataError, TypeError, RecursionError):
        return False
    return len({item["name"] for item in components}) == len(components)


def wrong(manifest: Manifest, name: str, found: Conversion) -> list[str]:
    """Return what is wrong with a conversion of a manifest that wadm accepts: parts lost, objects that are invalid."""
    projection = project(manifest, name)
    return [
        *(f"lost: {place}" for place in (*_marks(manifest), *_places(projection)) if not _covered(place, found)),
        *(f"{item['kind']} {item['metadata']['name']}: {error}" for item in found.objects for error in errors_of(item)),
        *_values(projection.manifest, found),
        *_references(found),
    ]


def _covered(place: str, found: Conversion) -> bool:
    return place in found.parts or any(
        place == line.part
        or (line.reason in _OF_THE_WHOLE and line.part and place.startswith((f"{line.part}.", f"{line.part}[")))
        for line in found.lines
    )


_OF_THE_WHOLE = frozenset(
    {
        *(Reason.NO_IMAGE, Reason.SHARED_COMPONENT, Reason.PROVIDER_NOT_IN_V2, Reason.PROVIDER_NOT_USED),
        *(Reason.LINK_BETWEEN_APPLICATIONS, Reason.LINK_TARGET_MISSING, Reason.LINK_NOT_TRANSLATED),
        *(Reason.SECOND_LISTENER, Reason.TOO_MANY_INTERFACES, Reason.INTERFACE_NOT_IN_V2, Reason.INTERFACE_CONFLICT),
        *(Reason.LINK_SETTING, Reason.PROVIDER_SETTING, Reason.CONFIGURATION_TOO_LARGE, Reason.WEIGHTED_SPREAD),
        *(Reason.PROVIDER_SCALER, Reason.SECOND_SCALER, Reason.UNKNOWN_TRAIT, Reason.IGNORED_BY_WADM),
    }
)
"""Reasons for which a whole part is lost: their lines stand for the parts below, too."""
_NOT_OF_THE_AUTHOR = frozenset({"version", "kubectl.kubernetes.io/last-applied-configuration", "trellis.dev/undeploy"})


def _marks(manifest: Manifest) -> Iterator[str]:
    """Yield the path of each label and annotation, also of those that wadm does not receive."""
    for kind in ("labels", "annotations"):
        for key in manifest["metadata"].get(kind) or ():
            if key not in _NOT_OF_THE_AUTHOR:
                yield f"metadata.{kind}.{key}"


def _places(projection: Projection) -> Iterator[str]:
    """Yield the path of each part."""
    yield from projection.ignored
    spec = projection.manifest["spec"]
    yield from (f"spec.policies[{at}]" for at, _ in enumerate(spec.get("policies") or ()))
    for at, component in enumerate(spec["components"]):
        place = f"spec.components[{at}]"
        yield place
        properties = component["properties"]
        yield from (f"{place}.properties.{key}" for key in ("image", "application", "id") if properties.get(key))
        yield from _end(properties, f"{place}.properties")
        for number, trait in enumerate(component.get("traits") or ()):
            inner = f"{place}.traits[{number}]"
            yield inner
            if isinstance(trait["properties"], dict):
                yield from _trait(trait["properties"], f"{inner}.properties")


def _trait(properties: Manifest, place: str) -> Iterator[str]:
    if "interfaces" in properties and isinstance(properties.get("target"), dict):
        yield from _end(properties.get("source") or {}, f"{place}.source")
        yield from _end(properties["target"], f"{place}.target")
    elif "instances" in properties:
        yield f"{place}.instances"
        spread = properties.get("spread")
        yield from (f"{place}.spread[{at}]" for at, _ in enumerate(spread if isinstance(spread, list) else ()))


def _end(holder: Any, place: str) -> Iterator[str]:
    """Yield the paths of configurations and secrets; those of a trait of another type can have any form."""
    lists = holder if isinstance(holder, dict) else {}
    configs, secrets = (found if isinstance(found := lists.get(key), list) else [] for key in ("config", "secrets"))
    for at, config in enumerate(configs):
        yield f"{place}.config[{at}]"
        entries = config.get("properties") if isinstance(config, dict) else None
        yield from (f"{place}.config[{at}].properties.{key}" for key in (entries if isinstance(entries, dict) else ()))
    yield from (f"{place}.secrets[{at}]" for at, _ in enumerate(secrets))


def _values(manifest: Mapping[str, Any], found: Conversion) -> Iterator[str]:
    """Yield values that the objects should have and do not have, and credentials that they should not have."""
    workloads = [item for item in found.objects if item["kind"] == "WorkloadDeployment"]
    maps = {item["metadata"]["name"]: item["data"] for item in found.objects if item["kind"] == "ConfigMap"}
    running = [item for workload in workloads for item in workload["spec"]["template"]["spec"]["components"]]
    for at, component in enumerate(manifest["spec"]["components"]):
        place, properties = f"spec.components[{at}]", component["properties"]
        if component["type"] != "component" or place not in found.parts:
            continue
        if properties["image"] not in {item["image"] for item in running}:
            yield f"no image: {place}"
        for number, config in enumerate(properties.get("config") or ()):
            for key, value in (config.get("properties") or {}).items():
                where = found.parts.get(f"{place}.properties.config[{number}].properties.{key}", "")
                text = str(value).lower() if not isinstance(value, str) else value
                if where and maps[where.rpartition("/")[2]].get(key) != text:
                    yield f"no value: {place} {key}"
        passed = {ref["name"] for item in running for ref in _environment(item).get("secretFrom") or ()}
        for number, secret in enumerate(properties.get("secrets") or ()):
            if f"{place}.properties.secrets[{number}]" in found.parts and secret["properties"]["key"] not in passed:
                yield f"no Secret: {place}"
    shown = json.dumps([workloads, [line.document() for line in found.lines], dict(found.parts)])
    if CREDENTIAL in shown:
        yield "a credential is shown"


def _environment(component: Manifest) -> Manifest:
    environment: Manifest = (component.get("localResources") or {}).get("environment") or {}
    return environment


def _references(found: Conversion) -> Iterator[str]:
    """Yield references to objects that neither are in the output nor have to be created by a line of the report."""
    there = {(item["kind"], item["metadata"]["name"]) for item in found.objects}
    if len(there) != len(found.objects):
        yield "two objects of one name"
    all_text = " ".join(f"{line.message} {line.instead}" for line in found.lines)
    for item in found.objects:
        if item["kind"] != "WorkloadDeployment":
            continue
        service = ((item["spec"].get("kubernetes") or {}).get("service") or {}).get("name")
        if service and ("Service", service) not in there:
            yield f"no Service {service}"
        for component in item["spec"]["template"]["spec"]["components"]:
            for ref in _environment(component).get("configFrom") or ():
                if ("ConfigMap", ref["name"]) not in there and ref["name"] not in all_text:
                    yield f"no ConfigMap {ref['name']}"
