"""The Dagster side: assets, partitions, sensors, jobs, resources, checks.

Belongs here: every import of dagster in this project, and translation of our errors to ``dagster.Failure``.
Does not: anything that the command line or a test could want without Dagster.
"""
