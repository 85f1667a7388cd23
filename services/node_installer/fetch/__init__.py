"""Downloads from registries and over HTTPS, and extraction of one shim from an archive."""
