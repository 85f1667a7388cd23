"""Compacts recordings of the real wasmCloud v2 (2.7) to the protocol of one host and the operator's objects of it.

`python tests/data/v2/host/record.py FOLDER` writes ``host.json`` and ``objects.json`` beside this file. Each folder of
FOLDER is a situation with ``nats.jsonl``, a message on each line (``subject``, ``reply``, ``payload``), and
``watch.jsonl``, a change of an object on each line (``kind``, ``object``).

In ``host.json``, ``conversations``: the requests and replies of one workload ID from its first message on, one
conversation for each different outcome. ``heartbeats``: raw payloads as ``published`` and ``answered``, and the counts
of all others.
``unanswered``: requests that a running host received without a reply. ``objects.json`` has a Host and a Workload in
their first and later states, and the messages that led to these.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
REQUESTS: Final = "runtime.host."
HEARTBEATS: Final = "runtime.operator.heartbeat."
UNANSWERED: Final = "01-host-start"
"""The situation in which a host without workloads received requests that it does not understand."""
READY: Final = "02-deployment-ready"
Message = dict[str, Any]
Exchange = tuple[str, str, str | None]
"""Command, payload of the request, payload of the reply."""


def main() -> None:
    """Write the file."""
    folder = Path(sys.argv[1])
    situations = {path.parent.name: list(messages(path)) for path in sorted(folder.glob("*/nats.jsonl"))}
    found = {
        "conversations": list(conversations(situations)),
        "heartbeats": heartbeats(situations),
        "unanswered": unanswered(situations[UNANSWERED]),
    }
    (HERE / "host.json").write_text(lines(found) + "\n")
    (HERE / "objects.json").write_text(lines(objects(folder, situations)) + "\n")


def lines(value: Any, depth: int = 2) -> str:
    """Return JSON with a line for each item of the first levels."""
    if not depth or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, list):
        return "[\n" + ",\n".join(lines(item, depth - 1) for item in value) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(item, depth - 1)}" for key, item in value.items()) + "\n}"


def messages(path: Path) -> Iterator[Message]:
    """Yield the messages of a recording that have a payload."""
    for line in path.read_text().splitlines():
        message = json.loads(line)
        if "payload" in message:
            yield message


def exchanges(recorded: list[Message]) -> Iterator[tuple[str, Exchange]]:
    """Yield the host and the exchange of each request, in order of the requests."""
    replies = {message["subject"]: message["payload"] for message in recorded if message["subject"][0] == "_"}
    for message in recorded:
        if message["subject"].startswith(REQUESTS) and message["reply"]:
            host, _, command = message["subject"].removeprefix(REQUESTS).partition(".")
            yield host, (command, message["payload"], replies.get(message["reply"]))


def conversations(situations: dict[str, list[Message]]) -> Iterator[dict[str, Any]]:
    """Yield a conversation for each outcome, without those that begin others or begin with a running workload."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for situation, recorded in situations.items():
        by_id: dict[str, list[dict[str, Any]]] = {}
        for _, (command, request, reply) in exchanges(recorded):
            if not command.startswith("workload.") or reply is None:
                continue
            made = {"command": command, "request": json.loads(request), "reply": json.loads(reply)}
            talk = by_id.setdefault(made["reply"]["workloadStatus"]["workloadId"], [])
            if made not in talk[-1:]:
                talk.append(made)
        for talk in by_id.values():
            first = talk[0]
            complete = first["command"] == "workload.start" or _state(first) == "WORKLOAD_STATE_NOT_FOUND"
            if complete:
                found.setdefault(outcome(talk), {"situation": situation, "exchanges": talk})
    for key, conversation in found.items():
        if not any(len(other) > len(key) and other[: len(key)] == key for other in found):
            yield conversation


def outcome(talk: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the parts of a conversation that decide its outcome, for each exchange: not names and IDs."""
    found = []
    for exchange in talk:
        world = exchange["request"].get("workload", {}).get("witWorld", {})
        interfaces = [{**it, "config": sorted(it.get("config", {}))} for it in world.get("hostInterfaces", [])]
        components = [{**it, "localResources": sorted(it["localResources"])} for it in world.get("components", [])]
        parts = [exchange["command"], sorted(exchange["request"]), components, interfaces, _state(exchange)]
        found.append(json.dumps(parts, sort_keys=True))
    return tuple(found)


def heartbeats(situations: dict[str, list[Message]]) -> dict[str, Any]:
    """Return the first heartbeat of each way, raw, and the counts of workloads of all others, as they were written."""
    recorded = [message for found in situations.values() for message in found]
    published = [message["payload"] for message in recorded if message["subject"].startswith(HEARTBEATS)]
    answered = [
        reply
        for found in situations.values()
        for _, (command, _, reply) in exchanges(found)
        if command == "heartbeat" and reply is not None
    ]
    names = ("componentCount", "workloadCount")
    counts = {
        json.dumps({name: beat[name] for name in names if name in beat})
        for beat in map(json.loads, [*published, *answered])
    }
    return {"published": published[0], "answered": answered[0], "counts": [json.loads(it) for it in sorted(counts)]}


def unanswered(recorded: list[Message]) -> list[dict[str, str]]:
    """Return the requests to a running host that got no reply."""
    running = {host for host, (_, _, reply) in exchanges(recorded) if reply is not None}
    return [
        {"command": command, "request": request}
        for host, (command, request, reply) in exchanges(recorded)
        if host in running and reply is None
    ]


def objects(folder: Path, situations: dict[str, list[Message]]) -> dict[str, Any]:
    """Return the states of one Host and one Workload, and the messages between operator and host."""
    hosts = states(folder / "01-host-start" / "watch.jsonl", "hosts")
    workloads = states(folder / READY / "watch.jsonl", "workloads")
    last = workloads[-1]["metadata"]["uid"]
    [start] = [
        json.loads(request)
        for _, (command, request, _) in exchanges(situations[READY])
        if command == "workload.start" and json.loads(request)["workloadId"] == last
    ]
    beats = [
        reply for _, (command, _, reply) in exchanges(situations["01-host-start"]) if command == "heartbeat" and reply
    ]
    return {
        "host": {
            "published": json.loads(heartbeats(situations)["published"]),
            "answered": json.loads(beats[0]),
            "created": hosts[0],
            "afterPublished": hosts[2]["status"],
            "afterAnswered": hosts[3]["status"],
        },
        "workload": {
            "created": next(found for found in workloads if found["metadata"]["uid"] == last),
            "start": start,
            "ready": workloads[-1]["status"],
        },
    }


def states(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the states of the objects of a kind in order, without managedFields."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    manifests = [change["object"] for change in found if change["kind"] == kind]
    for manifest in manifests:
        manifest["metadata"].pop("managedFields", None)
    return manifests


def _state(exchange: dict[str, Any]) -> str:
    return str(exchange["reply"]["workloadStatus"]["workloadState"])


if __name__ == "__main__":
    main()
