"""Limits: circuit breakers, rates, backoff."""
