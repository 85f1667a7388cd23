"""Selects the hosts to which a port of an application routes.

Pure. In: a listener, the pods of the hosts of a lattice, the state of the lattice. Out: pods. Called by ``decide``.
Rule: hosts that match one of the requirements by their labels as reported by the lattice; if the lattice reports which
hosts run the provider, only these. Invariant: while no host is known to run it, no host is excluded for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trellis.lattice.domain.cached_listeners import meets
from trellis.lattice.domain.hosts import Sighting
from trellis.lattice.domain.manifests import Listener
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import PodView


def hosts_for(
    listener: Listener, pods: Iterable[PodView], hosts: Mapping[str, Sighting], running: ProviderHosts
) -> tuple[PodView, ...]:
    """Return the pods to which a port routes; ``hosts``: the reporting hosts by the names of their pods."""
    fit = [pod for pod in pods if meets(listener, pod, hosts.get(pod.name))]
    runs = {pod.key: running.runs(listener.providers, seen) for pod in fit if (seen := hosts.get(pod.name))}
    if not any(runs.values()):
        return tuple(fit)
    return tuple(pod for pod in fit if runs.get(pod.key, True))
