"""Rows 13 to 15, 20, 21, 39 and 41 of the bad inputs at the gate."""

import codecs
import hashlib
import logging
import re
import sys
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vault_memory.notes import frontmatter, scanner
from vault_memory.notes.exclusion import compile_ruleset
from vault_memory.notes.model import (
    CleanNote,
    Excluded,
    ExclusionReason,
    Finding,
    Quarantined,
    QuarantineReason,
    RawNote,
)
from vault_memory.notes.paths import NotePath, distinct
from vault_memory.notes.scanner import conclude, examine, scan_note
from vault_memory.settings import ScanSettings
from vault_memory_tests.fixtures.secret_samples import SAMPLES

RULES = compile_ruleset(ScanSettings(roots=(".",), exclude_directories=("private",)), None)
TOKEN = "ghp_" + "x9Kq2LmZ7vTb4RwY1nCd8HsJ5gFp3AeU6iQo"
CANARY = "CANARY-5e0f"


def raw(data: bytes | str, path: str = "a/note.md") -> RawNote:
    """Make a note of bytes or a text."""
    return RawNote(NotePath.from_text(path), "blob", data if isinstance(data, bytes) else data.encode())


def scan(data: bytes | str) -> CleanNote | Quarantined | Excluded:
    """Scan with the usual rules."""
    return scan_note(raw(data), RULES)


def reason(data: bytes | str) -> QuarantineReason | ExclusionReason | None:
    """Return why a note is out, None for a clean one."""
    note = scan(data)
    return None if isinstance(note, CleanNote) else note.reason


def test_a_clean_note_keeps_its_text_and_the_hash_of_its_bytes():
    """What the scanner lets through is the decoded text with file lines kept."""
    data = "# Plan\r\n\r\n计划\rlast".encode()
    note = scan(data)
    assert isinstance(note, CleanNote)
    assert "# Plan\n\n计划\nlast" == note.text
    assert hashlib.sha256(data).hexdigest() == note.content_hash
    assert "计划" not in repr(note)


def test_a_secret_quarantines_with_rule_and_line_and_never_the_text():
    """A finding says where, not what."""
    note = scan(f"one\r\ntwo {TOKEN} {CANARY}\r\n")
    assert isinstance(note, Quarantined)
    assert QuarantineReason.SECRET == note.reason
    assert {2} == {finding.line for finding in note.findings}
    assert "github" in note.rules[0]
    assert TOKEN not in repr(note)
    assert CANARY not in repr(note)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_row_14_a_note_is_decoded_by_its_mark(encoding):
    """Text in any Unicode encoding with a mark is read, and its secrets are found."""
    marks = {
        "utf-8-sig": b"",
        "utf-16-le": codecs.BOM_UTF16_LE,
        "utf-16-be": codecs.BOM_UTF16_BE,
        "utf-32-le": codecs.BOM_UTF32_LE,
        "utf-32-be": codecs.BOM_UTF32_BE,
    }
    clean = scan(marks[encoding] + "# 标题\r\n\r\n正文\n".encode(encoding))
    assert isinstance(clean, CleanNote)
    assert "# 标题\n\n正文\n" == clean.text
    assert reason(marks[encoding] + f"token {TOKEN}\n".encode(encoding)) is QuarantineReason.SECRET
    assert reason(marks[encoding] + "---\nprivate: true\n---\n".encode(encoding)) is ExclusionReason.FRONT_MATTER


@pytest.mark.parametrize(
    "data",
    [
        "密码".encode("gbk"),
        b"\xe9t\xe9\n",
        b"\x80",
        b"ok \xf0\x9f\x98",
        codecs.BOM_UTF16_LE + b"a",
        codecs.BOM_UTF8 + b"\xff",
        codecs.BOM_UTF32_LE + b"\xff\xff\xff\xff",
    ],
)
def test_row_14_what_is_no_unicode_is_undecodable(data):
    """A byte that does not decode is never dropped: it could hide half a secret."""
    assert QuarantineReason.UNDECODABLE is reason(data)


@pytest.mark.parametrize(
    "data",
    [
        b"a\x00b",
        "text".encode("utf-16-le"),
        b"\xed\xa0\x80",
        codecs.BOM_UTF16_LE + b"\x00\xd8a\x00",
        codecs.BOM_UTF16_BE + b"\x00\x00",
    ],
)
def test_row_41_what_the_database_cannot_store_is_unstorable(data):
    """A NUL or half a surrogate pair is quarantined before any statement could fail on it."""
    assert QuarantineReason.UNSTORABLE_TEXT is reason(data)


def test_row_14_a_note_over_the_limit_is_too_large():
    """The limit counts bytes and lets its own size through."""
    rules = compile_ruleset(ScanSettings(roots=(".",), max_note_bytes=6), None)
    assert isinstance(scan_note(raw("正文"), rules), CleanNote)
    assert Quarantined(raw("").path, "blob", QuarantineReason.TOO_LARGE) == scan_note(raw("正文x"), rules)


