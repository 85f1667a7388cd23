"""Writes the README of the Helm chart, or checks it: ``make generate``, ``make verify``.

In: ``Chart.yaml``, and ``values.yaml`` with its comments. Out: ``README.md`` of the chart with a row for each value, or
an exit status with the reasons.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from trellis_tools.chart_values import Value, values_of
from trellis_tools.reference.markdown import GENERATED, cell, code, table

CHART: Final = Path("deploy/helm/trellis")
README: Final = CHART / "README.md"
_HEAD: Final = ("Key", "Type", "Default", "Description")
_INTRODUCTION: Final = """# Helm chart {name}

{description}. Chart version {version}, application version {appVersion}, Kubernetes {kubeVersion}.

[Install with Helm](../../../docs/install.md) describes the installation,
[NATS for the bus](../../../docs/installation/nats.md) keys and TLS.

```sh
helm install trellis deploy/helm/trellis --namespace trellis-system --create-namespace --values values.yaml
```

## Values

`values.schema.json` rejects unknown and invalid values. Each entry of `services`, and `bundle`, also accepts the keys
of `pods`, such as `affinity` and `extraEnv`: its value replaces that of `pods`.
[Settings](../../../docs/reference/settings.md) has the `TRELLIS_` variables of each service.
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.chart_readme", description=__doc__)
    parser.add_argument("root", type=Path, help="the repository")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file differs")
    arguments = parser.parse_args(argv)
    path, wanted = arguments.root / README, document(arguments.root)
    if not arguments.check:
        path.write_text(wanted)
    elif not path.exists() or path.read_text() != wanted:
        sys.stderr.write(f"{README}: out of date, run make generate\n")
        return 1
    return 0


def document(root: Path) -> str:
    """Return the text of the README of a repository's chart."""
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    return readme(chart, values_of((root / CHART / "values.yaml").read_text()))


def readme(chart: dict[str, Any], values: list[Value]) -> str:
    """Return the README: name and versions of the chart, and a table of its values."""
    versions = {key: code(str(chart[key])) for key in ("version", "appVersion", "kubeVersion")}
    introduction = _INTRODUCTION.format_map(chart | versions)
    return "\n".join([GENERATED, introduction, table(_HEAD, map(_row, values))])


def _row(value: Value) -> tuple[str, str, str, str]:
    return code(".".join(value.keys)), value.kind, code(value.default), cell(value.description)


if __name__ == "__main__":
    sys.exit(main())
