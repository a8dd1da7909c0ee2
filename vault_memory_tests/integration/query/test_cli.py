"""The agent's command as a process."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from vault_memory_tests.integration.query.seeding import Note, Section, note, seed


@pytest.fixture
def ask(database, reader_dsn, tmp_path):
    """Run the command on a small library; returns the finished process."""
    seed(
        database,
        Note(
            "01_Projects/pool plan.md",
            [
                Section("The pool was exhausted.", "Plan > Causes", 2),
                Section("Raise the time-out.\nAlso get metrics.", "Plan > Remedies", 5),
            ],
            links=["连接池"],
        ),
        note("02_Areas/连接池.md", "连接池 \x1b[31m红\x9b0m \u202e 注释"),
    )

    def run(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-m", "vault_memory.query.cli", *arguments],
            capture_output=True,
            check=False,
            timeout=60,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "LC_ALL": "C",
                "VAULT_MEMORY_QUERY_DSN": reader_dsn,
                **environment,
            },
        )

    return run


def test_a_question_prints_the_block(ask):
    """Several words need no quotes, and results are all that stdout holds."""
    done = ask("pool", "exhausted")
    assert (0, b"") == (done.returncode, done.stderr)
    assert done.stdout.startswith(b"<retrieved_context ")
    assert b'"source":"01_Projects/pool plan.md","heading":"Plan \\u003e Causes","lines":"2-2"' in done.stdout


def test_json_is_json(ask):
    """The contract's keys, in UTF-8 whatever the locale, with nothing a terminal acts on."""
    done = ask("连接池", "--format", "json")
    answer = json.loads(done.stdout)
    assert "02_Areas/连接池.md" == answer["items"][0]["source"]
    assert "\x1b[31m红\x9b0m \u202e" in answer["items"][0]["text"]
    assert not set("\x1b\x9b\u202e") & set(done.stdout.decode())


def test_text_is_plain(ask):
    """For people: path, lines, heading and the text, without control sequences; notices go to stderr."""
    done = ask("连接池", "--format", "text")
    assert "1. 02_Areas/连接池.md:1-1" in done.stdout.decode()
    assert not set("\x1b\x9b\u202e") & set(done.stdout.decode())
    assert b"as of commit" in done.stderr


def test_options_may_come_first(ask):
    """An option before the question is no question."""
    done = ask("-k", "1", "--path", "02_Areas/**", "连接池", "--format", "json")
    assert ["02_Areas/连接池.md"] == [item["source"] for item in json.loads(done.stdout)["items"]]


def test_recent_is_an_option(ask, database):
    """Of two notes with the same words, the newer one comes first."""
    seed(
        database,
        note("02_Areas/old.md", "Bread rises overnight, in summer", note_date="2001-01-01"),
        note("02_Areas/xnew.md", "Bread rises overnight, in winter", note_date="2026-06-01"),
    )
    orders = [
        [item["source"] for item in json.loads(ask("bread overnight", *more, "--format", "json").stdout)["items"]]
        for more in ((), ("--recent",))
    ]
    assert [["02_Areas/old.md", "02_Areas/xnew.md"], ["02_Areas/xnew.md", "02_Areas/old.md"]] == orders


def test_explain_goes_to_stderr(ask):
    """Ranks and scores of both legs, out of the agent's way."""
    done = ask("pool", "exhausted", "--explain")
    assert b"vector #" in done.stderr
    assert b"keyword #" in done.stderr
    assert b"keyword #" not in done.stdout


def test_nothing_found_is_empty_and_fine(ask):
    """No block for nothing."""
    done = ask("zzqx")
    assert (0, b"") == (done.returncode, done.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        ["  "],
        ["x", "--max-chars", "511"],
        ["x", "--max-chars", "NaN"],
        ["x", "-k", "0"],
        ["x", "--since", "soon"],
        ["x", "--nope"],
        ["get", "no such.md"],
        ["get", "01_Projects/pool plan.md#No such heading"],
        ["expand", "ffffffff"],
        ["related", "no such.md"],
    ],
)
def test_wrong_usage_is_exit_2(ask, arguments):
    """One clear line, no traceback, nothing on stdout."""
    done = ask(*arguments)
    assert (2, b"") == (done.returncode, done.stdout)
    assert done.stderr.strip()
    assert b"Traceback" not in done.stderr


