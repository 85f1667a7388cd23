"""Detects that a second cluster reads with this cluster's durable consumers.

Pure. In: at each look, the reader that the consumer names, and the time. Out: whether to sign on again, and whether
another reader is there. Called by ``subscriber``. Two clusters that are clones of one etcd have one name and one
kube-system uid, so the claim to the name lets both in (ADR 0087). Invariant: a change of leader is none: the former
leader ends within the patience.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_ROUNDS: Final = 4
"""The other one signs on again after its own patience: for two of them, with a margin, it may not be seen."""


@dataclass(slots=True)
class OtherReader:
    """What one reader sees of another. ``patience`` is in seconds."""

    own: str
    patience: float
    _since: float | None = field(default=None, init=False)
    _seen: float | None = field(default=None, init=False)

    @property
    def there(self) -> bool:
        """Whether another reader uses the consumer, too."""
        return self._seen is not None

    def look(self, reader: str, now: float) -> bool:
        """Note who the consumer names ("" for nobody); return whether to sign on again, so that the other one sees it.

        Args:
            reader: of the consumer's metadata.
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
