"""Writes the generated parts of project files for each service, or checks them: ``make generate``, ``make verify``.

In: the registry of services and the root of the repository. Out: the parts between two marks in ``pyproject.toml``
(scripts, import contracts), ``mkdocs.yml`` (navigation) and ``docs/services/index.md`` (table), or an exit status with
the reasons. Invariant: text outside the marks is not changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trellis.events.subjects import EVENT_SPECS
from trellis.services import SERVICES, Service
from trellis_tools.marked_part import with_part
from trellis_tools.reference.markdown import table

_BEGIN: Final = "services: written by make generate from shared/trellis/services.py"
_END: Final = "end of services"
_PAGES: Final = "docs/services"
_INSTALLER: Final = "node_installer"
"""The program in installer Jobs: a separate package, which ``trellis run`` does not run."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.services", description=__doc__)
    parser.add_argument("root", type=Path, help="the repository")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a part differs")
    arguments = parser.parse_args(argv)
    problems = []
    for name, text in documents(arguments.root).items():
        path = arguments.root / name
        if arguments.check and path.read_text() != text:
            problems.append(f"{name}: the list of services is out of date, run make generate\n")
        elif not arguments.check:
            path.write_text(text)
    sys.stderr.write("".join(problems))
    return 1 if problems else 0


def documents(root: Path) -> dict[str, str]:
    """Return the text of each file by its path in the repository.

    Raises:
        ValueError: a file lacks the marks.
    """
    index = f"{_PAGES}/index.md"
    parts = {
        "pyproject.toml": ("# {}", project_part()),
        "mkdocs.yml": ("      # {}", "".join(f"      - services/{item.name}.md\n" for item, _ in _pages(root))),
        index: ("<!-- {} -->", _table(root)),
    }
    return {
        name: with_part((root / name).read_text(), name, (comment.format(_BEGIN), comment.format(_END)), part)
        for name, (comment, part) in parts.items()
    }


def project_part() -> str:
    """Return scripts, and the contract of import-linter with the layers of packages."""
    packages = sorted([*SERVICES, _INSTALLER])
    scripts = "".join(f'trellis-{package.replace("_", "-")} = "{package}.__main__:main"\n' for package in packages)
    layers = ["trellis_dev : trellis_tools", "trellis_cli", " | ".join(packages), "trellis"]
    return f"""[project.scripts]
trellis = "trellis_cli.__main__:main"
kubectl-trellis = "trellis_cli.__main__:main"
kubectl_complete-trellis = "trellis_cli.kubectl_complete:main"
{scripts}
[tool.importlinter]
root_packages = {_array(["trellis", *packages, "trellis_cli", "trellis_dev", "trellis_tools"])}
include_external_packages = true

[[tool.importlinter.contracts]]
name = "A layer imports only lower layers, and services do not import each other"
type = "layers"
layers = {_array(layers)}
"""


def _array(values: list[str]) -> str:
    return "[\n" + "".join(f"  {json.dumps(value)},\n" for value in values) + "]"


def _pages(root: Path) -> Iterator[tuple[Service, Path]]:
    """Yield the services with a page below ``docs/services``; the page of the console is in the user documentation."""
    for service in SERVICES.values():
        path = root / _PAGES / f"{service.name}.md"
        if path.exists():
            yield service, path


def _table(root: Path) -> str:
    """Return a row for each service: the first paragraph of its page, and the nouns of its published events."""
    rows = []
    for service, path in _pages(root):
        _, paragraph, *_ = path.read_text().split("\n\n", 2)
        nouns = dict.fromkeys(f"`{spec.model.noun}.*`" for spec in EVENT_SPECS if spec.owner == service.package)
        rows.append((f"[{service.package}]({service.name}.md)", " ".join(paragraph.split()), ", ".join(nouns)))
    return table(("service", "purpose", "publishes"), rows)


if __name__ == "__main__":
    sys.exit(main())
