"""The walk of a note into the store: plan, scan, embed, persist, forget.

Belongs here: the order of the steps and what a failure in one means.
Does not: Dagster (``defs``), SQL and HTTP (``adapters``), rules about notes (``notes``).
"""
