"""Reads from the cluster, the bus and Jaeger for pages and rows. The only part of the read model with IO."""
