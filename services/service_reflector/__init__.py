"""Reflects applications as Services: creates Services and EndpointSlices for listeners in a lattice.

Consumes: events and answers of wadm, heartbeats of hosts, WasmCloudHostConfigs and their pods, its own Services and
EndpointSlices. Publishes: ``service.reflected``, ``service.removed``. Owns (is the only writer of): reflected Services,
their EndpointSlices and HTTPRoutes.
"""
