"""Downloads: from registries and over HTTPS, and one shim out of an archive."""
