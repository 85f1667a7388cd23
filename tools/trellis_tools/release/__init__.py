"""Builds, pushes, signs and verifies a release: images for all platforms, Python packages, the Helm chart."""
