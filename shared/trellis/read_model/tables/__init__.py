"""Rows of tables: nodes, applications, controllers, rollouts. Pure."""
