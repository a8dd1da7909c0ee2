"""Results for tests, without a database."""

from vault_memory.query.search import Hit, Legs, SearchResult


def hit(**given):
    """A hit on a small note; keywords replace what matters to the test."""
    values = {
        "source": "01_Projects/x.md",
        "title": "x",
        "heading_path": "A > B",
        "level": 2,
        "start_line": 10,
        "end_line": 14,
        "score": 0.81,
        "legs": Legs(None, None),
        "flags": (),
        "stale": False,
        "text": "The pool was too small.",
        "chunk_id": "c1",
        "source_hash": "",
        "content_hash": "",
    }
    return Hit(**(values | given))


def result(*items, query="pool", notices=(), term_weights=None):
    """A result with these hits."""
    return SearchResult(query, "hybrid", "c" * 40, None, False, tuple(notices), items, term_weights or {})  # noqa: FBT003 - as the class has it