def test_no_database_is_exit_3(ask):
    """One line on stderr."""
    done = ask("x", VAULT_MEMORY_QUERY_DSN="host=/nonexistent dbname=x")
    assert (3, b"", 1) == (done.returncode, done.stdout, done.stderr.count(b"\n"))
    assert done.stderr.startswith(b"vault-memory-query: ")


def test_a_command_word_can_be_searched_for(ask):
    """``search get`` asks for the word."""
    done = ask("search", "get", "--format", "json")
    assert "Plan > Remedies" == json.loads(done.stdout)["items"][0]["heading_path"]


@pytest.mark.parametrize(
    ("source", "lines", "text"),
    [
        ("01_Projects/pool plan.md", (1, 6), "Raise the time-out."),
        ("pool plan", (1, 6), "Raise the time-out."),
        ("01_Projects/pool plan.md#Remedies", (5, 6), "Raise the time-out."),
        ("pool plan.md#Plan > Causes", (2, 2), "The pool was exhausted."),
        ("pool plan.md#plan", (2, 6), "The pool was exhausted."),
        ("01_Projects/pool plan.md:2", (2, 2), "The pool was exhausted."),
        ("01_Projects/pool plan.md:5-99", (5, 6), "Also get metrics."),
    ],
)
def test_get_reads_notes_sections_and_lines(ask, source, lines, text):
    """By path or its end, with or without suffix, by heading or lines."""
    (item,) = json.loads(ask("get", source, "--format", "json").stdout)["items"]
    assert lines == (item["start_line"], item["end_line"])
    assert text in item["text"]


def test_expand_reads_around_a_hit(ask):
    """From a hit's chunk_id to its section; where that is the hit itself, to the note."""
    hit = json.loads(ask("exhausted", "--format", "json").stdout)["items"][0]
    (item,) = json.loads(ask("expand", hit["chunk_id"], "--format", "json").stdout)["items"]
    assert (1, 6) == (item["start_line"], item["end_line"])


def test_every_item_carries_the_metadata_of_its_chunk(ask):
    """Heading, level, lines and both hashes, in whatever way it was read; what a hit says leads ``expand`` to it."""
    hit = json.loads(ask("exhausted", "--format", "json").stdout)["items"][0]
    readings = {
        "search": hit,
        "get": json.loads(ask("get", f"{hit['source']}#Causes", "--format", "json").stdout)["items"][0],
        "expand": json.loads(ask("expand", hit["chunk_id"], "--format", "json").stdout)["items"][0],
        "note": json.loads(ask("expand", hit["chunk_id"], "--note", "--format", "json").stdout)["items"][0],
    }
    note_text = "\nThe pool was exhausted.\n\n\nRaise the time-out.\nAlso get metrics."
    expected = {
        "search": ("Plan > Causes", 2, 2, 2),
        "get": ("Plan > Causes", 2, 2, 2),
        "expand": ("", 0, 1, 6),  # the chunk is all of its section, so the note around it is read
        "note": ("", 0, 1, 6),
    }
    for name, item in readings.items():
        assert expected[name] == tuple(item[key] for key in ("heading_path", "level", "start_line", "end_line")), name
        assert hashlib.sha256(note_text.encode()).hexdigest() == item["source_hash"]
        assert hashlib.sha256(item["text"].encode()).hexdigest() == item["content_hash"]


def test_related_lists_linked_notes_first(ask):
    """A wikilink counts from both ends."""
    (item,) = json.loads(ask("related", "pool plan.md", "--format", "json").stdout)["items"]
    assert ("02_Areas/连接池.md", ["links_to"]) == (item["source"], item["relation"])
    (back,) = json.loads(ask("related", "连接池", "--format", "json").stdout)["items"]
    assert ("01_Projects/pool plan.md", ["linked_from"]) == (back["source"], back["relation"])


def test_a_reader_that_goes_away_is_no_error(ask, database, reader_dsn, tmp_path):
    """``| head -0`` ends without a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vault_memory.query.cli", "pool"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "VAULT_MEMORY_QUERY_DSN": reader_dsn},
    )
    process.stdout.close()
    assert b"" == process.stderr.read()
    process.stderr.close()
    assert 0 == process.wait()


def test_a_question_makes_no_server(ask, tmp_path):
    """Without a memory the answer is one line, and no database is created for it."""
    done = ask("x", VAULT_MEMORY_QUERY_DSN="", VAULT_MEMORY_HOME=str(tmp_path / "home"))
    assert (3, b"", 1) == (done.returncode, done.stdout, done.stderr.count(b"\n"))
    assert b"vault-memory init" in done.stderr
    assert not (tmp_path / "home").exists()
