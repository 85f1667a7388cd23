"""The answers that every backend of the secrets protocol must give: one table, for Trellis and for its peer.

In: a NATS server on which a backend answers, and a cluster it reads from (``world``). Out: for each case of ``table``
what came, and whether it is what the protocol asks for (``judging``). Invariant: nothing here is taken from
`secrets_backend`; the rules are the protocol's, as hosts and the peer's server have them.
"""
