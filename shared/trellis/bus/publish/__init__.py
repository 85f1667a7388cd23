"""Messages that are stored by JetStream, and whether they can be."""
