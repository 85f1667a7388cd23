"""SecretGrant: permits lattices to get Secrets of its namespace.

Group ``trellis.dev``. It is in the namespace of the Secrets, so that their owner consents, as with a ReferenceGrant of
the Gateway API. Read by ``secrets_backend``, which alone writes the status: the spec decides, and the status reports
the reasons why a grant has no effect.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from trellis.crds.api import KUBERNETES, ApiModel, Conditions, rules

ANY: Final = "*"
"""Entry of ``serviceAccounts``: any ServiceAccount that a request names."""
_NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_ACCOUNT: Final = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$"
_ISSUER: Final = "^A[A-Z2-7]{55}$"
_PLAIN: Final = r"^[^\s\x00-\x1f\x7f]+$"
_SET: Final[dict[str, Any]] = {f"{KUBERNETES}list-type": "set"}
_MOST: Final = 64
"""Maximum number of entries of a list, which the API server needs for the CEL estimate of a rule."""

Account = Annotated[str, Field(pattern=_ACCOUNT, max_length=253)]
User = Annotated[
    str,
    Field(
        pattern=_PLAIN,
        max_length=253,
        json_schema_extra=rules(
            (
                "!self.startsWith('system:') || self.startsWith('system:serviceaccount:')",
                "users with the prefix system: are reserved for Kubernetes and cannot be granted",
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
                "needs serviceAccounts or users, which read the Secrets; serviceAccounts: [] permits no request",
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
        | rules((f"!('{ANY}' in self) || self.size() == 1", f"'{ANY}' is any ServiceAccount: remove the other names")),
    )
    """ServiceAccounts of this namespace that secrets_backend may impersonate to read Secrets; "*" is any. Their own
    permissions apply. Required unless users is set."""
    users: list[User] | None = Field(default=None, max_length=_MOST, json_schema_extra=_SET)
    """Users, by their full names, that secrets_backend may impersonate to read Secrets. The setting
    TRELLIS_SECRETS_USERS of secrets_backend must list them, too. Required unless serviceAccounts is set."""
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
