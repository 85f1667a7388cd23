"""Bounds on what may be done at once: circuit breakers, rates, waits between attempts."""