def test_row_15_a_note_cannot_vouch_for_itself():
    """A marker inside the note changes nothing."""
    for marker in ("<!-- vault-memory: allow -->", "gitleaks:allow", "vault-memory: allow", "pragma: allowlist secret"):
        assert QuarantineReason.SECRET is reason(f"{marker}\n{TOKEN} {marker}\n")
        assert QuarantineReason.SECRET is reason(f"---\nvault-memory: allow\nallow: true\n---\n{TOKEN}\n")


def test_the_allow_list_releases_single_findings():
    """A note is released when every finding is; the others stay named."""
    note = raw(f"{TOKEN}\n\n{TOKEN[:-1]}z\n")
    asked: list[Finding] = []

    def first_line(given_note: RawNote, finding: Finding) -> bool:
        assert note is given_note
        asked.append(finding)
        return finding.line == 1

    partly = scan_note(note, RULES, allowed=first_line)
    assert isinstance(partly, Quarantined)
    assert {3} == {finding.line for finding in partly.findings}
    assert {1, 3} == {finding.line for finding in asked}
    assert isinstance(scan_note(note, RULES, allowed=lambda _note, _finding: True), CleanNote)


def test_an_allow_list_that_fails_allows_nothing(caplog):
    """An error in the operator's list quarantines the note."""

    def broken(_note: RawNote, _finding: Finding) -> bool:
        raise ValueError(TOKEN)

    note = scan_note(raw(TOKEN), RULES, allowed=broken)
    assert isinstance(note, Quarantined)
    assert TOKEN not in caplog.text


def test_an_allowed_finding_does_not_overrule_the_owner():
    """Released secrets or not, a private note stays out."""
    note = scan_note(raw(f"---\nprivate: true\n---\n{TOKEN}\n"), RULES, allowed=lambda _note, _finding: True)
    assert isinstance(note, Excluded)
    assert ExclusionReason.FRONT_MATTER is note.reason


def test_a_secret_in_a_private_note_is_still_told():
    """The audit names the secret even where the note is out anyway."""
    assert QuarantineReason.SECRET is reason(f"---\nprivate: true\n---\n{TOKEN}\n")


def test_a_note_in_an_excluded_folder_is_never_clean():
    """Whoever calls the scanner, the path is judged again, and the bytes are not looked at."""
    note = scan_note(raw(TOKEN, "private/a.md"), RULES)
    assert Excluded(NotePath.from_text("private/a.md"), "blob", ExclusionReason.DIRECTORY) == note


@pytest.mark.parametrize(
    "text",
    ["one #private two\n", "one\n\n#private/sub\n", "---\ntags: [x]\n---\n#机密\n", "---\ntags: '#private'\n---\n"],
)
def test_row_20_a_private_tag_anywhere_excludes(text):
    """Tags count in front matter and in the text."""
    assert ExclusionReason.TAG is reason(text)


