"""Messages of durable consumers: fetched, read, queued by key, acknowledged."""
