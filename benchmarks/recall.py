"""Recall of the search on labelled vaults, by set, slice and leg.

    python benchmarks/recall.py zh_java bi_xquad                       # the offline embedder
    python benchmarks/recall.py --url http://127.0.0.1:8901/v1 --together zh_java bi_xquad

Sets lie under ``$VAULT_MEMORY_TEST_DATA/evals`` as ``NAME.tar.gz`` with ``NAME/vault`` and ``NAME/queries.jsonl``.
Notes go the pipeline's own way (scanner, chunker, embedder, store) into a schema that is dropped afterwards; questions
go through ``vault_memory.query.search`` on the same database. Printed: Recall@5, MRR@10, and for hybrid Recall@block:
is a relevant note among the excerpts of a block of 2,500 characters? Exit status 1 if hybrid is worse than its better
leg by more than max(0.01, one question) on any slice, or an excluded note is found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from pgvector import Vector

from vault_memory import settings as settings_module
from vault_memory.adapters import migrations, server
from vault_memory.adapters.store import Store
from vault_memory.adapters.store_records import ChunkRow, NoteRow
from vault_memory.notes import hashing
from vault_memory.notes.chunking import chunk, chunk_ids
from vault_memory.notes.exclusion import compile_ruleset
from vault_memory.notes.model import CleanNote, RawNote
from vault_memory.notes.paths import NotePath
from vault_memory.notes.scanner import scan_note
from vault_memory.notes.tokens import document_terms
from vault_memory.query import search
from vault_memory.query.context import render
from vault_memory.query.database import connect
from vault_memory.query.search import SearchResult

SCHEMA = "vault_memory_recall"
MODES = ("keyword", "vector", "hybrid")
EXCLUDED = ("00_Inbox", "04_Archive", "Infrastructure", "Home-Automation")


@dataclass(frozen=True)
class Question:
    """A labelled question; ``slice`` is what it is reported under."""

    text: str
    sources: frozenset[str]
    slice: str


class Embedder:
    """Vectors by the offline embedder, or by a server that speaks OpenAI's API."""

    def __init__(self, url: str | None) -> None:
        self.url = url
        self.model = "server" if url else hashing.MODEL

    def many(self, texts: list[str]) -> list[tuple[float, ...]]:
        """Embed texts; blank ones must not be among them."""
        if self.url is None:
            return [hashing.embed(text) for text in texts]
        vectors: list[tuple[float, ...]] = []
        target = urlsplit(self.url)
        connection = HTTPConnection(target.hostname, target.port, timeout=600)
        for start in range(0, len(texts), 64):
            body = {"model": "m", "input": texts[start : start + 64], "dimensions": 1536, "encoding_format": "float"}
            connection.request(
                "POST", f"{target.path}/embeddings", json.dumps(body), {"Content-Type": "application/json"}
            )
            answer = json.loads(connection.getresponse().read())
            vectors += [tuple(item["embedding"]) for item in sorted(answer["data"], key=lambda item: item["index"])]
        connection.close()
        return vectors


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
        questions.append(Question(row["query"], sources, f"{prefix} {row['kind']} {row['lang']}"))
    return notes, questions, refused


