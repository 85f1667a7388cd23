"""The bus: events over NATS JetStream, and the keyed queue that work goes through.

``bus`` is what services use; ``queue`` knows nothing of NATS. Everything JetStream stays inside this package.
"""
