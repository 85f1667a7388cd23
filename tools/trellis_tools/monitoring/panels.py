"""The panels of the dashboard by row: queries to Prometheus, and the units in Grafana.

Pure data. Called by ``dashboard``. Invariant: each expression uses only series of ``trellis.telemetry.metrics``, which
a test compares; ``$namespace`` is a variable of the dashboard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_HERE: Final = 'namespace=~"$namespace"'
_REFUSED: Final = f'(rate(trellis_kube_requests_total{{{_HERE}, code=~"4..|5..|error"}}[$__rate_interval]))'


@dataclass(frozen=True, slots=True)
class Panel:
    """A time series, or single values with ``stat``. ``queries``: expression and legend; ``unit``: name in Grafana."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stat: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and its panels."""

    title: str
    panels: tuple[Panel, ...]


def _sum(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({metric}{{{_HERE}}})"


def _max(metric: str, *by: str) -> str:
    return f"max by ({', '.join(by)}) ({metric}{{{_HERE}}})"


def _rate(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({metric}{{{_HERE}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, *by: str) -> str:
    buckets = f"sum by (le{''.join(f', {label}' for label in by)}) (rate({metric}_bucket{{{_HERE}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})"


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "Health",
        (
            Panel(
                "Not ready",
                ((f"min by (service, part) (trellis_part_ready{{{_HERE}}}) == 0", "{{service}}: {{part}}"),),
                stat=True,
                about="Parts that are not ready in at least one replica; empty if all are ready.",
            ),
            Panel(
                "Leaders",
                ((_sum("trellis_leader", "service"), "{{service}}"),),
                stat=True,
                about="Replicas that hold the Lease of a service: one per service.",
            ),
            Panel("Versions", ((_sum("trellis_build_info", "version"), "{{version}}"),), stat=True),
            Panel("Event loop lag", ((_max("trellis_event_loop_lag_seconds", "pod"), "{{pod}}"),), "s"),
            Panel("Memory", ((_max("process_resident_memory_bytes", "pod"), "{{pod}}"),), "bytes"),
            Panel("CPU", ((_rate("process_cpu_seconds_total", "pod"), "{{pod}}"),)),
        ),
    ),
    Row(
        "Work",
        (
            Panel("Queued keys", ((_sum("trellis_queue_depth", "service", "queue"), "{{service}} {{queue}}"),)),
            Panel(
                "Oldest queued key",
                ((_max("trellis_queue_oldest_seconds", "service", "queue"), "{{service}} {{queue}}"),),
                "s",
                about="A key that fails repeatedly counts from its first failure.",
            ),
            Panel(
                "Run duration, 95th percentile",
                ((_quantile(0.95, "trellis_handler_seconds", "service"), "{{service}}"),),
                "s",
            ),
            Panel("Failed runs", ((_rate("trellis_retries_total", "service", "queue"), "{{service}} {{queue}}"),)),
            Panel(
                "API server requests",
                ((_rate("trellis_kube_requests_total", "service", "verb"), "{{service}} {{verb}}"),),
                "reqps",
            ),
            Panel(
                "API server errors",
                (
                    (
                        "sum by (service, resource, code) " + _REFUSED,
                        "{{service}} {{resource}} {{code}}",
                    ),
                ),
                "reqps",
                about="404 and 409 are normal: the object was deleted, or another client changed it first.",
            ),
        ),
    ),
    Row(
        "Bus and watches",
        (
            Panel("Events published", ((_rate("trellis_events_published_total", "type"), "{{type}}"),)),
            Panel("Events received", ((_rate("trellis_events_received_total", "type"), "{{type}}"),)),
            Panel(
                "Dead letters",
                ((_sum("trellis_dead_letters_total", "service", "reason"), "{{service}} {{reason}}"),),
                about="Since the start of each process.",
            ),
            Panel(
                "Events of an unsupported version",
                ((_rate("trellis_events_unsupported_version_total", "service", "type"), "{{type}}"),),
            ),
            Panel(
                "Objects by state",
                ((_max("trellis_objects", "resource", "watch", "state"), "{{watch}} {{state}}"),),
                about="By the conditions Ready, Reconciling and Stalled.",
            ),
            Panel(
                "Watch staleness",
                ((_max("trellis_watch_staleness_seconds", "service", "watch"), "{{service}} {{watch}}"),),
                "s",
            ),
            Panel(
                "Subscription staleness",
                (
                    (
                        _max("trellis_subscription_staleness_seconds", "service", "subscription"),
                        "{{service}} {{subscription}}",
                    ),
                ),
                "s",
            ),
        ),
    ),
    Row(
        "Rollouts and circuit breakers",
        (
            Panel("Halted rollouts", ((_max("trellis_rollouts_halted", "service"), "Shims"),), stat=True),
            Panel(
                "Open circuit breakers",
                ((_max("trellis_circuit_breaker_open", "service", "kind"), "{{kind}}"),),
                stat=True,
            ),
            Panel(
                "Paused deletions", ((_rate("trellis_circuit_breaker_paused_total", "service", "kind"), "{{kind}}"),)
            ),
        ),
    ),
    Row(
        "Wasm pods",
        (
            Panel(
                "Pods",
                ((_sum("trellis_wasm_pods", "handler", "state"), "{{handler}} {{state}}"),),
                about="Pods of the RuntimeClasses of Shims. `trellis explain pod/NAME` shows why one does not run.",
            ),
            Panel(
                "Nodes with failed pods",
                (
                    (
                        f'topk(10, sum by (node, handler) (trellis_wasm_pods{{{_HERE}, state="failed"}}) > 0)',
                        "{{node}} {{handler}}",
                    ),
                ),
                about="Pods that have a cause; without a node, none is found for them.",
            ),
            Panel("Restarts per second", ((_rate("trellis_wasm_pod_restarts_total", "handler"), "{{handler}}"),)),
        ),
    ),
    Row(
        "Lattices",
        (
            Panel(
                "Applications",
                ((_max("trellis_lattice_application_objects", "lattice", "phase"), "{{lattice}} {{phase}}"),),
            ),
            Panel(
                "Deployed applications and their Services",
                (
                    (_max("trellis_lattice_applications", "lattice"), "{{lattice}} deployed"),
                    (_max("trellis_lattice_services", "lattice"), "{{lattice}} Services"),
                ),
            ),
            Panel(
                "Time since the last message",
                ((_max("trellis_lattice_seconds_since_last_message", "lattice"), "{{lattice}}"),),
                "s",
            ),
            Panel(
                "Lattice connections and ownership",
                (
                    (_max("trellis_lattice_connected", "lattice"), "{{lattice}} connected"),
                    (_max("trellis_lattice_owned", "lattice"), "{{lattice}} owned"),
                ),
            ),
            Panel(
                "Age of the last complete list from wadm",
                ((_max("trellis_lattice_synced_age_seconds", "lattice"), "{{lattice}}"),),
                "s",
            ),
            Panel(
                "Lattice event forwarder lag",
                (
                    (_max("trellis_lattice_forwarder_lag_messages", "lattice", "stream"), "{{lattice}} {{stream}}"),
                    (
                        _max("trellis_lattice_forwarder_lag_seconds", "lattice", "stream"),
                        "{{lattice}} {{stream}}, seconds",
                    ),
                ),
            ),
            Panel(
                "Lattice events forwarded",
                ((_rate("trellis_lattice_forwarded_events_total", "lattice", "event"), "{{event}}"),),
            ),
        ),
    ),
    Row(
        "Secrets",
        (
            Panel(
                "Secret requests answered",
                ((_rate("trellis_secrets_requests_total", "outcome"), "{{outcome}}"),),
                "reqps",
            ),
            Panel(
                "Secret request duration, 95th percentile",
                ((_quantile(0.95, "trellis_secrets_request_seconds"), "95th percentile"),),
                "s",
            ),
            Panel("Secret requests dropped", ((_rate("trellis_secrets_dropped_total", "reason"), "{{reason}}"),)),
            Panel("Secret requests in progress", ((_sum("trellis_secrets_in_progress", "pod"), "{{pod}}"),)),
            Panel("Lattice connections for secrets", ((_sum("trellis_secrets_connections", "state"), "{{state}}"),)),
            Panel("Audit events not published", ((_sum("trellis_secrets_audit_dropped_total", "pod"), "{{pod}}"),)),
        ),
    ),
    Row(
        "Console",
        (
            Panel(
                "Requests", ((_rate("trellis_console_requests_total", "route", "code"), "{{route}} {{code}}"),), "reqps"
            ),
            Panel(
                "Viewers",
                (
                    (_sum("trellis_console_viewers", "pod"), "{{pod}} viewers"),
                    (_sum("trellis_console_sessions", "pod"), "{{pod}} sessions"),
                ),
            ),
            Panel("Streams", ((_sum("trellis_console_streams", "stream"), "{{stream}}"),)),
            Panel(
                "Streams closed early",
                ((_rate("trellis_console_streams_cut_total", "stream", "reason"), "{{stream}} {{reason}}"),),
            ),
        ),
    ),
    Row(
        "wasmCloud v2",
        (
            Panel(
                "Objects",
                ((_sum("trellis_wasmcloud_objects", "kind", "health"), "{{kind}} {{health}}"),),
                about="By health, as `trellis explain` computes it.",
            ),
            Panel(
                "runtime-operator",
                ((_max("trellis_wasmcloud_operator_working", "pod"), "{{pod}}"),),
                stat=True,
                about="1: it records heartbeats; 0: it does not; -1: unknown.",
            ),
            Panel(
                "Heartbeats",
                (
                    (_sum("trellis_wasmcloud_hosts_reporting", "pod"), "hosts with a heartbeat"),
                    (_sum("trellis_wasmcloud_hosts_unreadable", "pod"), "hosts with an unreadable one"),
                    (_sum("trellis_wasmcloud_heartbeats_connected", "pod"), "1 while connected"),
                    (_rate("trellis_wasmcloud_heartbeats_total", "pod"), "heartbeats per second"),
                ),
                about="Only with TRELLIS_V2_NATS.",
            ),
            Panel("CPU of hosts", ((_max("trellis_wasmcloud_host_cpu_ratio", "host"), "{{host}}"),), "percentunit"),
            Panel(
                "Memory of hosts",
                (
                    (_max("trellis_wasmcloud_host_memory_free_bytes", "host"), "{{host}} free"),
                    (_max("trellis_wasmcloud_host_memory_total_bytes", "host"), "{{host}} total"),
                ),
                "bytes",
            ),
        ),
    ),
    Row(
        "Wasm controllers",
        (
            Panel("Controllers", ((_sum("trellis_controllers", "state"), "{{state}}"),)),
            Panel(
                "Memory of active controllers",
                ((_sum("trellis_controllers_resident_bytes", "pod"), "{{pod}}"),),
                "bytes",
            ),
            Panel(
                "Wake and call duration, 95th percentile",
                (
                    (_quantile(0.95, "trellis_controller_wake_seconds"), "wake"),
                    (_quantile(0.95, "trellis_controller_call_seconds"), "call"),
                ),
                "s",
            ),
            Panel(
                "Suspends, cold starts and disk failures",
                (
                    (_rate("trellis_controller_suspends_total", "service"), "suspends"),
                    (_rate("trellis_controller_cold_starts_total", "service"), "cold starts"),
                    (_rate("trellis_controller_disk_failures_total", "service"), "disk failures"),
                ),
            ),
            Panel(
                "Queued objects",
                (
                    (_sum("trellis_controllers_pending_keys", "pod"), "{{pod}}"),
                    (_max("trellis_controllers_oldest_seconds", "pod"), "{{pod}}, oldest in seconds"),
                ),
            ),
            Panel("Failed calls", ((_rate("trellis_controller_faults_total", "reason"), "{{reason}}"),)),
            Panel(
                "API server requests of controllers",
                ((_rate("trellis_controller_host_calls_total", "op", "outcome"), "{{op}} {{outcome}}"),),
                "reqps",
            ),
            Panel("Snapshot disk full", ((_max("trellis_controllers_disk_full", "pod"), "{{pod}}"),), stat=True),
            Panel("Dropped log lines", ((_rate("trellis_controller_log_lines_left_out_total", "pod"), "{{pod}}"),)),
        ),
    ),
)
