"""The program that cocoindex asks for: Markdown files, chunks, vectors, a PostgreSQL table. Run by ``peers.py``.

Not part of the package: it runs in the interpreter of a peer. Built from cocoindex's own example; embeds through the
given API, since cocoindex brings no client of its own for one, as many texts of a file at a time as there are.
"""

import hashlib
import os
import pathlib
from dataclasses import dataclass
from typing import Annotated

import asyncpg
import cocoindex as coco
import openai
from cocoindex.connectors import localfs, postgres
from cocoindex.ops.text import RecursiveSplitter
from cocoindex.resources.file import PatternFilePathMatcher

PG = coco.ContextKey[asyncpg.Pool]("pg")
CLIENT = openai.AsyncOpenAI(base_url=os.environ["PEER_URL"], api_key="k")
SPLITTER = RecursiveSplitter()


@dataclass
class Row:
    """One chunk."""

    id: str
    source: str
    text: str
    embedding: Annotated[list[float], postgres.PgType("vector(1536)", lambda vector: str(list(vector)))]


@coco.lifespan
async def lifespan(builder: coco.EnvironmentBuilder):
    """Hold the pool of connections."""
    async with asyncpg.create_pool(os.environ["PEER_DSN"]) as pool:
        builder.provide(PG, pool)
        yield


@coco.fn(memo=True)
async def index_file(file, table) -> None:
    """Chunk and embed one file."""
    chunks = [chunk.text for chunk in SPLITTER.split(await file.read_text(), 1000, language="markdown")]
    answer = await CLIENT.embeddings.create(model="m", input=chunks, encoding_format="float")
    source = str(file.file_path.path)
    for number, (text, item) in enumerate(zip(chunks, answer.data, strict=True)):
        name = hashlib.sha256(f"{source}\0{number}".encode()).hexdigest()
        table.declare_row(row=Row(name, source, text, item.embedding))


@coco.fn
async def main(folder: pathlib.Path) -> None:
    """Declare the table and its rows."""
    table = await postgres.mount_table_target(
        PG, table_name="docs", table_schema=await postgres.TableSchema.from_class(Row, primary_key=["id"])
    )
    matcher = PatternFilePathMatcher(included_patterns=["**/*.md"])
    files = localfs.walk_dir(folder, recursive=True, path_matcher=matcher)
    await coco.mount_each(index_file, files.items(), table)


coco.App(coco.AppConfig(name="docs"), main, folder=pathlib.Path(os.environ["PEER_VAULT"])).update_blocking()
