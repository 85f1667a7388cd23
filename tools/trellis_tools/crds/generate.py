"""Writes the CRDs of Trellis, or their JSON Schemas, to a directory, or checks them: ``make generate``,
``make verify``.

In: the table of kinds and a directory. Out: YAML or JSON files, or an exit status with the reasons. CRDs are written
only into the Helm chart: ``deploy/crds`` links to them, ``deploy/base`` includes them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from trellis.crds.json_schema import make_json_schema, path_of
from trellis.crds.kinds import BY_DIRECTORY, make_definition

KUSTOMIZATION = "kustomization.yaml"
_HEADER = "# Generated from the models in trellis.crds by `make generate`; do not edit.\n"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.crds.generate", description=__doc__)
    parser.add_argument("directory", type=Path, help="`definitions` of the chart, or deploy/schemas")
    parser.add_argument("--schemas", action="store_true", help="JSON Schemas for kubeconform: deploy/schemas")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args(argv)
    wanted = schemas() if arguments.schemas else documents() | {KUSTOMIZATION: kustomization()}
    if arguments.check:
        problems = differences(arguments.directory, wanted)
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
        return 1 if problems else 0
    write(arguments.directory, wanted)
    return 0


def documents() -> dict[str, str]:
    """Return the text of each CRD by its path below the directory."""
    return {
        str(PurePosixPath(directory, f"{kind.name}.yaml")): _HEADER + _yaml(make_definition(kind))
        for directory, kinds in BY_DIRECTORY.items()
        for kind in kinds
    }


def kustomization() -> str:
    """Return the kustomization with which ``deploy/base`` includes the CRDs; Helm ignores it."""
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(documents())}
    return _HEADER + _yaml(kind)


def schemas() -> dict[str, str]:
    """Return the text of the JSON Schema of each kind by its path below the directory."""
    return {
        path_of(kind): json.dumps(make_json_schema(kind), indent=2, ensure_ascii=False) + "\n"
        for kinds in BY_DIRECTORY.values()
        for kind in kinds
    }


def differences(directory: Path, wanted: dict[str, str]) -> list[str]:
    """Return the files that are missing, out of date, or belong to no kind."""
    files = sorted(path for path in directory.rglob("*") if path.suffix in {".yaml", ".json"})
    present = {path.relative_to(directory).as_posix(): path.read_text() for path in files}
    stale = [
        f"{directory / name}: out of date, run make generate" for name in wanted if present.get(name) != wanted[name]
    ]
    return stale + [f"{directory / name}: belongs to no kind, delete it" for name in present if name not in wanted]


def _yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, width=118, allow_unicode=True)


def write(directory: Path, wanted: dict[str, str]) -> None:
    """Write all files; missing directories are created."""
    for name, text in wanted.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
