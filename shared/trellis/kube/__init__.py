"""Kubernetes: the one package that talks to the API server.

``client`` has the calls, ``informer`` the watches, ``leader`` the election, ``recorder`` the Events, ``errors`` what
can go wrong, ``resources`` the kinds. ``access`` alone knows the ``kubernetes`` package. For tests
``trellis_dev.fakes`` has the same client over an API server in memory. Importing this package imports none of them.
"""
