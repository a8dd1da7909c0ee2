"""The outside world, one module a part: git, PostgreSQL, the embedding API, folders.

Belongs here: everything that opens a file, a socket or a process.
Does not: decisions about notes (``notes``) or the order of work (``ingest``).
"""
