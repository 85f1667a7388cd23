"""Writes what the Helm chart has of each service, or checks it: ``make generate``, ``make verify``.

In: the registry of services, their settings, ``deploy/rbac``, the chart. Out: the settings of each service in
``values.schema.json`` and the rules of each in ``rights/``, or an exit status with the reasons.
Invariants: a rule stands in ``deploy/rbac`` and nowhere else by hand; what else the schema has is left as it is.
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

CHART: Final = Path("deploy/helm/trellis")
RBAC: Final = Path("deploy/rbac")
SCHEMA: Final = CHART / "values.schema.json"
SET_BY_THE_CHART: Final = frozenset({
    "kubeconfig", "context", "nats_url", "nats_nkey_file", "nats_credentials_file", "nats_ca_file", "stream_replicas",
    "cluster", "namespace", "health_port", "otlp_endpoint", "trace_sample_ratio", "identity", "installer_namespace",
    "claim_namespace", "auto_provision",
    "watch_namespaces", "secrets_users", "controller_resources", "controller_data_dir", "controller_modules_dir",
    "console_port", "console_address", "console_auth", "console_proxy_secret_file", "console_proxy_ca_file",
    "console_tls_cert_file", "console_tls_key_file",
})  # fmt: skip
"""Settings that values of the chart say by other names, or that no pod needs."""
_HEADER: Final = "# Generated from deploy/rbac by `make generate`; do not edit.\n"
_PLACES: Final = {
    "trellis-system": "home",
    "trellis-installers": "installers",
    "default": "default",
    "kube-system": "system",
    None: "cluster",
}
"""Where rules apply, by the namespace of their role; a ClusterRole has none."""
_VALUES: Final = {
    "trellis-system": "{{ .Release.Namespace }}",
    "trellis-installers": "{{ .Values.installers.namespace }}",
}
_WHERE_CONFINED: Final = {"confined": "trellis-system", "watched": None}
"""Files of a service that may be confined to namespaces, and the namespace of their role: its own, any that it
watches."""


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
    found = {SCHEMA: with_settings((root / SCHEMA).read_text())}
    for service in SERVICES.values():
        # The console's account has no rules; those that it needs behind a proxy depend on values.
        if rules := dict(rules_of(root / RBAC, service.name)):
            text = "".join(f"{key}:\n{rules[key]}" for key in rules)
            found[CHART / f"rights/{service.name}.yaml"] = _HEADER + text
    return found


def with_settings(schema: str) -> str:
    """Return the schema of values with an entry for each service, which takes all settings that are not the chart's."""
    document = json.loads(schema)
    services = document["properties"]["services"]
    former = services["properties"]
    services["properties"] = {one.chart_key: _entry(one, former.get(one.chart_key)) for one in SERVICES.values()}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(service: Service, former: dict[str, Any] | None) -> dict[str, Any]:
    names = sorted(set(service.settings.model_fields) - SET_BY_THE_CHART)
    settings: dict[str, Any] = {f"TRELLIS_{name.upper()}": {"$ref": "#/definitions/text"} for name in names}
    # Refused, and helm's error shows the text: a value under a former name is never ignored.
    settings |= {was: {"const": f"renamed to {now}"} for was, now in RENAMED_SETTINGS.items() if now in settings}
    entry = former or _object(
        {
            "enabled": {"type": "boolean"},
            "replicas": {"$ref": "#/definitions/replicas"},
            "resources": {"type": "object"},
        }
    )
    entry["properties"]["settings"] = _object(settings)
    return entry


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def rules_of(rbac: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield where a service has rules, and these as they stand in ``deploy/rbac``, with its comments."""
    for namespace, rules in _roles(rbac / f"{name}.yaml", f"trellis-{name}"):
        yield _PLACES[namespace], rules
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
            for fixed, value in _VALUES.items():
                rules = rules.replace(fixed, value)
            yield role["metadata"].get("namespace"), rules


if __name__ == "__main__":
    sys.exit(main())
