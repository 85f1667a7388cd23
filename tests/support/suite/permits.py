"""Leave for mass deletions, as ``trellis circuit-breaker close SERVICE KIND --for 1h`` gives it."""

from __future__ import annotations

import http
import time

from trellis.kube.resources import CONFIGMAPS, NAMESPACES
from trellis.limits.breaker import Limits, State, close
from trellis.limits.breaker_record import make_breakers
from trellis_dev.localcluster.api import Api

_SECONDS = 3600.0


def permit_deletions(api: Api, system: str, service: str, kind: str) -> None:
    """Let the circuit breaker of a service pass every deletion; ``system``: the namespace of the installation."""
    state = close(State(), by="test", now=time.time(), everything_for=_SECONDS, limits=Limits())
    api.call("POST", NAMESPACES.path(), {"metadata": {"name": system}})
    record = make_breakers(service, system, {kind: state}, None)
    status, answer = api.call("POST", CONFIGMAPS.path(system), record)
    assert status == http.HTTPStatus.CREATED, answer
