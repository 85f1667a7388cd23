"""Recorded messages of a real lattice (wasmCloud host 1.9.2, wadm 0.21.1), in tests/data/lattice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[2] / "data" / "lattice"


def messages(event: str) -> list[dict[str, Any]]:
    """Every recorded message whose subject ends so: ``{"subject", "headers", "data"}``, the data a CloudEvent."""
    lines = (_DATA / "one-host.jsonl").read_text().splitlines()
    return [message for message in map(json.loads, lines) if message["subject"].endswith(f".{event}")]


def everything() -> list[dict[str, Any]]:
    """Every recorded message, in order."""
    return list(map(json.loads, (_DATA / "one-host.jsonl").read_text().splitlines()))


def replies(subject: str) -> list[Any]:
    """Return the replies of wadm to each request on a subject, in order."""
    lines = (_DATA / "wadm-replies.jsonl").read_text().splitlines()
    return [exchange["reply"] for exchange in map(json.loads, lines) if exchange["subject"] == subject]
