"""``trellis demo``: Trellis provisions nodes of a local cluster, or of the cluster in the current context.

``command`` is the command line, ``target`` the cluster, ``services`` the process of the services, ``watching`` the
measurements, ``display`` the progress, ``report`` the final report. Needs the extra ``local``.
"""
