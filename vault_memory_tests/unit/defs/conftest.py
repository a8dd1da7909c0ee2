"""Fixtures of Dagster's side; imported here, because importing dagster takes most of a second."""

from vault_memory_tests.fixtures.dagster import world

__all__ = ["world"]
