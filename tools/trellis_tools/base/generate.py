"""Writes ``deploy/base``, the kustomization for ``kubectl kustomize``, from the Helm chart, or checks it.

Run by ``make generate``. In: the chart, a directory. Out: a kustomization and its files, or an exit status with the
reasons. Needs Helm. Invariants: the same chart gives the same files; they contain no secrets: as in the chart, a Job
creates the keys of the bus in the cluster (``trellis bus secret``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from trellis_tools.base.model import DEFINITIONS, HOME, KUSTOMIZATION, files_of

_HEADER: Final = "# Generated from deploy/helm/trellis by `make generate`; do not edit.\n"
_SECONDS: Final = 120
_NO_DEFINITIONS: Final = ("--set", "crds.install=false")
Manifest = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.base.generate", description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of the files: deploy/base")
    parser.add_argument("--chart", type=Path, default=Path("deploy/helm/trellis"), help="the Helm chart")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args(argv)
    try:
        wanted = documents(render(arguments.chart))
    except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    problems = differences(arguments.directory, wanted) if arguments.check else []
    if not arguments.check:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            (arguments.directory / name).write_text(text)
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


def documents(rendered: list[Manifest]) -> dict[str, str]:
    """Return the text of each file by its name.

    Raises:
        ValueError: the chart renders a Secret.
    """
    files = {name: _yaml(found) for name, found in files_of(rendered).items()}
    found = {name: _HEADER + text for name, text in files.items()}
    resources = [DEFINITIONS, *files]
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}
    return {KUSTOMIZATION: _HEADER + _yaml([kustomization])} | found


def render(chart: Path) -> list[Manifest]:
    """Return the default manifests of the chart, with one server for the bus.

    Raises:
        RuntimeError: Helm is missing, or fails.
    """
    beside = Path(sys.executable).parent / "helm"
    program = str(beside) if beside.exists() else shutil.which("helm")
    if program is None:
        raise RuntimeError("helm is missing: add it to the PATH")
    defaults = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    one_server = ["--set", "nats.replicas=1"] if "replicas" in defaults["nats"] else []
    done = subprocess.run(  # noqa: S603 - local program, no shell
        [program, "template", "trellis", str(chart), "--namespace", HOME, *_NO_DEFINITIONS, *one_server],
        env=os.environ | {"KUBECONFIG": os.devnull},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"helm fails for {chart}: {done.stderr}")
    return [item for item in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if item]


def differences(directory: Path, wanted: dict[str, str]) -> list[str]:
    """Return the files that are missing, out of date, or unexpected."""
    present = {path.name: path.read_text() for path in sorted(directory.glob("*.yaml"))}
    stale = [
        f"{directory / name}: out of date, run make generate" for name in wanted if present.get(name) != wanted[name]
    ]
    return stale + [f"{directory / name}: unexpected file, delete it" for name in present if name not in wanted]


class _Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(found: Iterable[Manifest]) -> str:
    return yaml.dump_all(found, Dumper=_Dumper, width=118, allow_unicode=True, sort_keys=False)


if __name__ == "__main__":
    sys.exit(main())
