"""Requests of guests to Kubernetes, sent as the guest's account."""
