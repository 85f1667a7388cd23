"""Compares findings of checkov with the excuses in ``deploy/helm/checkov.yaml``.

In: the excuses, reports of checkov as JSON. Out: a line for each finding without an excuse and for each excuse without
a finding, and an exit status. Called by the check of the rendered chart. Invariant: an excuse has a reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A failed check. ``resource``: ``<kind>.<namespace>.<name>``."""

    check: str
    resource: str


@dataclass(frozen=True, slots=True)
class Excuse:
    """Intended findings of one check: patterns of resources, and the reason."""

    check: str
    resources: tuple[str, ...]
    reason: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.checkov", description=__doc__)
    parser.add_argument("excuses", type=Path, help="deploy/helm/checkov.yaml")
    parser.add_argument("reports", type=Path, nargs="+", help="reports of checkov (JSON)")
    arguments = parser.parse_args(argv)
    try:
        excuses = excuses_of(arguments.excuses.read_text(encoding="utf-8"))
        found = {
            finding for path in arguments.reports for finding in findings(json.loads(path.read_text(encoding="utf-8")))
        }
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    problems = list(compare(found, excuses))
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


def excuses_of(text: str) -> list[Excuse]:
    """Return the excuses in a file.

    Raises:
        ValueError: an entry lacks its check, its resources or its reason.
    """
    found = []
    for entry in yaml.safe_load(text) or ():
        excuse = Excuse(entry.get("check", ""), tuple(entry.get("resources", ())), entry.get("reason", "").strip())
        if not (excuse.check and excuse.resources and excuse.reason):
            raise ValueError(f"{excuse.check or entry}: needs check, resources and reason")
        found.append(excuse)
    return found


def findings(report: Any) -> Iterator[Finding]:  # noqa: ANN401 (JSON)
    """Yield the failed checks of a report: one framework, or a list of them.

    Raises:
        ValueError: the report has another form, as after an error of checkov.
    """
    for item in report if isinstance(report, list) else [report]:
        if not isinstance(item, dict) or "results" not in item:
            raise ValueError("a report has no results: it needs checkov --output json, for files with manifests")
        for failed in item["results"]["failed_checks"]:
            yield Finding(failed["check_id"], failed["resource"])


def compare(found: Iterable[Finding], excuses: Iterable[Excuse]) -> Iterator[str]:
    """Yield the findings that no excuse names, then the resources of excuses that name no finding."""
    everything, excused = sorted(found), list(excuses)
    for item in everything:
        if not any(item.check == excuse.check and _names(excuse.resources, item.resource) for excuse in excused):
            yield f"{item.check} {item.resource}: fix it, or add an excuse with its reason"
    for excuse in excused:
        for pattern in excuse.resources:
            if not any(item.check == excuse.check and fnmatchcase(item.resource, pattern) for item in everything):
                yield f"{excuse.check} {pattern}: no finding needs this excuse: remove it"


def _names(patterns: Iterable[str], resource: str) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in patterns)


if __name__ == "__main__":
    sys.exit(main())
