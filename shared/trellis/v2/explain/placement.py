"""The cause of a Workload without a host, or without a configuration.

Pure. In: a Workload whose condition Config, HostSelection or Placement is not True. Out: the step with the cause.
Called by the page of a Workload. Invariant: the operator's text "no suitable host found" names no reason, so the rules
are evaluated again: labels, environment, Ready; without the Hosts no reason is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trellis.read_model.explain.page import Line, Rank
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import host_trouble, timed_out, unanswered
from trellis.v2.explain.pods import pods_of_groups
from trellis.v2.explain.text import (
    environments_there,
    in_seconds,
    labels_shown,
    labels_there,
    number_of,
    quoted,
    unknown,
)
from trellis.v2.hosts import LABEL_GROUP, HostView, selects
from trellis.v2.objects import Condition
from trellis.v2.operator import DEADLINE, NO_RESPONDERS
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part
from trellis.v2.workloads import TemplateView, WorkloadView

_MISSING: Final = re.compile(r'(?P<kind>ConfigMap|Secret) "(?P<name>[^"]{1,300})" not found')
_NOT_SHARED: Final = "allowSharedHosts=false"
_UNSUITABLE: Final = "no suitable host"


def configuration(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for configuration that the operator cannot read; as its condition has it."""
    missing = _MISSING.search(reported.message)
    if missing is None:
        return _as_it_says(reported, Reason.CONFIG_INVALID, "config")
    what = f"{missing['kind']} {workload.meta.namespace}/{missing['name']} does not exist"
    where = reported.message[: missing.start()].rstrip(" :")
    text = f"{what} ({where})" if where else what
    look = in_seconds(cluster.snapshot.timings.workload_look)
    do = f"create it in namespace {workload.meta.namespace}: the operator reconciles it again within {look}"
    return Line("config", text, False, do, Rank.CAUSE, Reason.CONFIG_MISSING)


def host_selection(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for a Workload without a host."""
    if _NOT_SHARED in reported.message:
        do = "remove environment from the template, or permit it in the operator (-allow-shared-hosts)"
        return Line("host", reported.message, False, do, Rank.CAUSE, Reason.ENVIRONMENT_DENIED)
    if _UNSUITABLE not in reported.message:
        return _as_it_says(reported, Reason.NOT_READY)
    if not cluster.snapshot.knows(Part.HOSTS):
        text = f"{reported.message}; the Hosts are unknown: {unknown(cluster, Part.HOSTS)}"
        return Line("host", text, False, "", Rank.CAUSE, Reason.HOSTS_UNKNOWN)
    if not cluster.hosts:
        return _no_host(cluster)
    spec, namespace = workload.spec, workload.meta.namespace
    key = ("no match", namespace, spec.environment, frozenset(spec.selector.items()))
    return cluster.once(key, lambda: _no_match(cluster, spec, namespace))


def placement(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for a Workload that its host did not start."""
    if NO_RESPONDERS in reported.message:
        return unanswered(cluster, workload, reported.message)
    if DEADLINE in reported.message:
        return timed_out(cluster, workload, reported.message)
    if _MISSING.search(reported.message) or "materializing" in reported.message:
        return configuration(cluster, workload, reported)
    return _as_it_says(reported, Reason.START_FAILED)


def _no_host(cluster: Cluster) -> Line:
    messages = cluster.snapshot.messages
    do = "start a host (`wash host`), and check that it connects to the NATS of the runtime-operator"
    text = "no wasmCloud host is registered: there is no Host object"
    if messages is not None and not messages.error:
        text += f", and {number_of(len(messages.hosts), 'host')} sent a heartbeat in {in_seconds(messages.seconds)}"
        if messages.hosts:
            do = "check that the runtime-operator runs and uses the NATS of these hosts"
    pods, resolution = pods_of_groups(cluster)
    text = f"{text}; {pods}" if pods else text
    return Line("host", text, False, resolution or do, Rank.CAUSE, Reason.NO_HOST)


def _no_match(cluster: Cluster, spec: TemplateView, namespace: str) -> Line:
    """Return the step for templates with these rules; it is the same for all Workloads of a namespace."""
    hosts = cluster.hosts
    matching = [host for host in hosts if selects(spec.selector, host)]
    if not matching:
        text = (
            f"no Host has the labels {labels_shown(spec.selector)} of hostSelector; "
            f"there are: {labels_there(hosts, spec.selector)}"
        )
        do = "change hostSelector, or start a host with these labels (`wash host --host-group`)"
        if group := spec.selector.get(LABEL_GROUP):
            pods, resolution = pods_of_groups(cluster, group)
            text, do = f"{text}; {pods}" if pods else text, resolution or do
        return Line("host", text, False, do, Rank.CAUSE, Reason.NO_HOST_MATCHES)
    fitting = [host for host in matching if not spec.environment or host.environment == spec.environment]
    if not fitting:
        text = f"no Host that hostSelector matches is of environment {spec.environment}; there are: "
        do = "change environment, or start a host with it (`wash host --environment`)"
        return Line("host", text + environments_there(matching), False, do, Rank.CAUSE, Reason.NO_HOST_MATCHES)
    return _none_ready(cluster, spec, namespace, fitting)


def _none_ready(cluster: Cluster, spec: TemplateView, namespace: str, fitting: Sequence[HostView]) -> Line:
    ready = [host for host in fitting if host.ready.true]
    if not ready:
        troubles = (line for host in fitting if (line := host_trouble(cluster, host)) is not None)
        line = next(troubles, None)
        reason = line.text if line is not None else "they were registered just now"
        text = f"no Host that matches is Ready ({len(fitting)}); {reason}"
        return Line("host", text, False, line.do if line else "", Rank.CAUSE, Reason.NO_HOST_READY)
    look = in_seconds(cluster.snapshot.timings.workload_look)
    if all(host.environment not in {"", namespace} for host in ready) and not spec.environment:
        text = (
            f"the Ready Hosts are of environment {environments_there(ready)}, and the operator can limit a Workload to "
            f"that of its namespace, {namespace}"
        )
        do = f"start a host of environment {namespace}, or permit sharing in the operator (-allow-shared-hosts)"
        return Line("host", text, False, do, Rank.CAUSE, Reason.NO_HOST_MATCHES)
    text = f"Host {ready[0].meta.name} matches now; the operator reconciles it again within {look}"
    return Line("host", text, ok=False, reason=Reason.WAITING)


def _as_it_says(reported: Condition, reason: Reason, about: str = "") -> Line:
    text = f"{reported.type} is {reported.status}{quoted(reported.message)}"
    return Line(about or reported.type, text, False, "", Rank.CAUSE, reason, Health.DEGRADED)