@pytest.mark.parametrize(
    "text",
    [
        "---\nprivate: [true\n---\nbody\n",
        "---\ntitle: a: b\nprivate: true\n---\nbody\n",
        "---\n\tprivate: true\n---\nbody\n",
        "---\nprivate: true\nbody without an end\n",
        "---\nvault_memory: false\nx: [\n---\nbody\n",
        "\n---\nprivate: [true\n---\nbody\n",
        "---\n- private: true\n---\nbody\n",
        "---\nx: &a true\nprivate: *a\n---\nbody\n",
        "---\n私密: {\n---\n正文\n",
        "---\ntags: [private\n---\nbody\n",
        "---\nvault-memory: false\n: :\n- [\n---\nbody\n",
        "\ufeff\ufeff---\nprivate: true\n---\nbody\n",
        "\u200b---\nprivate: true\n---\nbody\n",
        "\n---\nprivate: true\n---\nbody\n",
    ],
)
def test_row_21_unreadable_front_matter_that_may_be_private_is_quarantined(text):
    """Where a privacy key cannot be ruled out the note stays out."""
    assert reason(text) in {QuarantineReason.FRONTMATTER_UNREADABLE, ExclusionReason.FRONT_MATTER}


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: a: b\n---\nA private matter.\n",
        "---\nx: [1\n---\nbody\n",
        "\n---\n\nA private matter.\n",
        "\n---\ntext\n---\nA private matter.\n",
        "\n---\nA private matter.\n---\ntext\n",
        "\n---\nprivate: false\n---\ntext\n",
        "plain\n---\nprivate: true\n---\n",
    ],
)
def test_broken_front_matter_without_privacy_keys_is_indexed(text):
    """A typing mistake in the title costs no note."""
    assert reason(text) is None


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls the interpreter makes for a piece of work; those before it compiled what it needs."""
    work()
    counted = 0

    def count(*_: object) -> None:
        nonlocal counted
        counted += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize(
    "head",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefg", "bcdefgh", strict=True)),
        "private: " + "[" * 20_000,
        "private: !!python/object/apply:os.system ['true']",
        "private: " + "9" * 5_000,
    ],
    ids=["alias bomb", "nesting", "object", "long number"],
)
def test_row_39_hostile_front_matter_is_refused_quickly(head, caplog):
    """A bomb neither runs, nor grows, nor is quoted: counted in calls, which no busy machine makes more."""
    text = f"---\n{head}\n---\n{CANARY}\n"
    note = scan(text)
    assert calls_of(lambda: frontmatter.split_front_matter(text)) < 3_000
    assert calls_of(lambda: scan(text)) < 10_000 + 20 * len(text)
    assert len(repr(note)) < 10_000
    if "private" in head:
        assert not isinstance(note, CleanNote)
    elif isinstance(note, CleanNote):
        assert not note.document.front_matter
    assert CANARY not in caplog.text


def test_row_13_a_scanner_that_raises_lets_nothing_through(monkeypatch, caplog):
    """An unexpected error quarantines, and the log has its class and the path alone."""

    def broken(text: str) -> tuple[Finding, ...]:
        raise RuntimeError(text)

    monkeypatch.setattr(scanner.secrets, "scan", broken)
    with caplog.at_level(logging.DEBUG):
        note = scan_note(raw(CANARY, "a/line\nbreak.md"), RULES)
    assert Quarantined(NotePath.from_text("a/line\nbreak.md"), "blob", QuarantineReason.SCAN_ERROR) == note
    assert ["scan failed: RuntimeError at 'a/line\\nbreak.md'"] == caplog.messages
    assert CANARY not in caplog.text


def test_row_13_a_secret_is_told_even_if_the_rest_fails(monkeypatch):
    """Findings survive an error that comes after them."""

    def broken(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(scanner.markdown, "parse", broken)
    assert QuarantineReason.SECRET is reason(TOKEN)
    assert QuarantineReason.SCAN_ERROR is reason("clean")


def test_a_verdict_holds_for_its_own_bytes_alone():
    """A verdict that was given on other bytes makes no clean note."""
    verdict = examine(raw("clean"), RULES)
    assert isinstance(conclude(raw("clean"), verdict), CleanNote)
    note = conclude(raw(TOKEN), verdict)
    assert isinstance(note, Quarantined)
    assert QuarantineReason.SCAN_ERROR is note.reason


_lines = st.sampled_from(
    [
        "---",
        "private: true",
        "tags: [private]",
        "# H",
        "```",
        "|a|b|",
        "%%",
        TOKEN,
        "[[x",
        "",
        "\ufeff",
        "{[",
        "- [ ] x",
    ]
)


@given(
    st.one_of(
        st.binary(max_size=400),
        st.text(max_size=400).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(_lines, max_size=12).map(lambda lines: "\r\n".join(lines).encode()),
        st.tuples(st.sampled_from([b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"]), st.binary(max_size=99)).map(b"".join),
    )
)
@example(b"")
@example(b"---\n")
@example(b"\xff\xfe\x00\x00")
def test_no_bytes_make_the_scanner_raise_or_lie(data):
    """Whatever the bytes, there is an answer, and a clean one is exactly the strict decoding."""
    note = scan(data)
    assert isinstance(note, CleanNote | Quarantined | Excluded)
    if isinstance(note, CleanNote):
        assert "\r" not in note.text
        assert "\x00" not in note.text
        assert TOKEN not in note.text
        note.text.encode("utf-8")
        if data[:2] not in {b"\xff\xfe", b"\xfe\xff"}:
            assert data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n") == note.text


_IN_NAMES = {
    rule: name
    for rule, text in SAMPLES.items()
    if NotePath.from_text(name := text.replace("/", "∕").replace("\n", " ").strip()).findings
}


def test_most_rules_hold_for_names_too() -> None:
    """Only kinds that need several lines or slashes cannot stand in a name."""
    assert len(SAMPLES) - 20 < len(_IN_NAMES)


@pytest.mark.parametrize("rule", sorted(_IN_NAMES))
def test_a_secret_in_a_name_is_quarantined_and_no_part_of_the_identity(rule: str) -> None:
    """A stand-in takes the name's place, the note is held back for it, and the raw name still finds the file."""
    name = _IN_NAMES[rule]
    raw = f"01_Projects/{name}.md".encode()
    path = NotePath.from_bytes(raw)
    assert re.fullmatch(r"01_Projects/withheld-[0-9a-f]{4}\.md", path.id)
    assert raw == path.raw
    assert path.id == distinct(path).id
    verdict = scan_note(RawNote(path, "b" * 40, b"# Harmless\n"), compile_ruleset(ScanSettings(), None))
    assert isinstance(verdict, Quarantined)
    assert {"name"} == {finding.view for finding in verdict.findings}
    assert name not in str(verdict) + repr(path)


@pytest.mark.parametrize(
    "name",
    ["2024-05-03-project-kickoff-meeting-with-customer.md", "密码学笔记/第三章 AES-256.md", "password policy.md", "API key rotation 2026.md", "a" * 200 + ".md",
     "20240503123000.md", "token bucket v2.md", "3f2a9c0e8b7d6f5a4c3b2a1908f7e6d5c4b3a291.md", "550e8400-e29b-41d4-a716-446655440000.md"],
)  # fmt: skip
def test_an_ordinary_name_is_its_own_identity(name: str) -> None:
    """Dates, digests, identifiers and talk about secrets are names like any other."""
    path = NotePath.from_bytes(name.encode())
    assert (name, ()) == (path.id, path.findings)
