"""What people look at: the Grafana dashboard and the table of metrics, written from the metrics themselves.

In: ``trellis.telemetry.metrics`` and the table of panels. Out: files under ``deploy`` and a table in a page, by
``make generate``. No service imports it.
"""
