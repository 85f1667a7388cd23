"""The bus: events over NATS JetStream, and the keyed work queue.

Services use ``bus``; ``queue`` does not depend on NATS. Only this package uses JetStream.
"""
