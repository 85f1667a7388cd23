"""Options that many commands have: which cluster is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

KubeconfigOption = Annotated[Path | None, typer.Option(help="kubeconfig file [env: TRELLIS_KUBECONFIG]")]
ContextOption = Annotated[str | None, typer.Option(help="context of the kubeconfig [env: TRELLIS_CONTEXT]")]
