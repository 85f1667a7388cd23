"""``trellis demo``: the services at work, from nothing to provisioned nodes, on this machine or in the user's cluster.

``command`` is the command line, ``target`` where it runs, ``services`` the process under test, ``watching`` what is
measured, ``display`` what is seen on the way, ``report`` what is shown at the end. Needs the extra ``local``.
"""
