"""Pages of ``trellis explain``: one module for each kind. Pure."""
