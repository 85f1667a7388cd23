"""The common base of all Trellis services: events, bus, Kubernetes access, leadership, telemetry, health.

Services import this package; it imports no service.
"""
