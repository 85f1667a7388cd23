"""Writes the CRDs and their JSON Schemas."""
