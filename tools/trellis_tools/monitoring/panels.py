"""The panels of the dashboard, row by row: what is asked of Prometheus, and in which unit it is shown.

Pure data. Called by ``dashboard``. Invariant: each expression keeps to series that ``trellis.telemetry.metrics`` has,
which a test compares; ``$namespace`` is the dashboard's own variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_HERE: Final = 'namespace=~"$namespace"'
_REFUSED: Final = f'(rate(trellis_kube_requests_total{{{_HERE}, code=~"4..|5..|error"}}[$__rate_interval]))'


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or with ``stat`` figures. ``queries``: expression and legend; ``unit``: Grafana's name of it."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stat: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

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
        "Is it well",
        (
            Panel(
                "Not ready",
                ((f"min by (service, part) (trellis_part_ready{{{_HERE}}}) == 0", "{{service}}: {{part}}"),),
                stat=True,
                about="Parts that some replica is not ready because of; empty when all is well.",
            ),
            Panel("Leaders", ((_sum("trellis_leader", "service"), "{{service}}"),), stat=True, about="One each."),
            Panel("Versions", ((_sum("trellis_build_info", "version"), "{{version}}"),), stat=True),
            Panel("Event loop late", ((_max("trellis_event_loop_lag_seconds", "pod"), "{{pod}}"),), "s"),
            Panel("Memory", ((_max("process_resident_memory_bytes", "pod"), "{{pod}}"),), "bytes"),
            Panel("CPU", ((_rate("process_cpu_seconds_total", "pod"), "{{pod}}"),)),
        ),
    ),
    Row(
        "Work",
        (
            Panel("Waiting", ((_sum("trellis_queue_depth", "service", "queue"), "{{service}} {{queue}}"),)),
            Panel(
                "Oldest work",
                ((_max("trellis_queue_oldest_seconds", "service", "queue"), "{{service}} {{queue}}"),),
                "s",
                about="What fails again and again counts from its first failure.",
            ),
            Panel("Runs, 95 %", ((_quantile(0.95, "trellis_handler_seconds", "service"), "{{service}}"),), "s"),
            Panel("Runs that failed", ((_rate("trellis_retries_total", "service", "queue"), "{{service}} {{queue}}"),)),
            Panel(
                "Requests to Kubernetes",
                ((_rate("trellis_kube_requests_total", "service", "verb"), "{{service}} {{verb}}"),),
                "reqps",
            ),
            Panel(
                "Refused by Kubernetes",
                (
                    (
                        "sum by (service, resource, code) " + _REFUSED,
                        "{{service}} {{resource}} {{code}}",
                    ),
                ),
                "reqps",
                about="404 and 409 belong to normal work: an object that is gone, or that somebody else changed first.",
            ),
        ),
    ),
    Row(
        "The bus, and what is heard",
        (
            Panel("Facts said", ((_rate("trellis_events_published_total", "type"), "{{type}}"),)),
            Panel("Facts heard", ((_rate("trellis_events_received_total", "type"), "{{type}}"),)),
            Panel(
                "Dead letters",
                ((_sum("trellis_dead_letters_total", "service", "reason"), "{{service}} {{reason}}"),),
                about="Since the start of each process.",
            ),
            Panel(
                "Facts of a later version",
                ((_rate("trellis_events_unsupported_version_total", "service", "type"), "{{type}}"),),
            ),
            Panel(
                "Watches, since they heard",
                ((_max("trellis_watch_staleness_seconds", "service", "watch"), "{{service}} {{watch}}"),),
                "s",
            ),
            Panel(
                "Subscriptions, since they asked",
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
        "Nodes, and what is held back",
        (
            Panel("Rollouts halted", ((_max("trellis_rollouts_halted", "service"), "Shims"),), stat=True),
            Panel("Breakers open", ((_max("trellis_circuit_breaker_open", "service", "kind"), "{{kind}}"),), stat=True),
            Panel("Deletions held", ((_rate("trellis_circuit_breaker_held_total", "service", "kind"), "{{kind}}"),)),
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
                "Deployed, and Services of them",
                (
                    (_max("trellis_lattice_applications", "lattice"), "{{lattice}} deployed"),
                    (_max("trellis_lattice_services", "lattice"), "{{lattice}} Services"),
                ),
            ),
            Panel("Silent", ((_max("trellis_lattice_seconds_since_last_message", "lattice"), "{{lattice}}"),), "s"),
            Panel(
                "Linked, owned",
                (
                    (_max("trellis_lattice_connected", "lattice"), "{{lattice}} linked"),
                    (_max("trellis_lattice_owned", "lattice"), "{{lattice}} owned"),
                ),
            ),
            Panel(
                "What wadm has, last complete",
                ((_max("trellis_lattice_synced_age_seconds", "lattice"), "{{lattice}}"),),
                "s",
            ),
            Panel(
                "Events that wait to be copied",
                (
                    (_max("trellis_lattice_forwarder_lag_messages", "lattice", "stream"), "{{lattice}} {{stream}}"),
                    (
                        _max("trellis_lattice_forwarder_lag_seconds", "lattice", "stream"),
                        "{{lattice}} {{stream}}, seconds",
                    ),
                ),
            ),
            Panel(
                "Events copied", ((_rate("trellis_lattice_forwarded_events_total", "lattice", "event"), "{{event}}"),)
            ),
        ),
    ),
    Row(
        "Secrets",
        (
            Panel("Answers", ((_rate("trellis_secrets_requests_total", "outcome"), "{{outcome}}"),), "reqps"),
            Panel("Answers, 95 %", ((_quantile(0.95, "trellis_secrets_request_seconds"), "95 %"),), "s"),
            Panel("Without an answer", ((_rate("trellis_secrets_dropped_total", "reason"), "{{reason}}"),)),
            Panel("In work", ((_sum("trellis_secrets_in_progress", "pod"), "{{pod}}"),)),
            Panel("Links", ((_sum("trellis_secrets_connections", "state"), "{{state}}"),)),
            Panel("Facts only in the log", ((_sum("trellis_secrets_audit_dropped_total", "pod"), "{{pod}}"),)),
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
                    (_sum("trellis_console_sessions", "pod"), "{{pod}} logged in"),
                ),
            ),
            Panel("Streams", ((_sum("trellis_console_streams", "stream"), "{{stream}}"),)),
            Panel(
                "Streams cut",
                ((_rate("trellis_console_streams_cut_total", "stream", "reason"), "{{stream}} {{reason}}"),),
            ),
        ),
    ),
    Row(
        "Controllers in Wasm",
        (
            Panel("Controllers", ((_sum("trellis_controllers", "state"), "{{state}}"),)),
            Panel("In memory", ((_sum("trellis_controllers_resident_bytes", "pod"), "{{pod}}"),), "bytes"),
            Panel(
                "Waking, 95 %, and a call",
                (
                    (_quantile(0.95, "trellis_controller_wake_seconds"), "wake"),
                    (_quantile(0.95, "trellis_controller_call_seconds"), "call"),
                ),
                "s",
            ),
            Panel(
                "To and from disk",
                (
                    (_rate("trellis_controller_suspends_total", "service"), "suspended"),
                    (_rate("trellis_controller_cold_starts_total", "service"), "booted"),
                    (_rate("trellis_controller_disk_failures_total", "service"), "not taken by the disk"),
                ),
            ),
            Panel(
                "Objects that wait",
                (
                    (_sum("trellis_controllers_pending_keys", "pod"), "{{pod}}"),
                    (_max("trellis_controllers_oldest_seconds", "pod"), "{{pod}}, oldest in seconds"),
                ),
            ),
            Panel("Calls ended", ((_rate("trellis_controller_faults_total", "reason"), "{{reason}}"),)),
            Panel(
                "Requests of guests",
                ((_rate("trellis_controller_host_calls_total", "op", "outcome"), "{{op}} {{outcome}}"),),
                "reqps",
            ),
            Panel("Disk full", ((_max("trellis_controllers_disk_full", "pod"), "{{pod}}"),), stat=True),
            Panel("Log lines left out", ((_rate("trellis_controller_log_lines_left_out_total", "pod"), "{{pod}}"),)),
        ),
    ),
)
