"""SecretGrant: who may be given Secrets of its namespace by way of a lattice.

Group ``trellis.dev``. It stands in the namespace whose Secrets are read, so that their owner consents, as a
ReferenceGrant of the Gateway API does. Read by ``secrets_backend``, which alone writes the status: the spec decides,
and the status reports what keeps it from having an effect.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from trellis.crds.api import KUBERNETES, ApiModel, Conditions, rules

ANY: Final = "*"
"""Among ``serviceAccounts``: whichever the request names."""
_NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_ACCOUNT: Final = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$"
_ISSUER: Final = "^A[A-Z2-7]{55}$"
_PLAIN: Final = r"^[^\s\x00-\x1f\x7f]+$"
_SET: Final[dict[str, Any]] = {f"{KUBERNETES}list-type": "set"}
_MOST: Final = 64
"""Entries of a list: the API server has to know how much a rule can cost."""

Account = Annotated[str, Field(pattern=_ACCOUNT, max_length=253)]
User = Annotated[
    str,
    Field(
        pattern=_PLAIN,
        max_length=253,
        json_schema_extra=rules(
            (
                "!self.startsWith('system:') || self.startsWith('system:serviceaccount:')",
                "users of system: are Kubernetes' own, and nobody's to give",
            )
        ),
    ),
]
Issuer = Annotated[str, Field(pattern=_ISSUER, max_length=56)]


class From(ApiModel):
    """Host groups, by namespace and lattice."""

    namespace: str = Field(pattern=_NAMESPACE, max_length=63)
    """Namespace of the host groups."""
    lattice: str | None = Field(default=None, pattern=_PLAIN, max_length=253)
    """Name of the lattice of the host groups. Unset: any lattice. Lattices on one NATS account share their grants."""


class SecretGrantSpec(ApiModel):
    """Host groups that may request Secrets, and the accounts that read them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.serviceAccounts) || has(self.users)",
                "say serviceAccounts or users: as whom Secrets are read; serviceAccounts: [] lets nobody in",
            )
        )
    )

    from_: list[From] = Field(alias="from", min_length=1, max_length=_MOST)
    """Host groups that may request Secrets of this namespace. For these host groups, only the SecretGrants of this
    namespace apply, also if the host groups are in it."""
    service_accounts: list[Account] | None = Field(
        default=None,
        max_length=_MOST,
        json_schema_extra=_SET
        | rules(
            (f"!('{ANY}' in self) || self.size() == 1", f"'{ANY}' is any ServiceAccount: leave out the names beside it")
        ),
    )
    """ServiceAccounts of this namespace that secrets_backend may impersonate to read Secrets; "*" is any. Their own
    permissions apply."""
    users: list[User] | None = Field(default=None, max_length=_MOST, json_schema_extra=_SET)
    """Users, by their full names, that secrets_backend may impersonate to read Secrets. The setting
    TRELLIS_SECRETS_USERS of secrets_backend must list them, too."""
    entity_issuers: list[Issuer] | None = Field(default=None, min_length=1, max_length=_MOST, json_schema_extra=_SET)
    """Public keys (A…) of accounts: only components and providers that one of them signed may request Secrets. Unset:
    any."""


class SecretGrantStatus(ApiModel):
    """Observed state."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Accepted, HostGroupsFound and AccountsUsable."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that this status describes."""


class SecretGrant(ApiModel):
    """Permits workloads of a lattice to request Secrets of this namespace."""

    spec: SecretGrantSpec
    """Host groups that may request Secrets of this namespace, and the accounts that read them."""
    status: SecretGrantStatus | None = None
    """Observed state, written by secrets_backend."""
