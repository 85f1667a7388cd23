"""Writes the status of SecretGrants.

In: keys of SecretGrants, host groups, the API server's answers about accounts. Out: their status subresource. Called by
``app``, for a queue of its own. Invariants: every replica writes the same; a status that differs only in its times is
not written; the status of a grant is not needed to answer requests, so a refused write changes no readiness. Changes of
host groups come from a watch; accounts and permissions, which are not watched, are checked at intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from secrets_backend.domain.decide import Grant, Identity, view_grant
from secrets_backend.domain.grant_status import Access, Reason, status_of
from secrets_backend.domain.resources import ACCOUNT_PREFIX, Reader
from secrets_backend.gather import Cache
from secrets_backend.permissions import roles_hint
from secrets_backend.timings import Timings
from trellis import names
from trellis.crds.secret_grants import ANY
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, Forbidden, NotFound
from trellis.kube.resources import SECRET_GRANTS, SELF_REVIEWS, SERVICE_ACCOUNTS
from trellis.lattice.domain.group_views import GroupView
from trellis.telemetry import TraceContext
from trellis.telemetry.health import Health

_WHAT: Final = "status of SecretGrants"


@dataclass(frozen=True, slots=True)
class GrantStatuses:
    """``add`` queues a key; ``users``: of the setting."""

    kube: Kube
    cache: Cache
    health: Health
    users: frozenset[str]
    add: Callable[[str], None]
    timings: Timings = Timings()
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def on_grant(self, change: Change[Grant]) -> None:
        """Queue a SecretGrant that changed."""
        if change.new is not None:
            self.add(change.key)

    def on_group(self, change: Change[GroupView]) -> None:
        """Queue the SecretGrants of a host group that appeared, moved to another lattice or was deleted."""
        places = {_place(group) for group in (change.old, change.new) if group is not None}
        if len(places) == 1 and change.old is not None and change.new is not None:
            return
        namespace = change.key.partition("/")[0]
        for key, grant in self.cache.grants.items():
            if grant.spec is not None and any(source.namespace == namespace for source in grant.spec.from_):
                self.add(key)

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Update the status of a SecretGrant; return seconds until the next check of its accounts.

        Raises:
            KubeError: the queue retries.
        """
        del trace
        namespace, _, name = key.partition("/")
        if key not in self.cache.grants:
            return None
        if not self.cache.grants_known():
            return self.timings.recheck
        try:
            return await self._run(namespace, name)
        except (NotFound, Conflict) as error:  # deleted or changed since; a CRD of a former version has no status
            return None if isinstance(error, NotFound) else 0.1
        except Forbidden as error:
            self.health.note(_WHAT, self.kube.describe_error(error))
            return self.timings.recheck

    async def _run(self, namespace: str, name: str) -> float | None:
        item = await self.kube.get(SECRET_GRANTS, name, namespace)
        grant, former = view_grant(item), item.get("status") or {}
        accounts = [await self._access(reader) for reader in _readers(grant)]
        checked = bool(accounts)
        if ANY in ((grant.spec and grant.spec.service_accounts) or ()):
            accounts.append(Access(f"any ServiceAccount of namespace {namespace}"))
        groups = frozenset(_place(group) for group in self.cache.groups.values() if group.spec is not None)
        now = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = status_of(grant, groups, accounts, former, (item["metadata"].get("generation") or 0, now))
        if status != former:
            read = {entry: item["metadata"][entry] for entry in ("uid", "resourceVersion")}
            await self.kube.merge_patch(
                SECRET_GRANTS,
                name,
                {"metadata": read, "status": status},
                namespace,
                field_manager=names.FIELD_MANAGER_SECRETS_BACKEND,
                subresource="status",
            )
        self.health.note(_WHAT, "")
        if any(account.trouble for account in accounts):
            return self.timings.recheck
        return self.timings.confirm if checked else None

    async def _access(self, reader: Reader) -> Access:
        """Return whether Secrets can be read as a ServiceAccount or user."""
        what = f"user {reader.name}" if reader.is_user else f"ServiceAccount {reader.namespace}/{reader.name}"
        if reader.is_user and reader.name not in self.users:
            return Access(what, Reason.NOT_ALLOWED)
        attributes = {"verb": "impersonate", "resource": "users", "name": reader.name}
        if (account := reader.account) is not None:
            namespace, name = account
            attributes |= {"resource": "serviceaccounts", "namespace": namespace, "name": name}
            try:
                await self.kube.get(SERVICE_ACCOUNTS, name, namespace, metadata=True)
            except NotFound:
                return Access(what, Reason.NO_ACCOUNT, f"`kubectl -n {namespace} create serviceaccount {name}`")
            except Forbidden as error:
                return Access(what, Reason.NOT_CHECKED, self.kube.describe_error(error))
        review = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind, "metadata": {"name": ""}}
        answer = await self.kube.create(SELF_REVIEWS, review | {"spec": {"resourceAttributes": attributes}})
        if (answer.get("status") or {}).get("allowed"):
            return Access(what)
        user = reader.name if reader.is_user else f"{ACCOUNT_PREFIX}{reader.namespace}:{reader.name}"
        return Access(what, Reason.NOT_PERMITTED, roles_hint(Identity(user, reader.namespace, "")))


def _readers(grant: Grant) -> Iterator[Reader]:
    """Yield the ServiceAccounts and users that a grant names, except for ``*``."""
    if grant.spec is None:
        return
    for account in grant.spec.service_accounts or ():
        if account != ANY:
            yield Reader(grant.namespace, account)
    for user in grant.spec.users or ():
        yield Reader(grant.namespace, user, is_user=True)


def _place(group: GroupView) -> tuple[str, str]:
    return group.namespace, "" if group.spec is None else group.spec.lattice
