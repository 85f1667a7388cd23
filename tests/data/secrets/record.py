"""Records messages between Trellis and the crates of a wasmCloud host (nkeys, wascap, wasmcloud-secrets-types).

`python tests/data/secrets/record.py` writes both_ways.json beside it. Needs a Rust toolchain; builds rust/ once, into
the cache. To be done again when a crate, the wire format or a table of tokens changes; fresh keys are then new ones.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from secrets_backend.domain.protocol import HOST_KEY_HEADER, RESPONSE_KEY_HEADER, open_request, seal_reply, success
from secrets_backend.domain.refusals import ErrorName, Refusal
from support.secrets.opened_requests import KEYS
from support.secrets.secret_requests import ENTITY_JWT, HOST_JWT, NOW, SERVER_SEED
from support.secrets.token_sides import SIDES
from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.crates import CrateBuild, sources_digest
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Lines

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
PROGRAM = "trellis-secrets-host"
LONGEST = 3_000
QUESTIONS: list[dict[str, Any]] = [
    {"entity": entity, "application": application, "properties": properties, "key": "app-secrets", "field": "password"}
    for entity in ("component", "provider")
    for application in ("shop", None)
    for properties in ({}, {"namespace": "a"}, {"namespace": "a", "impersonate": "reader"}, {"impersonate": None})
]
VALUES = [b"hunter2", b"", "pässword✓".encode(), b"\0\xff\x80", bytes(range(256)), b"x" * 5_000]


def program() -> Path:
    """The program in rust/, built if it is not in the cache."""
    project = HERE / "rust"
    digest = sources_digest(project, ("Cargo.toml", "crates.lock", "src/main.rs"))
    target, how = cache_root() / "bin" / f"{PROGRAM}-{digest}", How(Lines(), threading.Event())
    step = f"build {PROGRAM}"

    def make(temporary: Path, log: Path) -> None:
        build = CrateBuild(project, cache_root() / "build" / f"{target.name}.work", log, step, "It needs cargo.", how)
        try:
            (build.run([]) / "debug" / PROGRAM).rename(temporary)
        finally:
            build.clean()

    return make_once(target, step, how, make)


def query(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The program's answers."""
    lines = "\n".join(map(json.dumps, questions))
    ran = subprocess.run([str(program())], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def requests() -> list[dict[str, Any]]:
    """Requests that Rust sealed, with what they ask for."""
    questions = [{**question, "op": "ask", "server": KEYS.current.public} for question in QUESTIONS]
    return [{"asked": asked, **made} for asked, made in zip(QUESTIONS, query(questions), strict=True)]


def answers(made: dict[str, Any]) -> list[dict[str, Any]]:
    """Answers of Trellis to a request of Rust's, with how Rust read them."""
    request = open_request({HOST_KEY_HEADER: made["header"]}, bytes.fromhex(made["payload"]), KEYS, NOW).request()
    sent = []
    for value in VALUES:
        secret = {"metadata": {"resourceVersion": "4711"}, "data": {"f": base64.b64encode(value).decode()}}
        payload, headers = seal_reply(request, success(secret, "f"))
        sent.append({"value": value.hex(), "header": headers[RESPONSE_KEY_HEADER], "payload": payload.hex()})
    sent += [{"error": name.value, "payload": Refusal(name, 'why "so" ✓').body().hex()} for name in ErrorName]
    read = query([{"op": "read", "seed": made["seed"], **item} for item in sent])
    return [{**item, "seed": made["seed"], "read": how} for item, how in zip(sent, read, strict=True)]


def verdicts() -> list[dict[str, Any]]:
    """Every token of the unit tests' tables, with what wascap makes of it."""
    found = [{"side": side, "case": "good", "token": SIDES[side].signed()} for side in SIDES]
    for name in ("test_tokens", "test_claims", "test_signatures"):
        tables = _module(name)
        cases = {**getattr(tables, "TAKEN", {}), **getattr(tables, "REFUSED", {}), **getattr(tables, "SIGNATURES", {})}
        found += [
            {"side": side, "case": case, "token": make(SIDES[side])} for case, make in cases.items() for side in SIDES
        ]
    found = [item for item in found if len(item["token"]) < LONGEST]
    good = {"entity_jwt": ENTITY_JWT, "host_jwt": HOST_JWT}
    asked = [{"op": "validate", **good, f"{item['side']}_jwt": item["token"]} for item in found]
    return [{**item, **judged} for item, judged in zip(found, query(asked), strict=True)]


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TESTS / "unit" / "secrets_backend" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Write both_ways.json."""
    made = requests()
    document = {
        "about": "Made by record.py with the crates in rust/crates.lock. Test keys only.",
        "server_seed": SERVER_SEED,
        "requests": made,
        "answers": answers(made[0]),
        "tokens": verdicts(),
    }
    (HERE / "both_ways.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
