"""The real kubeconform, with our schemas and those of Kubernetes' own kinds as the API server of a test publishes them.

In: manifests or files. Out: what is wrong, by object. Called by tests. Strict: a field that no kind has is an error.
"""

from __future__ import annotations

import http
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.api import Api

SCHEMAS = Path(__file__).parents[3] / "deploy" / "schemas"
PATTERN = "{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"
SECONDS = 120
_KINDS = "x-kubernetes-group-version-kind"


def published(api: Api, versions: Iterable[str], directory: Path) -> Path:
    """Write the schemas of all kinds of these API versions (``v1``, ``apps/v1``) as kubeconform looks for them."""
    for version in sorted(set(versions)):
        path = f"/openapi/v3/apis/{version}" if "/" in version else f"/openapi/v3/api/{version}"
        status, document = api.call("GET", path)
        assert status == http.HTTPStatus.OK, f"{path}: {status}"
        schemas = {name: _strict(schema) for name, schema in document["components"]["schemas"].items()}
        for name, schema in schemas.items():
            for kind in schema.get(_KINDS, ()):
                # What has no group stands under its version: so kubeconform fills in the pattern.
                group = kind["group"] or kind["version"]
                file = directory / group / f"{kind['kind'].lower()}_{kind['version']}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                root = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
                file.write_text(json.dumps(root))
    return directory


def _strict(schema: Any) -> Any:
    """Return a schema that refuses what it does not name, in the words of JSON Schema."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value if key == _KINDS else _strict(value) for key, value in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if named and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    return found


def conform(paths: Sequence[Path], *catalogues: Path, standard_input: str | None = None) -> list[str]:
    """Return what is wrong: ``<kind> <name>: <what>``; every object has to have a schema."""
    locations = [f"--schema-location={catalogue}/{PATTERN}" for catalogue in (SCHEMAS, *catalogues)]
    command = [
        str(tools.ensure("kubeconform")), "-strict", "-output", "json", "-verbose", *locations, *map(str, paths),
        *(["-"] if standard_input is not None else []),
    ]  # fmt: skip
    done = subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)["resources"]
    assert found, "nothing was looked at"
    return [f"{item['kind']} {item['name']}: {item['msg']}" for item in found if item["status"] != "statusValid"]
