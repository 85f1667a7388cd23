"""Detects that a second cluster reads with the durable consumers of this cluster.

Pure. In: at each check, the reader named by the consumer, and the time. Out: whether to register again, and whether
another reader exists. Called by ``subscriber``. Two clusters that are clones of one etcd have the same name and the
same UID of kube-system, so the claim to the name admits both (ADR 0087). Invariant: a change of the leader is not
another reader: the former leader stops within the grace period.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_ROUNDS: Final = 4
"""Multiple of ``patience`` without the other reader, after which it counts as ended; it signs on once per patience."""


@dataclass(slots=True)
class OtherReader:
    """The observations of another reader. ``patience`` is in seconds."""

    own: str
    patience: float
    _since: float | None = field(default=None, init=False)
    _seen: float | None = field(default=None, init=False)

    @property
    def there(self) -> bool:
        """True if another reader uses the same consumer."""
        return self._seen is not None

    def look(self, reader: str, now: float) -> bool:
        """Record the reader that the consumer names; return True if this reader must sign on to be visible to it.

        Args:
            reader: reader in the metadata of the consumer, "" if there is none.
            now: seconds of the monotonic clock.
        """
        if reader in {"", self.own}:
            self._since = None
            if self._seen is not None and now - self._seen > _ROUNDS * self.patience:
                self._seen = None
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < self.patience:
            return False
        self._since, self._seen = None, now
        return True
