"""Labelled vaults for ``recall.py``: reading one, and writing it into a schema of its own.

Belongs here: notes and questions of a set, and the pipeline's steps without git and Dagster. Does not: asking.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from pgvector import Vector

from vault_memory import settings as settings_module
from vault_memory.adapters import migrations
from vault_memory.adapters.store import Store
from vault_memory.adapters.store_records import ChunkRow, NoteRow
from vault_memory.notes.chunking import chunk, chunk_ids
from vault_memory.notes.exclusion import compile_ruleset
from vault_memory.notes.model import CleanNote, RawNote
from vault_memory.notes.paths import NotePath
from vault_memory.notes.scanner import scan_note
from vault_memory.notes.tokens import document_terms

SCHEMA = "vault_memory_recall"


@dataclass(frozen=True)
class Question:
    """A labelled question; ``slice`` is what it is reported under."""

    text: str
    sources: frozenset[str]
    set: str
    slice: str


def read_set(folder: Path, prefix: str) -> tuple[list[CleanNote], list[Question], int]:
    """Scan a vault as the pipeline does; return its notes, its questions and how many notes were quarantined."""
    rules = compile_ruleset(settings_module.ScanSettings(), None)
    notes, refused = [], 0
    for file in sorted((folder / "vault").rglob("*.md")):
        path = NotePath.from_text(file.relative_to(folder / "vault").as_posix())
        if rules.path_exclusion(path):
            continue
        judged = scan_note(RawNote(path, "0" * 40, file.read_bytes()), rules)
        if isinstance(judged, CleanNote):
            notes.append(replace(judged, path=NotePath.from_text(f"{path.parts[0]}/{prefix}/{path.id}")))
        else:
            refused += 1
    questions = []
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        sources = frozenset(f"{source.partition('/')[0]}/{prefix}/{source}" for source in row["sources"])
        questions.append(Question(row["query"], sources, prefix, f"{prefix} {row['kind']} {row['lang']}"))
    return notes, questions, refused


def index(dsn: str, notes: list[CleanNote], embed: Callable[[list[str]], list[tuple[float, ...]]], model: str) -> int:
    """Write all notes into a fresh schema; return the number of chunks."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    migrations.migrate(dsn, SCHEMA)
    pieces = {note.path.id: chunk(note) for note in notes}
    texts = list({part.embed_text: None for parts in pieces.values() for part in parts if part.embed_text.strip()})
    vectors = dict(zip(texts, (Vector(list(vector)) for vector in embed(texts)), strict=True))
    store = Store.connect(dsn, SCHEMA)
    for note in notes:
        document, parts = note.document, pieces[note.path.id]
        rows = [
            ChunkRow(row_id, part, vectors.get(part.embed_text), terms)
            for row_id, part in zip(chunk_ids(note.path.id, parts), parts, strict=True)
            for terms in [document_terms(part.content, title=document.title, heading=part.heading)]
        ]
        with store.transaction():
            store.replace_note(
                NoteRow(
                    id=note.path.id,
                    content=note.text,
                    content_hash=note.content_hash,
                    blob_id=note.blob_id,
                    title=document.title,
                    tags=document.tags,
                    links=document.links,
                    front_matter=document.front_matter,
                    note_date=None,
                    commit="c",
                    ruleset_id="rules",
                    model=model,
                    dimensions=1536,
                    token_count=0,
                    chunks=rows,
                )
            )
    store.record_ruleset("rules")
    store.analyze()
    store.close()
    return sum(map(len, pieces.values()))
