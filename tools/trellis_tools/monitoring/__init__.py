"""The Grafana dashboard and the table of metrics, generated from the metrics.

In: ``trellis.telemetry.metrics`` and the table of panels. Out: files under ``deploy`` and a table in a page, by
``make generate``. No service imports it.
"""
