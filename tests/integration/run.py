"""Runs the integration tests: ``python tests/integration/run.py [--thorough] [--record] [pytest's options]``.

A file's tests run one after the other in one of several workers, the longest file first. There are two workers
for each core, because tests mostly wait. Each worker has a control plane and a nats-server of its own (ADR 95). A test
that fails has failed: nothing is tried again. ``--record`` writes how long each file took into
``tests/durations.json``, which gives the order. ``--thorough`` runs only the tests with the mark of that name, which
``make test`` leaves out.

The services of tests have the rights of ``deploy/rbac`` and no others: a refusal, and a rule that no test used, are
failures too; the latter only in a run of ``make test`` in which all passed.

Exit status: pytest's; 1 for wrong permissions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import day
from support.guests import built as guests
from support.secrets import secrets_client
from support.suite import durations
from support.suite.suite_permissions import FOLDER_VARIABLE, faults
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.progress import Lines

HERE = Path(__file__).parent
TOOLS = ("nats", "kubeconform", "promtool", "kstatus", "actionlint")
"""For tests of examples, alert rules, conditions and workflows: no cluster needs them, so ``trellis dev tools`` does
not build them."""
SLOWEST = 20


def main(options: list[str]) -> int:
    """Run all of a tier; look at the permissions that were used."""
    tier = "thorough" if "--thorough" in options else "not thorough"
    build()
    with tempfile.TemporaryDirectory() as folder:
        # The seeds of a run that goes on after midnight are those of the day on which it began.
        os.environ.setdefault(day.VARIABLE, datetime.now(UTC).date().isoformat())
        os.environ[FOLDER_VARIABLE] = folder
        if "--record" in options:
            os.environ[durations.RECORD_VARIABLE] = "1"
        others = [option for option in options if option not in {"--thorough", "--record"}]
        status = subprocess.run(command(tier, others), check=False).returncode
        wrong = faults(Path(folder), whole=status == 0 and tier == "not thorough")
    for item in wrong:
        print(f"RIGHTS  {item}", flush=True)
    return status or int(bool(wrong))


def build() -> None:
    """Build what many tests need and no test's deadline allows for: minutes of a compiler, where nothing is cached."""
    for tool in TOOLS:
        tools.ensure(tool, Lines())
    if secrets_client.missing() is None:
        secrets_client.program()
    if guests.missing("c") is None:
        guests.example("c", guests.EXAMPLES[0])


def command(tier: str, options: list[str]) -> list[str]:
    """Return the command line of pytest for the tests of a tier, a marker expression."""
    workers = 2 * (os.cpu_count() or 1)
    spread = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    shown = ["-q", f"--durations={SLOWEST}", "--durations-min=1"]
    return [sys.executable, "-m", "pytest", *shown, *spread, "-m", tier, str(HERE), *options]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
