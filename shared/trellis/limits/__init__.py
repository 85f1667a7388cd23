"""Limits: circuit breakers, rates, backoff, memory of caches."""
