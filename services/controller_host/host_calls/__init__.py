"""Requests of guests to Kubernetes, done as the guest's account."""
