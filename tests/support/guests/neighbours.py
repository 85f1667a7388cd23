"""A controller that behaves, beside some that do not: how long it takes until it has served a change.

In: a kind of bad behaviour. Out: seconds from a change to the object that the neighbour makes of it. Called by the test
of isolation and by ``bench/controllers/neighbours.py``. The bad ones are provoked all the while: a user who may change
a controller can have it retried at once, as often as they like.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.guests.controllers_world import CONFIG_MAPS, Tenant, prebuilt
from support.guests.wat_guests import beats, guest
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

BAD: Final = {
    "traps": "traps",
    "loops": "loops without an end",
    "eats": "grows its memory to the limit",
    "nests": "calls itself without an end",
    "gushes": "returns 4 MiB",
    "shouts": "says that it returns 2 GiB",
    "asks-nowhere": "asks with a pointer beyond its memory",
    "floods": "asks nonsense without an end",
    "storms": "asks the API server for lists, as fast as it is let",
    "says-much": "logs without an end",
}
"""What it does, in words."""
EACH: Final = 4
"""Controllers of a kind at a time."""
_PAUSE_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.002


@dataclass
class Neighbourhood:
    """The namespace of controllers, and the one that the neighbour copies into."""

    cluster: ClusterInfo
    tenant: Tenant
    target: Tenant
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**9)))

    def settle(self) -> None:
        """Have the neighbour live there."""
        tenant = self.tenant
        tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, self.target.name))
        tenant.module("mirror", prebuilt("mirror"))
        tenant.controller("mirror", config={"targetNamespace": self.target.name})
        self.served()

    def served(self, within: float = 40.0) -> float:
        """Change an object; return the seconds until the neighbour has served that.

        Raises:
            TimeoutError: it was not served.
        """
        data = {"number": str(next(self._numbers))}
        began = time.monotonic()
        self.tenant.config_map("plans", **data)
        while self.target.data("plans") != data:
            if time.monotonic() > began + within:
                raise TimeoutError(f"the neighbour was not called within {within:g} s")
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - began

    @contextlib.contextmanager
    def beside(self, kind: str, **spec: Any) -> Iterator[None]:
        """Have bad ones beside it, which are provoked again and again; ``spec`` is theirs."""
        tenant = self.tenant
        names = [f"{kind}-{number}" for number in range(EACH)]
        tenant.module(kind, beats(tenant.name, "storm", pause=0.001) if kind == "storms" else guest(kind))
        for name in names:
            tenant.controller(name, kind, serviceAccountName="mirror", **spec)
        over = threading.Event()
        provoking = threading.Thread(target=self._provoke, args=(names, over), name=f"provoke {kind}")
        provoking.start()
        try:
            yield
        finally:
            over.set()
            provoking.join()
            for name in names:
                tenant.remove(name)

    def _provoke(self, names: list[str], over: threading.Event) -> None:
        api = Api.of_kubeconfig(Path(self.cluster.kubeconfig))  # a connection is a thread's
        tenant = Tenant(api, self.tenant.name)
        try:
            while not over.wait(_PAUSE_SECONDS):
                number = next(self._numbers)
                for name in names:
                    tenant.change(name, {"config": {"number": number}})
        finally:
            api.close()
