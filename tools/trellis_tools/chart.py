"""Writes the generated parts of the Helm chart, or checks them: ``make generate``, ``make verify``.

In: the registry of services, their settings, ``deploy/rbac``, the chart. Out: ``values.schema.json`` with the settings
and pod options of each service and the descriptions of all values, the keys that need a value in ``required.yaml``, the
rules of each service in ``rbac/``, and the annotations of ``Chart.yaml``, or an exit status with the reasons.
Invariants: rules are edited only in ``deploy/rbac``, descriptions of values only in ``values.yaml``; the rest of the
schema is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from trellis.config.errors import RENAMED_SETTINGS
from trellis.services import SERVICES, Service
from trellis_tools.chart_metadata import MARKS, metadata_part
from trellis_tools.chart_values import Keys, descriptions_of, required_of
from trellis_tools.marked_part import with_part
from trellis_tools.settings_schema import setting_schema

CHART: Final = Path("deploy/helm/trellis")
RBAC: Final = Path("deploy/rbac")
SCHEMA: Final = CHART / "values.schema.json"
VALUES: Final = CHART / "values.yaml"
METADATA: Final = CHART / "Chart.yaml"
REQUIRED: Final = CHART / "required.yaml"
DEFINITIONS: Final = CHART / "definitions"
SET_BY_THE_CHART: Final = frozenset({
    "kubeconfig", "context", "nats_url", "nats_nkey_file", "nats_credentials_file", "nats_ca_file", "stream_replicas",
    "cluster", "namespace", "health_port", "otlp_endpoint", "trace_sample_ratio", "identity", "installer_namespace",
    "claim_namespace", "auto_provision", "watch_workloads",
    "watch_namespaces", "secrets_users", "controller_resources", "controller_data_dir", "controller_modules_dir",
    "console_port", "console_address", "console_auth", "console_proxy_secret_file", "console_proxy_ca_file",
    "console_tls_cert_file", "console_tls_key_file",
    "node_installer_image", "installer_pull_policy", "installer_pull_secrets",
})  # fmt: skip
"""Settings that other values of the chart set, or that pods do not need."""
_MOVED: Final = {
    "TRELLIS_NODE_INSTALLER_IMAGE": "installers.image",
    "TRELLIS_INSTALLER_PULL_POLICY": "installers.image.pullPolicy",
    "TRELLIS_INSTALLER_PULL_SECRETS": "installers.image.pullSecrets",
}
"""Values by the setting that the chart accepted until 0.2."""
_HEADER: Final = "# Generated from deploy/rbac by `make generate`; do not edit.\n"
_REQUIRED_HEADER: Final = """\
# Generated from values.yaml by `make generate`; do not edit. Keys that need a value: _check.tpl refuses an empty one.
"""
_PLACES: Final = {
    "trellis-system": "home",
    "trellis-installers": "installers",
    "default": "default",
    "kube-system": "system",
    None: "cluster",
}
"""Scope of rules, by the namespace of their role; a ClusterRole has none."""
_IN_TEMPLATES: Final = {
    "trellis-system": "{{ .Release.Namespace | quote }}",
    "trellis-installers": "{{ .Values.installers.namespace | quote }}",
}
_OPTIONAL: Final = "workloads"
"""Suffix of the ClusterRole that a value of the chart removes."""
_WHERE_CONFINED: Final = {"confined": "trellis-system", "watched": None}
"""Files of a service that can be confined to namespaces, and the namespace of their role: its own, or watched
namespaces."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.chart", description=__doc__)
    parser.add_argument("root", type=Path, help="the repository")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args(argv)
    problems = []
    for name, text in documents(arguments.root).items():
        path = arguments.root / name
        if arguments.check and (not path.exists() or path.read_text() != text):
            problems.append(f"{name}: out of date, run make generate\n")
        elif not arguments.check:
            path.write_text(text)
    sys.stderr.write("".join(problems))
    return 1 if problems else 0


def documents(root: Path) -> dict[Path, str]:
    """Return the text of each file by its path in the repository."""
    values, chart = (root / VALUES).read_text(), (root / METADATA).read_text()
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((root / DEFINITIONS).rglob("*.*.yaml"))]
    annotations = metadata_part(yaml.safe_load(chart), yaml.safe_load(values), definitions)
    found = {
        SCHEMA: schema_of((root / SCHEMA).read_text(), values),
        METADATA: with_part(chart, str(METADATA), MARKS, annotations),
        REQUIRED: _REQUIRED_HEADER + "".join(f"- {name}\n" for name in required_of(values)),
    }
    for service in SERVICES.values():
        # Not for the console: its rules behind a proxy depend on values, which rbac/console.yaml reads.
        if rules := dict(rules_of(root / RBAC, service.name)):
            text = "".join(f"{key}:\n{rules[key]}" for key in rules)
            found[CHART / f"rbac/{service.name}.yaml"] = _HEADER + text
    return found


