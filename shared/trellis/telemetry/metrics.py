"""Every Prometheus metric of the process, in one registry, with the service as a label.

In: counts and callbacks from bus, kube and services. Out: ``registry``, which the health server renders as text.
Called by everything that has a ``Telemetry``. Invariant: a series has one meaning in every service; nothing is ever
registered twice, however many services share the process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
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

Read = Callable[[], float]
Forget = Callable[[], None]

_HANDLER_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SHORT_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30,
)  # fmt: skip
_OF_STREAM: Final = ("nats", "lattice", "stream")
_OF_LATTICE: Final = ("nats", "lattice", "mark")


@functools.cache
def trellis_version() -> str:
    """Return the installed version, ``unknown`` in a checkout that was never installed."""
    try:
        return version("trellis-wasm")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class KeptReads:
    """What is read of a lattice whose applications are kept. ``phases``: by phase how many; ``synced_age``: seconds.

    ``owned`` and ``linked``: 1 or 0.
    """

    phases: Mapping[str, Read]
    synced_age: Read
    owned: Read
    linked: Read


class Metrics(ConsoleMetrics):
    """The metrics by name, without their prefix ``trellis_``; each has the label ``service``.

    A test makes its own with ``Metrics()``; services share :func:`process_metrics`.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__(registry if registry is not None else CollectorRegistry())
        self._owners: dict[tuple[str, ...], object] = {}
        self._lock = threading.Lock()
        self.handler_seconds: Final = Histogram(
            "trellis_handler_seconds",
            "Duration of one run of a key of a queue",
            ("service", "queue"),
            buckets=_HANDLER_BUCKETS,
            registry=self.registry,
        )
        self.retries_total: Final = self._counter("retries", "Runs that failed and will be repeated", "queue")
        self.dead_letters_total: Final = self._counter("dead_letters", "Messages given up on", "reason")
        self.events_published_total: Final = self._counter("events_published", "Facts said on the bus", "type")
        self.events_received_total: Final = self._counter("events_received", "Facts heard on the bus", "type")
        self.events_unsupported_version_total: Final = self._counter(
            "events_unsupported_version",
            "Facts left alone, as they are of a later version than the type read here",
            "type",
        )
        self.kube_requests_total: Final = self._counter(
            "kube_requests",
            "Requests to the Kubernetes API; code is the HTTP status or 'error'",
            "verb",
            "resource",
            "code",
        )
        self.leader: Final = self._gauge("leader", "1 while this process leads the service")
        self.circuit_breaker_open: Final = self._gauge(
            "circuit_breaker_open", "1 while destructions of a kind are held", "kind"
        )
        self.circuit_breaker_held_total: Final = self._counter(
            "circuit_breaker_held", "Destructions that an open breaker held", "kind"
        )
        self.queue_depth: Final = self._gauge("queue_depth", "Keys that wait or run", "queue")
        self.queue_oldest_seconds: Final = self._gauge("queue_oldest_seconds", "Age of the oldest waiting key", "queue")
        self.watch_staleness_seconds: Final = self._gauge(
            "watch_staleness_seconds",
            "Time since a watch last heard anything, bookmarks included; watch says which objects of the resource",
            "resource",
            "watch",
        )
        self.subscription_staleness_seconds: Final = self._gauge(
            "subscription_staleness_seconds", "Time since a subscription's loop last made progress", "subscription"
        )
        self.lattice_forwarded_events_total: Final = self._counter(
            "lattice_forwarded_events", "Events of lattices copied to the bus", "lattice", "event"
        )
        self.lattice_forwarder_lag_messages: Final = self._gauge(
            "lattice_forwarder_lag_messages", "Events of a lattice that wait to be copied; -1: not known", *_OF_STREAM
        )
        self.lattice_forwarder_lag_seconds: Final = self._gauge(
            "lattice_forwarder_lag_seconds",
            "Since when events of a lattice wait to be copied; they live 70 s",
            *_OF_STREAM,
        )
        self.lattice_seconds_since_last_message: Final = self._gauge(
            "lattice_seconds_since_last_message", "Time since a lattice last said or answered anything", *_OF_LATTICE
        )
        self.lattice_applications: Final = self._gauge(
            "lattice_applications", "Applications that a lattice has deployed", *_OF_LATTICE
        )
        self.lattice_services: Final = self._gauge(
            "lattice_services", "Services that mirror applications of a lattice", *_OF_LATTICE
        )
        self.secrets_requests_total: Final = self._counter(
            "secrets_requests", "Requests for secrets that were answered; outcome is granted or the error", "outcome"
        )
        self.secrets_dropped_total: Final = self._counter(
            "secrets_dropped", "Requests for secrets that got no answer", "reason"
        )
        self.secrets_request_seconds: Final = Histogram(
            "trellis_secrets_request_seconds",
            "From the arrival of a request for a secret to its answer",
            ("service",),
            buckets=_HANDLER_BUCKETS,
            registry=self.registry,
        )
        self.secrets_in_progress: Final = self._gauge(
            "secrets_in_progress", "Requests for secrets that wait or are in work"
        )
        self.secrets_connections: Final = self._gauge(
            "secrets_connections", "Connections to the NATS of lattices over which secrets are asked for", "state"
        )
        self.secrets_audit_dropped_total: Final = self._counter(
            "secrets_audit_dropped", "Facts about secrets that could not be said; the log has them"
        )
        self.controllers: Final = self._gauge("controllers", "Controllers in Wasm, by where they are", "state")
        self.controllers_resident_bytes: Final = self._gauge(
            "controllers_resident_bytes", "Memory of the controllers in Wasm that are not suspended"
        )
        self.controllers_pending_keys: Final = self._gauge(
            "controllers_pending_keys", "Objects that controllers in Wasm are still to be called for"
        )
        self.controllers_oldest_seconds: Final = self._gauge("controllers_oldest_seconds", "Age of the oldest of these")
        self.controller_wake_seconds: Final = self._short("controller_wake_seconds", "Bringing a guest back from disk")
        self.controller_call_seconds: Final = self._short(
            "controller_call_seconds", "A call of a guest, apart from what it waited for Kubernetes"
        )
        self.controller_suspends_total: Final = self._counter("controller_suspends", "Guests that were put to disk")
        self.controller_cold_starts_total: Final = self._counter("controller_cold_starts", "Guests that were booted")
        self.controllers_disk_full: Final = self._gauge(
            "controllers_disk_full", "1 while the disk does not take what controllers in Wasm leave in memory"
        )
        self.controller_disk_failures_total: Final = self._counter(
            "controller_disk_failures", "Writes of controllers in Wasm that the disk did not take"
        )
        self.controller_faults_total: Final = self._counter(
            "controller_faults", "Calls that a guest did not survive", "reason"
        )
        self.controller_host_calls_total: Final = self._counter(
            "controller_host_calls",
            "Requests of guests to Kubernetes; outcome is ok or the error's reason",
            "op",
            "outcome",
        )
        self.controller_log_lines_left_out_total: Final = self._counter(
            "controller_log_lines_left_out", "Lines of guests that were above what they may log"
        )
        self.lattice_application_objects: Final = self._gauge(
            "lattice_application_objects", "Applications in Kubernetes of a lattice, by phase", *_OF_LATTICE, "phase"
        )
        self.lattice_synced_age_seconds: Final = self._gauge(
            "lattice_synced_age_seconds",
            "Time since what wadm has of a lattice was last known to be complete",
            *_OF_LATTICE,
        )
        self.lattice_owned: Final = self._gauge(
            "lattice_owned", "1 while this cluster keeps a lattice's applications", *_OF_LATTICE
        )
        self.lattice_connected: Final = self._gauge(
            "lattice_connected", "1 while there is a connection to a lattice's NATS", *_OF_LATTICE
        )
        self.rollouts_halted: Final = self._gauge("rollouts_halted", "Shims whose rollout too many failures halted")
        self.part_ready: Final = self._gauge("part_ready", "1 while a part that readiness depends on works", "part")
        self.event_loop_lag_seconds: Final = Gauge(
            "trellis_event_loop_lag_seconds",
            "Longest time since the last scrape that the event loop was late",
            registry=self.registry,
        )
        Gauge("trellis_build_info", "Constant 1; the version", ("version",), registry=self.registry).labels(
            trellis_version()
        ).set(1)

    def watch_staleness(self, service: str, resource: str, watch: str, read: Read) -> Forget:
        """Read a watch's staleness in seconds at each scrape; a new callback of the same watch replaces the former.

        Returns:
            A function that ends the series, unless another callback has taken it over.
        """
        return self._observe((self.watch_staleness_seconds,), (service, resource, watch), (read,))

    def subscription_staleness(self, service: str, subscription: str, read: Read) -> Forget:
        """Read a subscription's staleness in seconds at each scrape; replaceable as a watch is."""
        return self._observe((self.subscription_staleness_seconds,), (service, subscription), (read,))

    def queue(self, service: str, queue: str, depth: Read, oldest_seconds: Read) -> Forget:
        """Read a queue's depth and the age of its oldest waiting key at each scrape; replaceable as a watch is."""
        gauges = (self.queue_depth, self.queue_oldest_seconds)
        return self._observe(gauges, (service, queue), (depth, oldest_seconds))

    def lattice_lag(self, service: str, of: tuple[str, str, str], messages: Read, seconds: Read) -> Forget:
        """Read how far behind a lattice's events are copied at each scrape; replaceable as a watch is.

        Args:
            service: who copies.
            of: the NATS it is on, the lattice, the stream.
            messages: how many wait.
            seconds: since when.
        """
        gauges = (self.lattice_forwarder_lag_messages, self.lattice_forwarder_lag_seconds)
        return self._observe(gauges, (service, *of), (messages, seconds))

    def lattice(
        self, service: str, of: tuple[str, str, str], silent: Read, applications: Read, services: Read
    ) -> Forget:
        """Read how long a lattice has been silent, and what it has, at each scrape; replaceable as a watch is.

        Args:
            service: who follows it.
            of: the NATS it is on, the lattice, what tells it from another account's of that name.
            silent: seconds.
            applications: how many are deployed.
            services: how many mirror them.
        """
        gauges = (self.lattice_seconds_since_last_message, self.lattice_applications, self.lattice_services)
        return self._observe(gauges, (service, *of), (silent, applications, services))

    def kept_lattice(self, service: str, of: tuple[str, str, str], reads: KeptReads) -> Forget:
        """Read how a lattice's applications are, and whether they are kept, at each scrape; replaceable as a watch is.

        Args:
            service: who keeps them.
            of: as in ``lattice``.
            reads: what is read.
        """
        gauges = (self.lattice_synced_age_seconds, self.lattice_owned, self.lattice_connected)
        forgets = [self._observe(gauges, (service, *of), (reads.synced_age, reads.owned, reads.linked))]
        for phase, read in reads.phases.items():
            forgets.append(self._observe((self.lattice_application_objects,), (service, *of, phase), (read,)))

        def forget() -> None:
            for one in forgets:
                one()

        return forget

    def _observe(self, gauges: tuple[Gauge, ...], labels: tuple[str, ...], reads: tuple[Read, ...]) -> Forget:
        key = (gauges[0]._name, *labels)  # noqa: SLF001 (the name has no public accessor)
        owner = object()

        def forget() -> None:
            with self._lock:
                if self._owners.get(key) is not owner:
                    return
                del self._owners[key]
                for gauge in gauges:
                    gauge.remove(*labels)

        with self._lock:
            self._owners[key] = owner
            for gauge, read in zip(gauges, reads, strict=True):
                gauge.labels(*labels).set_function(read)
        return forget

    def _short(self, name: str, documentation: str) -> Histogram:
        return Histogram(f"trellis_{name}", documentation, ("service",), buckets=_SHORT_BUCKETS, registry=self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"trellis_{name}_total", documentation, ("service", *labels), registry=self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(f"trellis_{name}", documentation, ("service", *labels), registry=self.registry)


@functools.cache
def process_metrics() -> Metrics:
    """Return the metrics of this process, made at the first call, with memory, CPU, files and the Python version."""
    metrics = Metrics()
    ProcessCollector(registry=metrics.registry)
    PlatformCollector(registry=metrics.registry)
    return metrics
