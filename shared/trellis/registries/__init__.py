"""The client for OCI registries and for single files at https addresses, bounded in bytes, time and reachable networks.

controller_host fetches modules with it, and ``trellis explain`` asks about images. The protocol is in ``trellis.oci``,
which imports the standard library only: the image of the installer copies it. This package sends the requests.
"""
