"""Registries of OCI images and artifacts, without IO: the standard library alone, as the installer's image has it."""
