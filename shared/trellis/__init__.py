"""What every Trellis service stands on: events, bus, Kubernetes access, leadership, telemetry, health.

Services import this package; it imports no service.
"""
