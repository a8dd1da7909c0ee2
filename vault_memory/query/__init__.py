"""Ask the memory: light and read-only.

::

    from vault_memory.query import search
    result = search("why did we move to pgvector", k=5)

``search`` is the function of the module of the same name; the import below binds it over the module. Nothing
heavy may be imported in this package (an architecture test holds that): a query is a process of its own, and an
agent waits for it. psycopg and the adapters are imported where they are first used.
"""

from vault_memory.query.search import search

__all__ = ["search"]
