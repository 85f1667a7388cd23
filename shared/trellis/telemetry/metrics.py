"""Prometheus metrics of the process, in one registry, with the service as a label.

In: counts and callbacks from bus, kube and services. Out: ``registry``, which the health server renders as text.
Called by everything that has a ``Telemetry``. Invariant: a series has one meaning in every service; nothing is ever
registered twice, however many services share the process.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from trellis.telemetry.console_metrics import ConsoleMetrics
from trellis.telemetry.observed import Forget, ObservedGauge, Read

_HANDLER_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SHORT_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30,
)  # fmt: skip
_OF_STREAM: Final = ("nats", "lattice", "stream")
_OF_LATTICE: Final = ("nats", "lattice", "lattice_id")
_OF_HOST: Final = ("host_namespace", "host")


@functools.cache
def trellis_version() -> str:
    """Return the installed version, ``unknown`` in a checkout that was never installed."""
    try:
        return version("trellis-wasm")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class KeptReads:
    """Callbacks for the metrics of a lattice whose applications are reflected as objects.

    ``phases``: number of objects by phase. ``synced_age``: seconds. ``owned``, ``linked``: 1 or 0.
    """

    phases: Mapping[str, Read]
    synced_age: Read
    owned: Read
    linked: Read


class Metrics(ConsoleMetrics):
    """The metrics by name, without their prefix ``trellis_``; each has the label ``service``.

    A test makes its own with ``Metrics()``; services share :func:`process_metrics`.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:  # noqa: PLR0915 - one for each metric
        super().__init__(registry if registry is not None else CollectorRegistry())
        self.handler_seconds: Final = Histogram(
            "trellis_handler_seconds",
            "Duration of one handler run in seconds",
            ("service", "queue"),
            buckets=_HANDLER_BUCKETS,
            registry=self.registry,
        )
        self.retries_total: Final = self._counter("retries", "Failed handler runs that are retried", "queue")
        self.dead_letters_total: Final = self._counter("dead_letters", "Dead-lettered messages", "reason")
        self.events_published_total: Final = self._counter("events_published", "Published events", "type")
        self.events_received_total: Final = self._counter("events_received", "Received events", "type")
        self.events_unsupported_version_total: Final = self._counter(
            "events_unsupported_version",
            "Skipped events of a later version than the supported one",
            "type",
        )
        self.kube_requests_total: Final = self._counter(
            "kube_requests",
            "Requests to the Kubernetes API; code is the HTTP status or error",
            "verb",
            "resource",
            "code",
        )
        self.leader: Final = self._gauge("leader", "1 while this process is the leader of the service, else 0")
        self.circuit_breaker_open: Final = self._gauge(
            "circuit_breaker_open", "1 while the circuit breaker of a kind is open and pauses deletions, else 0", "kind"
        )
        self.circuit_breaker_paused_total: Final = self._counter(
            "circuit_breaker_paused", "Deletions paused by an open circuit breaker", "kind"
        )
        self.queue_depth: Final = self._observed("queue_depth", "Keys in the work queue, waiting or running", "queue")
        self.queue_oldest_seconds: Final = self._observed(
            "queue_oldest_seconds", "Age of the oldest waiting key in seconds", "queue"
        )
        self.objects: Final = self._observed(
            "objects",
            "Objects whose status the service writes, by the state of their conditions",
            "resource",
            "watch",
            "state",
        )
        self.watch_staleness_seconds: Final = self._observed(
            "watch_staleness_seconds",
            "Time in seconds since a watch last received an event or bookmark; watch names the selection of objects",
            "resource",
            "watch",
        )
        self.subscription_staleness_seconds: Final = self._observed(
            "subscription_staleness_seconds",
            "Time in seconds since the loop of a subscription last made progress",
            "subscription",
        )
        self.lattice_forwarded_events_total: Final = self._counter(
            "lattice_forwarded_events", "Lattice events forwarded to the stream TRELLIS_LATTICE", "lattice", "event"
        )
        self.lattice_forwarder_lag_messages: Final = self._observed(
            "lattice_forwarder_lag_messages", "Lattice events not forwarded yet; -1 if unknown", *_OF_STREAM
        )
        self.lattice_forwarder_lag_seconds: Final = self._observed(
            "lattice_forwarder_lag_seconds",
            "Age in seconds of the oldest lattice event not forwarded yet; events older than 70 s are lost",
            *_OF_STREAM,
        )
        self.lattice_seconds_since_last_message: Final = self._observed(
            "lattice_seconds_since_last_message", "Time in seconds since the last message of a lattice", *_OF_LATTICE
        )
        self.lattice_applications: Final = self._observed(
            "lattice_applications", "Deployed applications of a lattice", *_OF_LATTICE
        )
        self.lattice_services: Final = self._observed(
            "lattice_services", "Reflected Services of a lattice", *_OF_LATTICE
        )
        self.secrets_requests_total: Final = self._counter(
            "secrets_requests", "Answered requests for secrets; outcome is granted or the error", "outcome"
        )
        self.secrets_dropped_total: Final = self._counter(
            "secrets_dropped", "Requests for secrets without an answer", "reason"
        )
        self.secrets_request_seconds: Final = Histogram(
            "trellis_secrets_request_seconds",
            "Duration in seconds from the arrival of a request for a secret to its answer",
            ("service",),
            buckets=_HANDLER_BUCKETS,
            registry=self.registry,
        )
        self.secrets_in_progress: Final = self._gauge(
            "secrets_in_progress", "Requests for secrets in progress or waiting"
        )
        self.secrets_connections: Final = self._gauge(
            "secrets_connections", "Lattice connections that receive requests for secrets, by state", "state"
        )
        self.secrets_audit_dropped_total: Final = self._counter(
            "secrets_audit_dropped", "Events about secrets that were not published and are only in the log"
        )
        self.controllers: Final = self._gauge("controllers", "WasmControllers by state", "state")
        self.controllers_resident_bytes: Final = self._gauge(
            "controllers_resident_bytes", "Memory of the WasmControllers that are not suspended, in bytes"
        )
        self.controllers_pending_keys: Final = self._gauge(
            "controllers_pending_keys", "Objects waiting for a call of a WasmController"
        )
        self.controllers_oldest_seconds: Final = self._gauge(
            "controllers_oldest_seconds", "Age in seconds of the oldest object waiting for a call of a WasmController"
        )
        self.controller_wake_seconds: Final = self._short(
            "controller_wake_seconds", "Duration of restoring a WasmController from its snapshot, in seconds"
        )
        self.controller_call_seconds: Final = self._short(
            "controller_call_seconds",
            "Duration of a call of a WasmController in seconds, without waiting for Kubernetes",
        )
        self.controller_suspends_total: Final = self._counter(
            "controller_suspends", "Suspensions of WasmControllers to disk"
        )
        self.controller_cold_starts_total: Final = self._counter(
            "controller_cold_starts", "Cold starts of WasmControllers"
        )
        self.controllers_disk_full: Final = self._gauge(
            "controllers_disk_full", "1 while the data directory of WasmControllers is not writable, else 0"
        )
        self.controller_disk_failures_total: Final = self._counter(
            "controller_disk_failures", "Failed writes to the data directory of WasmControllers"
        )
        self.controller_faults_total: Final = self._counter(
            "controller_faults", "Calls of WasmControllers that ended in a trap or exceeded a limit", "reason"
        )
        self.controller_host_calls_total: Final = self._counter(
            "controller_host_calls",
            "Requests of WasmControllers to Kubernetes; outcome is ok or the reason of the error",
            "op",
            "outcome",
        )
        self.controller_log_lines_left_out_total: Final = self._counter(
            "controller_log_lines_left_out", "Log lines of WasmControllers dropped by the rate limit"
        )
        self.lattice_application_objects: Final = self._observed(
            "lattice_application_objects", "Application objects of a lattice by phase", *_OF_LATTICE, "phase"
        )
        self.lattice_synced_age_seconds: Final = self._observed(
            "lattice_synced_age_seconds",
            "Time in seconds since the applications of a lattice were last completely read from wadm",
            *_OF_LATTICE,
        )
        self.lattice_owned: Final = self._observed(
            "lattice_owned", "1 while this cluster owns the applications of a lattice, else 0", *_OF_LATTICE
        )
        self.lattice_connected: Final = self._observed(
            "lattice_connected", "1 while connected to the NATS of a lattice, else 0", *_OF_LATTICE
        )
        self.wasmcloud_objects: Final = self._observed(
            "wasmcloud_objects", "Objects of wasmCloud v2 by kind and health", "kind", "health"
        )
        self.wasmcloud_operator_working: Final = self._observed(
            "wasmcloud_operator_working",
            "1 while the runtime-operator of wasmCloud v2 records heartbeats, 0 while it does not, -1 if unknown",
        )
        self.wasmcloud_heartbeats_total: Final = self._counter(
            "wasmcloud_heartbeats", "Received heartbeats of hosts of wasmCloud v2"
        )
        self.wasmcloud_heartbeats_connected: Final = self._observed(
            "wasmcloud_heartbeats_connected", "1 while heartbeats of hosts of wasmCloud v2 are received, else 0"
        )
        self.wasmcloud_hosts_reporting: Final = self._observed(
            "wasmcloud_hosts_reporting", "Hosts of wasmCloud v2 with a heartbeat in the last two intervals"
        )
        self.wasmcloud_hosts_unreadable: Final = self._observed(
            "wasmcloud_hosts_unreadable", "Hosts of wasmCloud v2 whose last heartbeat cannot be parsed"
        )
        self.wasmcloud_host_cpu_ratio: Final = self._observed(
            "wasmcloud_host_cpu_ratio", "Used share of the CPUs of a host of wasmCloud v2, 0 to 1", *_OF_HOST
        )
        self.wasmcloud_host_memory_free_bytes: Final = self._observed(
            "wasmcloud_host_memory_free_bytes", "Free memory of a host of wasmCloud v2 in bytes", *_OF_HOST
        )
        self.wasmcloud_host_memory_total_bytes: Final = self._observed(
            "wasmcloud_host_memory_total_bytes", "Memory of a host of wasmCloud v2 in bytes", *_OF_HOST
        )
        self.wasm_pods: Final = self._gauge(
            "wasm_pods",
            "Pods of the RuntimeClasses of Shims, by handler, node (empty until scheduled) and state",
            "handler",
            "node",
            "state",
        )
        self.wasm_pod_restarts_total: Final = self._counter(
            "wasm_pod_restarts", "Restarts of containers of the pods of the RuntimeClasses of Shims", "handler"
        )
        self.rollouts_halted: Final = self._gauge("rollouts_halted", "Shims whose rollout is halted by failures")
        self.part_ready: Final = self._gauge(
            "part_ready", "1 while a component that readiness depends on is ready, else 0", "part"
        )
        self.event_loop_lag_seconds: Final = Gauge(
            "trellis_event_loop_lag_seconds",
            "Maximum delay of the event loop in seconds since the last scrape",
            registry=self.registry,
        )
        Gauge(
            "trellis_build_info", "Constant 1 with the version as label", ("version",), registry=self.registry
        ).labels(trellis_version()).set(1)

    def watch_staleness(self, service: str, resource: str, watch: str, read: Read) -> Forget:
        """Export the staleness of a watch in seconds; a new callback of the same watch replaces the former.

        Returns:
            A function that ends the series, unless another callback has taken it over.
        """
        return self.watch_staleness_seconds.observe((service, resource, watch), read)

    def object_states(self, service: str, of: tuple[str, str], reads: Mapping[str, Read]) -> Forget:
        """Export the number of objects of a watch by their state; replaceable as for a watch.

        Args:
            service: service that writes the status of the objects.
            of: resource and watch.
            reads: callbacks by state.
        """
        return _all([self.objects.observe((service, *of, state), read) for state, read in reads.items()])

    def wasmcloud_v2(self, service: str, objects: Mapping[tuple[str, str], Read], working: Read) -> Forget:
        """Export the objects of wasmCloud v2 and the state of its operator; replaceable as for a watch.

        Args:
            service: service that watches them.
            objects: number of objects by kind and health.
            working: 1, 0, or -1 if unknown.
        """
        forgets = [self.wasmcloud_objects.observe((service, *of), read) for of, read in objects.items()]
        return _all([*forgets, self.wasmcloud_operator_working.observe((service,), working)])

    def wasmcloud_reception(self, service: str, connected: Read, received: Read, unreadable: Read) -> Forget:
        """Export the state of the reception of heartbeats of wasmCloud v2; replaceable as for a watch."""
        gauges = (self.wasmcloud_heartbeats_connected, self.wasmcloud_hosts_reporting, self.wasmcloud_hosts_unreadable)
        return self._observe(gauges, (service,), (connected, received, unreadable))

    def wasmcloud_host(self, service: str, of: tuple[str, str], reads: tuple[Read, Read, Read]) -> Forget:
        """Export the numbers of a host of wasmCloud v2; replaceable as for a watch.

        Args:
            service: service that receives its heartbeats.
            of: namespace and name of its Host.
            reads: used share of the CPUs, free memory and memory in bytes.
        """
        gauges = (
            self.wasmcloud_host_cpu_ratio,
            self.wasmcloud_host_memory_free_bytes,
            self.wasmcloud_host_memory_total_bytes,
        )
        return self._observe(gauges, (service, *of), reads)

    def subscription_staleness(self, service: str, subscription: str, read: Read) -> Forget:
        """Export the staleness of a subscription in seconds; replaceable as for a watch."""
        return self.subscription_staleness_seconds.observe((service, subscription), read)

    def queue(self, service: str, queue: str, depth: Read, oldest_seconds: Read) -> Forget:
        """Export the depth of a queue and the age of its oldest waiting key; replaceable as for a watch."""
        gauges = (self.queue_depth, self.queue_oldest_seconds)
        return self._observe(gauges, (service, queue), (depth, oldest_seconds))

    def lattice_lag(self, service: str, of: tuple[str, str, str], messages: Read, seconds: Read) -> Forget:
        """Export the lag of forwarding lattice events; replaceable as for a watch.

        Args:
            service: forwarding service.
            of: NATS address, lattice and stream.
            messages: number of messages not forwarded yet.
            seconds: age of the oldest one.
        """
        gauges = (self.lattice_forwarder_lag_messages, self.lattice_forwarder_lag_seconds)
        return self._observe(gauges, (service, *of), (messages, seconds))

    def lattice(
        self, service: str, of: tuple[str, str, str], since_last_message: Read, applications: Read, services: Read
    ) -> Forget:
        """Export the age of the last message and the object counts of a lattice; replaceable as for a watch.

        Args:
            service: service that follows the lattice.
            of: NATS address, lattice name, and lattice ID (unique among accounts).
            since_last_message: seconds since the last message.
            applications: number of deployed applications.
            services: number of reflected Services.
        """
        gauges = (self.lattice_seconds_since_last_message, self.lattice_applications, self.lattice_services)
        return self._observe(gauges, (service, *of), (since_last_message, applications, services))

    def kept_lattice(self, service: str, of: tuple[str, str, str], reads: KeptReads) -> Forget:
        """Export the state of the Application objects of a lattice; replaceable as for a watch.

        Args:
            service: service that owns the objects.
            of: as in ``lattice``.
            reads: callbacks.
        """
        gauges = (self.lattice_synced_age_seconds, self.lattice_owned, self.lattice_connected)
        lattice = self._observe(gauges, (service, *of), (reads.synced_age, reads.owned, reads.linked))
        objects = self.lattice_application_objects
        return _all([lattice, *(objects.observe((service, *of, phase), read) for phase, read in reads.phases.items())])

    def _observe(self, gauges: tuple[ObservedGauge, ...], labels: tuple[str, ...], reads: tuple[Read, ...]) -> Forget:
        return _all([gauge.observe(labels, read) for gauge, read in zip(gauges, reads, strict=True)])

    def _short(self, name: str, documentation: str) -> Histogram:
        return Histogram(f"trellis_{name}", documentation, ("service",), buckets=_SHORT_BUCKETS, registry=self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"trellis_{name}_total", documentation, ("service", *labels), registry=self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(f"trellis_{name}", documentation, ("service", *labels), registry=self.registry)

    def _observed(self, name: str, documentation: str, *labels: str) -> ObservedGauge:
        return ObservedGauge(f"trellis_{name}", documentation, ("service", *labels), self.registry)


def _all(forgets: list[Forget]) -> Forget:
    def forget() -> None:
        for item in forgets:
            item()

    return forget


@functools.cache
def process_metrics() -> Metrics:
    """Return the metrics of this process, created at the first call, with memory, CPU, files and Python version."""
    metrics = Metrics()
    ProcessCollector(registry=metrics.registry)
    PlatformCollector(registry=metrics.registry)
    return metrics
