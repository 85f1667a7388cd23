"""The address of a lattice: NATS URL, credentials, lattice name.

Pure. In: the configuration of a user. Out: values that identify connections and lattices. Called by services and
``link``. Invariant: equal addresses share a connection; no ``repr`` shows secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.nats_credentials import HeldCredentials
from trellis.events.subjects import escape
from trellis.lattice.domain.subjects import CONTROL_PREFIX, account_of, host_ping_subject


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """Where a NATS is and who connects.

    ``authorities`` are certificates in PEM that count beside the system's; ``certificate`` is our own in PEM, with
    those between it and its authority, and its key.
    """

    url: str
    credentials: HeldCredentials | None = None
    authorities: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)

    @property
    def servers(self) -> list[str]:
        """Addresses of its servers."""
        return [part.strip() for part in self.url.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class LatticeAddress:
    """A lattice: whose NATS, its name there, and what its control subjects begin with.

    Raises:
        SubjectError: the name or the prefix cannot stand in a subject.
    """

    link: LinkAddress
    lattice: str
    control_prefix: str = CONTROL_PREFIX

    def __post_init__(self) -> None:
        host_ping_subject(self.lattice, self.control_prefix)

    @property
    def account(self) -> str:
        """The tenant whose lattice it is, where this NATS account is that of a wadm for several tenants; "" elsewhere.

        A tenant's own account has none: NATS puts it before subjects on the way to wadm's.
        """
        return account_of(self.control_prefix)

    @property
    def name(self) -> str:
        """What it is called where this NATS account has other lattices: ``<lattice>`` or ``<account>/<lattice>``."""
        return f"{self.account}/{self.lattice}" if self.account else self.lattice

    @property
    def token(self) -> str:
        """What tells it in names of consumers from other lattices of this NATS account."""
        return "-".join(escape(part) for part in (self.account, self.lattice) if part)
