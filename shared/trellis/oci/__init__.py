"""Protocol of OCI registries, without IO: uses the standard library only, as the image of the installer does."""
