"""All cases."""

from __future__ import annotations

from typing import Final

from support.secrets.secrets_conformance.cases import Case
from support.secrets.secrets_conformance.reads import READS
from support.secrets.secrets_conformance.tokens import TOKENS
from support.secrets.secrets_conformance.wire import WIRE

CASES: Final[tuple[Case, ...]] = (*WIRE, *TOKENS, *READS)
