"""The Kubernetes client: the only package that connects to the API server.

``client`` has the calls, ``informer`` the watches, ``leader`` the election, ``recorder`` the Events, ``errors`` the
errors, ``resources`` the resource types. Only ``access`` uses the ``kubernetes`` package. For tests,
``trellis_dev.fakes`` has the same client with an in-memory API server. Importing this package imports none of them.
"""
