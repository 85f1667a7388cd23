"""Data in Kubernetes: custom resources, annotations of Nodes and Jobs, and records of Trellis in ConfigMaps."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import orjson

from application_manager.domain.views import view_application
from application_manager.tombstones import Tombstone, _parsed
from controller_host.domain.views import read_spec, view_controller
from fuzz.samples import sample
from fuzz.target import Target, tried
from fuzz.targets.lattice import manifest as application
from host_manager.domain.group import Group
from host_manager.domain.snapshot import Problem, group_of, view_head
from secrets_backend.domain.decide import view_grant
from support.suite.mutations import DEEP, dumped, mutated, mutated_often, text
from trellis import names
from trellis.crds.application import Application
from trellis.crds.host_config import WasmCloudHostConfig
from trellis.crds.secret_grants import SecretGrant
from trellis.crds.shim import Shim
from trellis.crds.wasm_controllers import WasmController
from trellis.installer_api.spec import InstallSpec
from trellis.kube.nesting import cut
from trellis.lattice.domain.addresses import Family
from trellis.lattice.domain.cached_listeners import read_cached_listeners, write_cached_listeners
from trellis.lattice.domain.group_views import view_group
from trellis.lattice.domain.manifests import Listener, Protocol
from trellis.lattice.domain.preserved import read_preserved
from trellis.limits.breaker import Admission, Closing, Opening, State
from trellis.limits.breaker_record import decode, encode
from trellis.provisioning.ledger import Entry, Ledger, make_ledger, read_ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.shims import Refusal, is_for, view_shim, wanted_shim_for
from trellis.provisioning.views import (
    FailedAttempt,
    decode_digests,
    encode_digests,
    opt_in_of,
    shows,
    verification_of,
)

_METADATA = {
    "name": "spin", "namespace": "team-a", "uid": "u-1", "resourceVersion": "5", "generation": 3,
    "creationTimestamp": "2026-01-31T12:00:00Z",
}  # fmt: skip
_STATUS = {
    "phase": "Deployed", "lattice": "default", "observedGeneration": 3,
    "synced": {"specDigest": "ab" * 32, "wadmVersion": "v1", "kvRevision": 7, "serial": 2, "bucket": "b",
               "deployed": True, "newestVersion": "v2"},
    "wins": [{"side": "wadm", "time": "2026-01-31T12:00:00Z"}],
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}],
}  # fmt: skip
_SHIM = {
    "runtimeClass": {"name": "spin", "handler": "spin"}, "rolloutStrategy": {"type": "recreate"},
    "fetchStrategy": {"platforms": [{"os": "linux", "arch": "amd64", "location": "https://x/y", "sha256": "a" * 64}]},
}  # fmt: skip
_MODELS = {
    "Shim": Shim, "WasmCloudHostConfig": WasmCloudHostConfig, "SecretGrant": SecretGrant,
    "WasmController": WasmController, "Application": Application,
}  # fmt: skip


@functools.cache
def _annotations() -> tuple[str, ...]:
    return tuple(sorted(value for key, value in vars(names).items() if key.startswith(("ANNOTATION_", "LABEL_"))
                        and isinstance(value, str)))  # fmt: skip


def _metadata(rng: random.Random) -> dict[str, Any]:
    marks = {key: text(rng, ["true", "false", "ab" * 32 + "/3"]) for key in rng.sample(_annotations(), 3)}
    found: dict[str, Any] = dict(_METADATA)
    if rng.random() < 0.5:
        found["annotations"] = marks
    if rng.random() < 0.3:
        found["labels"] = {key: value[:63] for key, value in marks.items()}
    if rng.random() < 0.3:
        found["managedFields"] = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
    return found


def _resource(rng: random.Random) -> tuple[str, dict[str, Any]]:
    kind = rng.choice(sorted(_MODELS))
    whole = {"spec": application(rng)["spec"]} if kind == "Application" else sample(rng, _MODELS[kind])
    if kind == "Shim" and rng.random() < 0.5:
        whole["spec"] = _SHIM | {key: item for key, item in (whole.get("spec") or {}).items() if rng.random() < 0.3}
    whole["status"] = _STATUS if rng.random() < 0.6 else {}
    good = mutated_often(rng, {key: whole.get(key) for key in ("spec", "status")})
    # As the API server takes it and the client reads it: objects and lists, cut where they are too deep.
    raw = json.dumps(good if isinstance(good, dict) else {"spec": good}, ensure_ascii=False)
    raw = raw.replace(f'"{DEEP}"', "[" * 600 + "]" * 600)
    try:
        read = orjson.loads(cut(raw.encode("utf-8", "replace")))
    except orjson.JSONDecodeError:
        read = {}
    return kind, {"kind": kind, "metadata": _metadata(rng)} | {
        key: read[key] for key in ("spec", "status") if isinstance(read.get(key), dict)
    }


def _judge_resource(case: tuple[str, dict[str, Any]]) -> str:
    kind, found = case
    return f"{kind} {_JUDGES[kind](found)}"


def _judge_shim(found: dict[str, Any]) -> str:
    view = view_shim(found)
    node = view_node({"metadata": _METADATA | {"labels": {"a": "b"}}})
    is_for(view, node, auto_provision=True)
    wanted = wanted_shim_for(view, "amd64", require_checksum=False)
    assert (wanted is Refusal.INVALID) == bool(view.invalid)
    hash((view.selector, view.overhead, view.options, view.sources))
    if isinstance(wanted, Refusal):
        return "refused"
    wanted.source_for("amd64")
    InstallSpec((wanted,)).to_json().encode()
    return "accepted"


def _judge_group(found: dict[str, Any]) -> str:
    group = group_of(view_head(found), found)
    assert isinstance(group, Group | Problem)
    view = view_group(found)
    assert (view.spec is None) == isinstance(group, Problem)
    return "refused" if view.spec is None else "accepted"


def _judge_controller(found: dict[str, Any]) -> str:
    view = view_controller(found)
    assert isinstance(view.account, str)
    assert isinstance(orjson.loads(view.status), dict)
    outcome, wanted = tried(lambda: read_spec(view), ValueError)
    if outcome != "accepted":
        assert type(wanted) is ValueError, repr(wanted)
        assert str(wanted).startswith("spec.")
        return "refused"
    assert wanted.source
    assert wanted.bounds.memory_bytes >= 0
    return outcome


def _judge_application(found: dict[str, Any]) -> str:
    view = view_application(found)
    view.status_fields()
    return "refused" if view.problem else "accepted"


def _judge_grant(found: dict[str, Any]) -> str:
    return "refused" if view_grant(found).spec is None else "accepted"


_JUDGES = {
    "Shim": _judge_shim, "WasmCloudHostConfig": _judge_group, "SecretGrant": _judge_grant,
    "WasmController": _judge_controller, "Application": _judge_application,
}  # fmt: skip

RESOURCE = Target(
    "custom-resources",
    "spec and status of objects of the five CRDs, as the API server may return them under any schema",
    "a view, or a reason for its condition; an invalid object does not affect other objects",
    _resource,
    _judge_resource,
    frozenset({*(f"{kind} refused" for kind in _MODELS), *(f"{kind} accepted" for kind in _MODELS if kind != "Shim")}),
    share=20,
)

_DIGEST = "0123456789abcdef"


def _node(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    good = {
        names.ANNOTATION_FAILED_ATTEMPT: [f"{_DIGEST}/2/1700000000", f"{_DIGEST}/2/1700000000/disruptive", "x/²/1"],
        names.ANNOTATION_SHIMS: [f"spin={_DIGEST}", f"spin=?{_DIGEST} slight={_DIGEST}"],
        names.ANNOTATION_BLAMED: [f"spin={_DIGEST}"],
        names.ANNOTATION_NODE_UID: ["u-1"], names.ANNOTATION_VERIFIED: ["canary", "handler", "job"],
        names.ANNOTATION_OPT_IN: ["true", "false"], names.ANNOTATION_DIGEST: [_DIGEST],
        names.LABEL_ATTEMPT: ["1", "12", "²"], names.LABEL_OPERATION: ["provision", "remove"],
        names.LABEL_NODE_UID: ["u-1"], names.ANNOTATION_HANDLER: ["spin", "spin,slight"],
    }  # fmt: skip
    marks = {
        key: text(rng, good.get(key, ())) for key in {*rng.sample(_annotations(), 4), *rng.sample(sorted(good), 8)}
    }
    metadata = _METADATA | {"annotations": marks, "labels": marks}
    node = {"metadata": metadata, "status": {"runtimeHandlers": [{"name": "spin"}]} if rng.random() < 0.5 else {}}
    condition = {
        "type": rng.choice(["Complete", "Failed"]),
        "status": "True",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    job = {"metadata": metadata, "status": {"conditions": [condition]} if rng.random() < 0.7 else {}}
    return node, job


def _judge_node(case: tuple[dict[str, Any], dict[str, Any]]) -> str:
    node, job = view_node(case[0]), view_job(case[1])
    opt_in_of(node, auto_provision=True)
    assert node.bears_marks in (True, False)
    for digests in (node.blamed, node.installed, job.shims):
        # Names and digests have no blanks in them, nor can labels.
        plain = {name: item for name, item in digests.items() if name.split() == [name] and item.split() == [item]}
        assert decode_digests(encode_digests(plain)) == plain
    if node.failed is not None:
        assert FailedAttempt.decode(node.failed.encode()) == node.failed
        assert node.failed.attempt >= 1
    assert job.attempt >= 0
    shows(job, node)
    verification_of(job, node)
    assert node.verified_by is None or str(node.verified_by) == node.verified
    return "failed" if node.failed else "not failed"


NODE = Target(
    "marks-on-nodes-and-jobs",
    "annotations and labels on Nodes and Jobs, which any user with permission can edit",
    "a view and its results for any content; written values are restored unchanged",
    _node,
    _judge_node,
    frozenset({"failed", "not failed"}),
)


def _books(rng: random.Random) -> tuple[str, Any, str]:
    """A book, what was written into it or None if it was changed since, and its text."""
    kind = rng.choice(["breaker", "tombstone", "preserved", "listeners", "ledger"])
    whole: Any = _BOOKS[kind](rng)
    written = {
        "breaker": lambda: encode(whole),
        "tombstone": lambda: json.dumps({"lattice": "l", "application": "a", "bucket": "b", "revision": 7}),
        "preserved": lambda: json.dumps(
            {"application": "a", "lattice": "l", "spec": {"clusterIP": "::1", "ports": [{}]}}
        ),
        "listeners": lambda: write_cached_listeners(whole),
        "ledger": lambda: json.dumps(make_ledger("ns", whole, None)["data"]),
    }[kind]()  # fmt: skip
    if rng.random() < 0.3:
        return kind, whole, written
    raw = dumped(rng, mutated_often(rng, mutated(rng, json.loads(written))))
    return kind, None, raw.decode("utf-8", "replace")


def _breaker(rng: random.Random) -> State:
    return State(
        tuple(Admission(float(at), 10, frozenset({"a", "b"})) for at in range(rng.randrange(3))),
        rng.choice([None, Opening(10.0, 20.0, "why", frozenset({"x"}), ("e",))]),
        rng.choice([None, Closing(10.0, 20.0, "me", True, frozenset())]),
    )


def _listeners(rng: random.Random) -> tuple[Listener, ...]:
    requirements = rng.choice([((),), ((("zone", "a"),),)])
    return tuple(
        Listener(
            f"c{number}", 8000 + number, rng.choice(list(Protocol)), rng.choice(list(Family)), requirements, ("p",)
        )
        for number in range(rng.randrange(3))
    )


def _ledger(rng: random.Random) -> Ledger:
    entries = {
        f"u-{number}": Entry(_DIGEST, 1 + number, 1700000000, ("spin", "a")) for number in range(rng.randrange(3))
    }
    return Ledger(entries, (), ())


_BOOKS: dict[str, Any] = {
    "breaker": _breaker, "listeners": _listeners, "ledger": _ledger,
    "tombstone": lambda _rng: Tombstone("l", "a", "b", 7), "preserved": lambda rng: rng.random(),
}  # fmt: skip


def _judge_book(case: tuple[str, Any, str]) -> str:
    kind, whole, expected = case
    match kind:
        case "breaker":
            found: Any = decode(expected)
            assert found is None or decode(encode(found)) == found
        case "tombstone":
            found = _parsed(expected)
            assert found is None or isinstance(found.revision, int)
        case "preserved":
            found = read_preserved(expected)
            if found is not None:
                orjson.dumps(found.spec)
                whole = None if whole is None else found
        case "listeners":
            found = read_cached_listeners(expected)
            assert read_cached_listeners(write_cached_listeners(found)) == found
            assert all(1 <= item.port <= 65535 for item in found), found
        case _:
            data = tried(lambda: json.loads(expected), ValueError, RecursionError)[1]
            texts = {key: item for key, item in data.items() if isinstance(item, str)} if isinstance(data, dict) else {}
            texts |= {"u": expected} if whole is None else {}
            found = read_ledger({"metadata": {}, "data": texts})
            for entry in found.entries.values():
                assert isinstance(entry.attempt, int)
    assert whole is None or found == whole, (found, whole)
    return f"{kind} {'as written' if whole is not None else 'changed'}"


BOOK = Target(
    "books-in-kubernetes",
    "records in ConfigMaps and annotations: circuit breakers, tombstones, rollout ledger, addresses of Services",
    "equal after a round trip; corrupted content is ignored, and is never an error",
    _books,
    _judge_book,
    frozenset(
        {"breaker as written", "listeners as written", "ledger as written", "tombstone changed", "preserved changed"}
    ),
)

TARGETS = (RESOURCE, NODE, BOOK)
