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
from trellis.v2.explain.starting import invalid_image, known_failure
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

_MISSING: Final = re.compile(r'(?P<kind>ConfigMap|Secret|configmaps|secrets) "(?P<name>[^"]{1,300})" not found')
_KINDS: Final = {"configmaps": "ConfigMap", "secrets": "Secret"}
"""An operator with a cache names the kind, and one that asks the API server names the resource."""
_OTHER_TYPE: Final = re.compile(r'image pull secret "[^"]{1,300}" is not of type')
_NO_LOGINS: Final = re.compile(r'loading docker config json from secret "(?P<name>[^"]{1,300})"')
_NO_REFERENCE: Final = re.compile(r'parsing image reference "(?P<image>.{0,500}?)": (?P<detail>.+)', re.DOTALL)
"""The operator parses an image only if it has a pull Secret; otherwise the host refuses it."""
_NOT_SHARED: Final = "allowSharedHosts=false"
_OUTAGES: Final = frozenset({Reason.NATS_UNREACHABLE, Reason.HEARTBEATS_STOPPED})
"""Problems of all hosts at once."""
_UNSUITABLE: Final = "no suitable host"
"""In lower case. Another release can add what it searched for."""


def configuration(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for configuration that the operator cannot read; as its condition has it."""
    missing = _MISSING.search(reported.message)
    if missing is None:
        return _unusable(cluster, reported)
    kind = _KINDS.get(missing["kind"], missing["kind"])
    what = f"{kind} {workload.meta.namespace}/{missing['name']} does not exist"
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
    if _UNSUITABLE not in reported.message.lower():
        return _as_reported(reported, Reason.NOT_READY)
    if not cluster.snapshot.knows(Part.HOSTS):
        text = f"{reported.message}; the Hosts are unknown: {unknown(cluster, Part.HOSTS)}"
        return Line("host", text, False, "", Rank.CAUSE, Reason.HOSTS_UNKNOWN)
    if not cluster.hosts:
        return _no_host(cluster)
    spec, namespace = workload.spec, workload.meta.namespace
    rules = (spec.environment, frozenset(spec.selector.items()))
    found = cluster.once(("candidates", rules), lambda: _candidates(cluster, spec))
    if isinstance(found, Line):
        return found
    since, key = reported.since, ("not chosen", rules, namespace, reported.since)
    return cluster.once(key, lambda: _not_chosen(cluster, workload, found, since))


def placement(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for a Workload that its host did not start."""
    if NO_RESPONDERS in reported.message:
        return unanswered(cluster, workload, reported)
    if DEADLINE in reported.message:
        return timed_out(cluster, workload, reported.message)
    if _MISSING.search(reported.message) or "materializing" in reported.message:
        return configuration(cluster, workload, reported)
    return known_failure(cluster, workload, reported.message) or _as_reported(reported, Reason.START_FAILED)


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


def _candidates(cluster: Cluster, spec: TemplateView) -> Line | list[HostView]:
    """Return the Hosts that the operator can choose by the rules of a template, or the step why there are none."""
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
    ready = [host for host in fitting if host.ready.true and not host.meta.deleting]
    return ready or _none_ready(cluster, fitting)


def _not_chosen(cluster: Cluster, workload: WorkloadView, ready: Sequence[HostView], since: float | None) -> Line:
    """Return the step for a Workload that has candidates and no host.

    ``since``: of the condition, in Unix seconds by the clock of the operator. It is the same step for all Workloads of
    a namespace with these rules and this time.
    """
    namespace, look = workload.meta.namespace, in_seconds(cluster.snapshot.timings.workload_look)
    refused = next((host for host in ready if _evaluated(cluster, host, since)), None)
    if refused is None or cluster.operator.unavailable:
        text = f"Host {ready[0].meta.name} matches now; the operator reconciles it again within {look}"
        return Line("host", text, ok=False, reason=Reason.WAITING)
    if not workload.spec.environment and all(host.environment != namespace for host in ready):
        if own := [it for it in cluster.hosts if it.environment == namespace and selects(workload.spec.selector, it)]:
            return _none_ready(cluster, own)  # without sharing, the other ones do not count
        text = (
            f"the Ready Hosts are of environment {environments_there(ready)}, and the operator can limit a Workload to "
            f"that of its namespace, {namespace}"
        )
        do = f"start a host of environment {namespace}, or permit sharing in the operator (-allow-shared-hosts)"
        return Line("host", text, False, do, Rank.CAUSE, Reason.NO_HOST_MATCHES)
    text = f"Host {refused.meta.key} matches, and the operator did not choose it"
    do = "read the log of the runtime-operator: it chooses Hosts of its own namespace only"
    return Line("host", text, False, do, Rank.CAUSE, Reason.NOT_OBSERVED, Health.UNKNOWN)


def _none_ready(cluster: Cluster, fitting: Sequence[HostView]) -> Line:
    line = next((line for host in fitting if (line := host_trouble(cluster, host)) is not None), None)
    if line is not None and line.reason in _OUTAGES:
        return line  # no Workload and no Host is the problem
    reason = "they were registered just now"
    if line is not None:
        reason = line.text
    elif late := next((host for host in fitting if _not_evaluated(cluster, host)), None):
        reason = f"the operator has not evaluated Ready of Host {late.meta.name}"
    elif deleted := next((host for host in fitting if host.meta.deleting), None):
        reason = f"Host {deleted.meta.name} is being deleted"
    text = f"no Host that matches is Ready ({len(fitting)}); {reason}"
    return Line("host", text, False, line.do if line else "", Rank.CAUSE, Reason.NO_HOST_READY)


def _not_evaluated(cluster: Cluster, host: HostView) -> bool:
    age = cluster.snapshot.timings.host_look + cluster.snapshot.timings.slack
    return not host.ready.status and cluster.older(host.meta.created, age)


def _evaluated(cluster: Cluster, host: HostView, since: float | None) -> bool:
    """Return whether the operator has chosen among the Hosts since this one is Ready; ``since``: of the condition.

    A host that became Ready later is found at the next look, which a start delays. Both times are by the clock of the
    operator.
    """
    timings, ready = cluster.snapshot.timings, host.ready.since
    if ready is None or (since is not None and since - ready > timings.settle):
        return True
    return cluster.older(cluster.by_server(ready), timings.workload_look + timings.start + timings.slack)


def _unusable(cluster: Cluster, reported: Condition) -> Line:
    """Return the step for configuration that exists and that the operator cannot use."""
    look = in_seconds(cluster.snapshot.timings.workload_look)
    if (image := _NO_REFERENCE.search(reported.message)) is not None:
        return invalid_image(image["image"], quoted(image["detail"]))
    do = f"correct it: the operator reconciles it again within {look}"
    if _OTHER_TYPE.search(reported.message):
        do = "name a Secret of type kubernetes.io/dockerconfigjson: `kubectl create secret docker-registry`"
    elif (secret := _NO_LOGINS.search(reported.message)) is not None:
        do = f"correct .dockerconfigjson of Secret {secret['name']}: the operator reconciles it again within {look}"
    return _as_reported(reported, Reason.CONFIG_INVALID, "config", do)


def _as_reported(reported: Condition, reason: Reason, about: str = "", do: str = "") -> Line:
    text = f"{reported.type} is {reported.status}{quoted(reported.message)}"
    return Line(about or reported.type, text, False, do, Rank.CAUSE, reason, Health.DEGRADED)
