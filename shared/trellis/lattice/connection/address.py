"""The address of a lattice: NATS URL, credentials, lattice name.

Pure. In: the configuration of a user. Out: values that identify connections and lattices. Called by services and
``lattice_connection``. Invariant: equal addresses share a connection; no ``repr`` shows secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.nats_credentials import CachedCredentials
from trellis.events.subjects import escape
from trellis.lattice.domain.subjects import CONTROL_PREFIX, account_of, host_ping_subject


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Address of a NATS server, with the credentials of the client.

    ``authorities``: CA certificates in PEM, in addition to those of the system; ``certificate``: client certificate in
    PEM, with its intermediate certificates and its key.
    """

    url: str
    credentials: CachedCredentials | None = None
    authorities: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)

    @property
    def servers(self) -> list[str]:
        """Addresses of the servers."""
        return [part.strip() for part in self.url.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class LatticeAddress:
    """A lattice: its NATS, its name there, and the prefix of its control subjects.

    Raises:
        SubjectError: the name or the prefix cannot be part of a subject.
    """

    nats: NatsAddress
    lattice: str
    control_prefix: str = CONTROL_PREFIX

    def __post_init__(self) -> None:
        host_ping_subject(self.lattice, self.control_prefix)

    @property
    def account(self) -> str:
        """The tenant of the lattice if this NATS account belongs to a multitenant wadm; otherwise "".

        In the account of the tenant it is "": NATS adds the tenant to subjects on the way to the account of wadm.
        """
        return account_of(self.control_prefix)

    @property
    def name(self) -> str:
        """Unique name within this NATS account: ``<lattice>`` or ``<account>/<lattice>``."""
        return f"{self.account}/{self.lattice}" if self.account else self.lattice

    @property
    def token(self) -> str:
        """Unique part of the names of consumers within this NATS account."""
        return "-".join(escape(part) for part in (self.account, self.lattice) if part)
