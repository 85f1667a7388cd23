"""Validation of objects of wasmCloud v2 as by the API server and the CRDs: names, labels, fields, and two rules in CEL.

In: a manifest. Out: a line for each error, none for a good one. Called by tests of the conversion.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

Manifest = dict[str, Any]

_FILE = Path(__file__).parents[2] / "data/v2/crds.yaml"
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def _closed(schema: Any) -> Any:
    """Return a schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    read = {key: _closed(value) for key, value in schema.items()}
    if isinstance(read.get("properties"), dict) and not read.get("x-kubernetes-preserve-unknown-fields"):
        read.setdefault("additionalProperties", False)
    return read


def _schema() -> Manifest:
    [definition] = yaml.safe_load_all(_FILE.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {key: _closed(value) for key, value in schema.items()}


_VALIDATOR = Draft7Validator(_schema())


def errors_of(manifest: Manifest) -> list[str]:
    """Return what the API server refuses."""
    found = list(_metadata_errors(manifest["metadata"]))
    match manifest["kind"]:
        case "WorkloadDeployment":
            found += [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(manifest)]
            found += _interface_errors(manifest["spec"]["template"]["spec"].get("hostInterfaces") or [])
        case "Service":
            found += _service_errors(manifest["spec"])
        case "ConfigMap":
            found += [f"data.{key}" for key in manifest["data"] if not _DATA_KEY.fullmatch(key) or key in {".", ".."}]
            found += [f"data.{key} is no text" for key, value in manifest["data"].items() if not isinstance(value, str)]
            if sum(len(key.encode()) + len(value.encode()) for key, value in manifest["data"].items()) > 1 << 20:
                found.append("data: too large")
        case kind:
            found.append(f"kind {kind}")
    return found


def _metadata_errors(metadata: Manifest) -> list[str]:
    found = [] if _LABEL.fullmatch(metadata["name"]) else [f"metadata.name: {metadata['name']!r}"]
    for key, value in (metadata.get("labels") or {}).items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            found.append(f"metadata.labels: {key}={value}")
    annotations = metadata.get("annotations") or {}
    found += [f"metadata.annotations: {key}" for key in annotations if not _KEY.fullmatch(key)]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > 256 << 10:
        found.append("metadata.annotations: too large")
    return found


def _interface_errors(entries: list[Manifest]) -> list[str]:
    """The two rules in CEL of the definition."""
    whole = Counter((item["namespace"], item["package"], item.get("name"), item.get("version")) for item in entries)
    unnamed = Counter((item["namespace"], item["package"]) for item in entries if "name" not in item)
    found = [f"hostInterfaces: duplicate {key}" for key, count in whole.items() if count > 1]
    return found + [f"hostInterfaces: unnamed {key}" for key, count in unnamed.items() if count > 1]


def _service_errors(spec: Manifest) -> list[str]:
    found = [] if [port["name"] for port in spec["ports"]] == ["http"] else ["spec.ports: v2 routes to one port, http"]
    found += [f"spec.ports: {port['port']}" for port in spec["ports"] if not 1 <= port["port"] <= 65535]
    if spec.get("selector"):
        found.append("spec.selector: v2 writes the endpoints")
    return found