def index(dsn: str, notes: list[CleanNote], embedder: Embedder) -> int:
    """Write all notes into a fresh schema; return the number of chunks."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    migrations.migrate(dsn, SCHEMA)
    pieces = {note.path.id: chunk(note) for note in notes}
    texts = list({part.embed_text: None for parts in pieces.values() for part in parts if part.embed_text.strip()})
    vectors = dict(zip(texts, (Vector(list(vector)) for vector in embedder.many(texts)), strict=True))
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
                    model=embedder.model,
                    dimensions=1536,
                    token_count=0,
                    chunks=rows,
                )
            )
    store.record_ruleset("rules")
    store.analyze()
    store.close()
    return sum(map(len, pieces.values()))


def measure(settings: settings_module.Settings, questions: list[Question], embedder: Embedder) -> bool:
    """Ask every question in every mode and print the table; return whether the bar is met."""
    texts = [question.text.strip() for question in questions]
    known = dict(zip(texts, embedder.many(texts), strict=True))
    scores: dict[str, dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    clean, started = True, time.perf_counter()
    with connect(settings) as connection:
        for question in questions:
            for mode in MODES:
                result = search(
                    question.text,
                    k=10,
                    mode=mode,
                    settings=settings,
                    connection=connection,
                    embedder=known.__getitem__,
                    semantic=embedder.url is not None,
                )
                clean &= not any(part in EXCLUDED for hit in result.items for part in hit.source.split("/"))
                value = _score(question, result, block=mode == "hybrid")
                for name in (question.slice, "all"):
                    scores[name][mode].append(value)
    asked = len(questions) * len(MODES)
    print(f"{(time.perf_counter() - started) / asked * 1000:.1f} ms a search over {asked} searches")
    print(f"{'slice':42} {'n':>5}  " + "  ".join(f"{mode:>14}" for mode in MODES) + "  block")
    met = clean
    for name, by_mode in scores.items():
        count = len(by_mode["hybrid"])
        recall = {mode: sum(row[0] for row in by_mode[mode]) / count for mode in MODES}
        rank = {mode: sum(row[1] for row in by_mode[mode]) / count for mode in MODES}
        block = sum(row[2] for row in by_mode["hybrid"]) / count
        holds = recall["hybrid"] >= max(recall["keyword"], recall["vector"]) - max(0.01, 1 / count) - 1e-9
        met &= holds
        cells = "  ".join(f"{recall[mode]:7.3f}/{rank[mode]:6.3f}" for mode in MODES)
        print(f"{name:42} {count:5}  {cells}  {block:.3f}{'' if holds else '  BELOW ITS BETTER LEG'}")
    if not clean:
        print("an excluded note was found")
    return met


def _score(question: Question, result: SearchResult, *, block: bool) -> tuple[float, float, float]:
    found = [hit.source for hit in result.items]
    # A note whose text is a copy of a hit's is named beside it.
    found_with_copies = [{hit.source, *hit.duplicates} for hit in result.items]
    recall = float(any(names & question.sources for names in found_with_copies[:5]))
    distinct = list(dict.fromkeys(found))
    rank = next((1 / (i + 1) for i, source in enumerate(distinct) if source in question.sources), 0.0)
    shown: set[str] = set()
    if block:
        lines = render(replace(result, items=result.items[:5])).split("\n")
        numbers = [json.loads(line)["n"] for line in lines if line.startswith("{")]
        shown = {found[number - 1] for number in numbers}
    return recall, rank, float(bool(shown & question.sources))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="names of labelled sets")
    parser.add_argument("--url", help="root of an embeddings API; default: the offline embedder")
    parser.add_argument("--dsn", help="a database where the role may create a schema; default: an embedded server")
    parser.add_argument("--together", action="store_true", help="one store for all sets instead of one each")
    parser.add_argument("--sample", type=int, default=0, help="ask this many of each set's questions, always the same")
    arguments = parser.parse_args()
    data = Path(os.environ.get("VAULT_MEMORY_TEST_DATA") or sys.exit("set VAULT_MEMORY_TEST_DATA"))
    embedder, met = Embedder(arguments.url), True
    with tempfile.TemporaryDirectory(prefix="vault-memory-recall-", ignore_cleanup_errors=True) as folder:
        home = Path(folder, "home")
        dsn = arguments.dsn or server.ensure_running(home).dsn("postgres")
        try:
            groups = [arguments.sets] if arguments.together else [[name] for name in arguments.sets]
            for group in groups:
                notes, questions = [], []
                for name in group:
                    with tarfile.open(data / "evals" / f"{name}.tar.gz") as archive:
                        archive.extractall(folder, filter="data")
                    own, asked, refused = read_set(Path(folder, name), name)
                    if 0 < arguments.sample < len(asked):
                        asked = random.Random(1).sample(asked, arguments.sample)
                    notes, questions = notes + own, questions + asked
                    print(f"{name}: {len(own)} notes, {refused} quarantined, {len(asked)} questions")
                started = time.perf_counter()
                chunks = index(dsn, notes, embedder)
                print(f"{chunks} chunks in {time.perf_counter() - started:.0f} s, vectors: {embedder.model}")
                settings = replace(settings_module.load({"HOME": folder}), query_dsn=dsn, schema=SCHEMA)
                met &= measure(settings, questions, embedder)
        finally:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            if not arguments.dsn:
                server.remove(home)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
