"""Decisions about workloads: owners of Wasm pods. Pure (ADR 123)."""
