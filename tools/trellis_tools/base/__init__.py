"""Writes ``deploy/base`` from the Helm chart."""
