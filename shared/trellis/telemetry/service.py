"""The telemetry of one service: its tracer and its metrics.

In: the name of the service, the cluster, an optional OTLP endpoint. Out: spans to a collector, metrics to the registry.
Called by ``create_app`` of each service and by tests. Invariant: nothing is exported unless an endpoint is set; the
global tracer provider is not used, so that several services share a process under their own names.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import TraceFlags, Tracer, use_span
from opentelemetry.util.types import Attributes

from trellis.telemetry.derived import FIRST, Generator, ids_of
from trellis.telemetry.export import ReportingExporter, otlp_processor
from trellis.telemetry.logs import get_logger
from trellis.telemetry.metrics import Metrics, process_metrics, trellis_version
from trellis.telemetry.tracing import TraceContext

ATTRIBUTE_CLUSTER: Final = "trellis.cluster"

_log = get_logger(__name__)


class _ClusterAttribute(SpanProcessor):
    """Sets the cluster on each span: the resource is created before the name of the cluster is known."""

    def __init__(self, cluster: str | None) -> None:
        self.cluster = cluster

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Set the attribute once the cluster is known."""
        del parent_context
        if self.cluster is not None:
            span.set_attribute(ATTRIBUTE_CLUSTER, self.cluster)


class Telemetry:
    """Tracer and metrics of one service; a process can have several. Created by :func:`setup`."""

    def __init__(
        self,
        service: str,
        provider: TracerProvider,
        metrics: Metrics,
        cluster: str | None,
        exporter: ReportingExporter | None,
    ) -> None:
        self.service: Final = service
        self.metrics: Final = metrics
        self.tracer: Final[Tracer] = provider.get_tracer("trellis", trellis_version())
        self._provider = provider
        self._exporter = exporter
        self._attribute = _ClusterAttribute(cluster)
        provider.add_span_processor(self._attribute)

    @property
    def cluster(self) -> str | None:
        """Name of the cluster; spans that start after it is set have it as ``trellis.cluster``."""
        return self._attribute.cluster

    @cluster.setter
    def cluster(self, cluster: str | None) -> None:
        self._attribute.cluster = cluster

    def trace_of(self, cause: str) -> TraceContext:
        """Return the trace of a change, the same in every process: ``cause`` is its ``uid/resourceVersion``.

        The position in it is its first span, the root of the trace, which one service records (:meth:`begin`).
        """
        ids = ids_of(cause)
        sampled = self._provider.sampler.should_sample(Context(), ids.trace, "").decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags.RANDOM_TRACE_ID | (TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return TraceContext(f"00-{ids.trace:032x}-{ids.span:016x}-{flags:02x}")

    @contextlib.contextmanager
    def begin(
        self, name: str, cause: str, *, start_ns: int | None = None, attributes: Attributes = None
    ) -> Iterator[None]:
        """Record the first span of the trace of a change, as the current span until the block ends.

        ``cause`` as in :meth:`trace_of`; ``start_ns``: time of the change in Unix nanoseconds, None for now.
        """
        token = FIRST.set(ids_of(cause))
        try:
            span = self.tracer.start_span(name, context=Context(), start_time=start_ns, attributes=attributes)
        finally:
            FIRST.reset(token)
        with use_span(span, end_on_exit=True):
            yield

    async def shutdown(self, seconds: float = 5.0) -> None:
        """Send the remaining spans within ``seconds``; later ones are dropped with a warning.

        Never raises.
        """
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def close() -> None:
            try:
                if self._exporter is not None:
                    self._exporter.give_up_if_failing()
                self._provider.shutdown()
            finally:
                # After a timeout the loop can be closed already, because the process is exiting.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(done.set)

        # A daemon thread, not the executor of the loop: a stalled collector must not delay the exit of the process.
        threading.Thread(target=close, name=f"telemetry-shutdown-{self.service}", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            _log.warning(
                "trace export did not finish before the shutdown, dropping the last spans", service=self.service
            )


def setup(
    service: str,
    *,
    cluster: str | None = None,
    otlp_endpoint: str | None = None,
    sample_ratio: float | None = None,
    span_exporters: Sequence[SpanExporter] = (),
    metrics: Metrics | None = None,
) -> Telemetry:
    """Create the telemetry of a service.

    Args:
        service: name with underscores, ``node_watcher``; spans have ``trellis-node-watcher``.
        cluster: name of the cluster if it is already known, otherwise set ``Telemetry.cluster`` later.
        otlp_endpoint: ``http://host:4318``; nothing is sent without one.
        sample_ratio: recorded share of the traces that start here, 0 to 1; None: as the environment sets it.
        span_exporters: further exporters, called at the end of each span (tests, demo).
        metrics: registry of the metrics; by default that of the process.
    """
    attributes: dict[str, str] = {
        "service.name": f"trellis-{service.replace('_', '-')}",
        "service.namespace": "trellis",
        "service.version": trellis_version(),
    }
    if cluster is not None:
        attributes["k8s.cluster.name"] = cluster
    sampler = _sampler(sample_ratio, exported=bool(otlp_endpoint or span_exporters))
    # Without the exit handler: callers call shutdown(), and that of the SDK blocks for up to 30 s.
    resource = Resource.create(attributes)
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False, id_generator=Generator())
    exporter = None
    if otlp_endpoint:
        processor, exporter = otlp_processor(otlp_endpoint)
        provider.add_span_processor(processor)
    for span_exporter in span_exporters:
        provider.add_span_processor(SimpleSpanProcessor(span_exporter))
    return Telemetry(service, provider, metrics or process_metrics(), cluster, exporter)


def _sampler(ratio: float | None, *, exported: bool) -> Sampler | None:
    """Return the sampler; None is the default of the SDK, which follows OTEL_TRACES_SAMPLER.

    The service that starts a trace decides for the whole trace: a share of whole traces is sent, never parts of each.
    """
    if not exported:
        # Without an exporter no span is recorded; its IDs are still created, for logs and spans of other services.
        return ALWAYS_OFF
    return None if ratio is None else ParentBased(TraceIdRatioBased(ratio))