def schema_of(schema: str, values: str) -> str:
    """Return the schema of values with an entry for each service, and with the descriptions of ``values.yaml``."""
    document = json.loads(schema)
    services = document["properties"]["services"]
    former = services["properties"]
    services["properties"] = {
        service.chart_key: _entry(service, former.get(service.chart_key)) for service in SERVICES.values()
    }
    options = document["properties"]["pods"]["properties"]
    for item in (*services["properties"].values(), document["properties"]["bundle"]):
        item["properties"] = _with_options(item["properties"], options)
    _describe(document, descriptions_of(values), ())
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(service: Service, former: dict[str, Any] | None) -> dict[str, Any]:
    """Return the schema of the values of a service: the former one, with all settings that the chart does not set."""
    fields = service.settings.model_fields
    settings = {
        f"TRELLIS_{name.upper()}": {
            "description": " ".join((fields[name].description or "").replace("``", "`").split()),
            **setting_schema(name, fields[name]),
        }
        for name in sorted(set(fields) - SET_BY_THE_CHART)
    }
    settings |= {
        was: {"description": f"Set by {now}.", "const": f"set by {now}"}
        for was, now in _MOVED.items()
        if was.removeprefix("TRELLIS_").lower() in fields
    }
    # Rejected with this text in the error of Helm: a value under a former name is never ignored.
    settings |= {
        was: {"description": f"Renamed to {now}.", "const": f"renamed to {now}"}
        for was, now in RENAMED_SETTINGS.items()
        if now in settings
    }
    entry = former or _object(
        {
            "enabled": {"type": "boolean"},
            "replicas": {"$ref": "#/definitions/replicas"},
            "resources": {"type": "object"},
        }
    )
    entry["properties"]["settings"] = _object(settings)
    return {"description": f"Values of {service.package}."} | entry


def _with_options(properties: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a service with those of ``pods``, in a fixed order; its own ones take precedence."""
    own = {key: value for key, value in properties.items() if key == "resources" or key not in options}
    replaced = {
        key: {"description": f"Replaces `pods.{key}`.", "$ref": f"#/properties/pods/properties/{key}"}
        for key, option in options.items()
        if key not in own and "const" not in option
    }
    return own | replaced


def _describe(schema: dict[str, Any], descriptions: dict[Keys, str], keys: Keys) -> None:
    """Set the descriptions of the properties of a schema by their keys, recursively."""
    properties = schema.get("properties", {})
    for name, below in properties.items():
        _describe(below, descriptions, (*keys, name))
        if description := descriptions.get((*keys, name)):
            others = {key: value for key, value in below.items() if key != "description"}
            properties[name] = {"description": description} | others


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def rules_of(rbac: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the scopes of the rules of a service, and the text of the rules in ``deploy/rbac``, with comments."""
    for namespace, rules in _roles(rbac / f"{name}.yaml", f"trellis-{name}"):
        yield _PLACES[namespace], rules
    for _, rules in _roles(rbac / f"{name}.yaml", f"trellis-{name}-{_OPTIONAL}"):
        yield _OPTIONAL, rules
    for key, home in _WHERE_CONFINED.items():
        path = rbac / f"{name}-{key}.yaml"
        for namespace, rules in _roles(path, f"trellis-{name}") if path.exists() else ():
            if namespace == home:
                yield key, rules


def _roles(path: Path, name: str) -> Iterator[tuple[str | None, str]]:
    """Yield the namespace and the text of the rules of each Role and ClusterRole with this name."""
    for text in path.read_text().split("\n---\n"):
        role = yaml.safe_load(text)
        if role["kind"] in {"Role", "ClusterRole"} and role["metadata"]["name"] == name:
            rules = text.partition("\nrules:\n")[2].rstrip("\n") + "\n"
            for fixed, value in _IN_TEMPLATES.items():
                rules = rules.replace(fixed, value)
            yield role["metadata"].get("namespace"), rules


if __name__ == "__main__":
    sys.exit(main())
