"""Messages of durable consumers: fetch, read, queue by key, acknowledge."""
