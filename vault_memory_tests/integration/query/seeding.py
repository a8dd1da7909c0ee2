"""Notes in a database, written without the pipeline."""

import hashlib
import zlib
from collections import Counter
from dataclasses import dataclass, field

import psycopg
from psycopg.types.json import Jsonb

from vault_memory.notes import hashing
from vault_memory.notes.tokens import document_terms
from vault_memory.query.fusion import script_of

COMMIT = "a" * 40


@dataclass
class Section:
    """A chunk to be: its text and where it stands."""

    content: str
    heading_path: str = ""
    start_line: int = 1


@dataclass
class Note:
    """A note to be."""

    path: str
    sections: list[Section]
    title: str = ""
    tags: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    note_date: str | None = None
    blob_id: str = "b" * 40
    ruleset_id: str = "rules"


def note(path, *texts, **given):
    """A note whose sections are texts without headings, each on the line after the last one."""
    return Note(path, [Section(text, start_line=line) for line, text in enumerate(texts, start=1)], **given)


def seed(dsn, *notes, embedder="hashing", model=hashing.MODEL, commit=COMMIT):
    """Write notes, their chunks and the document frequencies, as a sync would have left them."""
    with psycopg.connect(dsn, options="-c search_path=vault_memory,public") as connection:
        connection.execute(
            "UPDATE sync_state SET commit = %s, ruleset_id = 'rules', embedder = %s, model = %s, dimensions = 1536",
            (commit, embedder, model),
        )
        frequencies = Counter()
        for item in notes:
            frequencies.update(_insert(connection, item))
        for dimension, chunks in frequencies.items():
            connection.execute("INSERT INTO memory_term VALUES (%s, %s)", (dimension, chunks))


def _insert(connection, item):
    title = item.title or item.path.rpartition("/")[2].removesuffix(".md")
    lines = {}
    for section in item.sections:
        lines.update(enumerate(section.content.split("\n"), start=section.start_line))
    content = "\n".join(lines.get(line, "") for line in range(1, max(lines) + 1))
    mean = str(list(hashing.embed(content or "x")))
    connection.execute(
        "INSERT INTO memory_primary (id, source, content, content_hash, embedding, blob_id, title, tags, front_matter,"
        " links, note_date, commit, ruleset_id, model, token_count)"
        " VALUES (%s, %s, %s, %s, %s::vector, %s, %s, %s, %s, %s, %s, %s, %s, 'm', 1)",
        (
            item.path,
            item.path,
            content,
            hashlib.sha256(content.encode()).hexdigest(),
            mean,
            item.blob_id,
            title,
            item.tags,
            Jsonb({}),
            item.links,
            item.note_date,
            COMMIT,
            item.ruleset_id,
        ),
    )
    dimensions = []
    for ordinal, section in enumerate(item.sections):
        terms = document_terms(section.content, title=title, heading=section.heading_path)
        dimensions += terms.dimensions
        connection.execute(
            "INSERT INTO memory_chunk VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 'm', 1536, %s, %s::vector,"
            " %s::tsvector, %s::sparsevec)",
            (
                f"{zlib.crc32(item.path.encode()):08x}-{ordinal}",
                item.path,
                ordinal,
                section.heading_path,
                section.heading_path.count(">") + 1 if section.heading_path else 0,
                section.start_line,
                section.start_line + section.content.count("\n"),
                section.content,
                hashlib.sha256(section.content.encode()).hexdigest(),
                script_of(section.content),
                str(list(hashing.embed(section.content))),
                terms.keywords,
                terms.weights,
            ),
        )
    return dimensions
