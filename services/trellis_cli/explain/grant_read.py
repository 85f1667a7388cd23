"""Reads the data of the page of a SecretGrant.

In: a reader with its permissions, a name. Out: the page. Called by ``explain``. Writes nothing. Invariant: that of
``explain_read``.
"""

from __future__ import annotations

from trellis.kube.resources import HOST_CONFIGS, SECRET_GRANTS, SERVICE_ACCOUNTS, Manifest
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.find import find
from trellis_cli.explain.grant import SUBJECT as GRANT
from trellis_cli.explain.grant import Account, GrantSnapshot, explain_grant, identity_of, named_accounts
from trellis_cli.secrets.model import impersonation_review


async def grant_page(reading: Reading, name: str, namespace: str | None) -> Explanation:
    """Return the page of a SecretGrant."""
    grant = await find(reading, SECRET_GRANTS, GRANT, name, namespace)
    groups = await reading.list(HOST_CONFIGS)
    known = groups if reading.knows(HOST_CONFIGS) else None
    accounts = [await _account(reading, grant, named_account) for named_account in named_accounts(grant)]
    return explain_grant(GrantSnapshot(grant, known, accounts, Beside(notes=reading.notes)))


async def _account(reading: Reading, grant: Manifest, account: str) -> Account:
    namespace = grant["metadata"]["namespace"]
    before = len(reading.notes)
    there = await reading.get(SERVICE_ACCOUNTS, account, namespace) is not None
    known = len(reading.notes) == before
    may = await reading.allowed(impersonation_review(identity_of(namespace, account), reading.namespace))
    return Account(account, there if known else None, may)
