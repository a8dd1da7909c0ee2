"""Rows 16 to 20 and 25 of the bad inputs, and what the rules' digest covers."""

import pickle
import time
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.errors import ConfigError
from vault_memory.notes import exclusion, patterns
from vault_memory.notes.exclusion import Ruleset, compile_ruleset, fold
from vault_memory.notes.frontmatter import split_front_matter
from vault_memory.notes.model import ExclusionReason
from vault_memory.notes.paths import NotePath
from vault_memory.notes.patterns import read_ignore_file
from vault_memory.settings import ScanSettings

EVERYWHERE = ScanSettings(
    roots=(".",), exclude_directories=("private",), private_tags=("private", "#confidential", "secret", "私密", "机密")
)


def judge(rules: Ruleset, path: str) -> ExclusionReason | None:
    """Judge a path that is given as text."""
    return rules.path_exclusion(NotePath.from_text(path))


def document(head: str, *tags: str, rules: Ruleset | None = None) -> ExclusionReason | None:
    """Judge front matter and the tags of a text."""
    text = f"---\n{head}\n---\nbody\n"
    return (rules or compile_ruleset(EVERYWHERE, None)).document_exclusion(split_front_matter(text), tags)


@pytest.mark.parametrize(
    "path", ["privateer/a.md", "my-private-notes/a.md", "private.md", "a/private.md", "a/Private .md", "privat/e.md"]
)
def test_row_16_a_folder_rule_is_no_substring(path):
    """Only a whole folder name counts, and a file of that name is no folder."""
    assert judge(compile_ruleset(EVERYWHERE, None), path) is None


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("private", "Private/a.md"),
        ("private", "a/b/private/c.md"),
        ("private", "PRIVATE/b/c.md"),
        (unicodedata.normalize("NFC", "Café"), unicodedata.normalize("NFD", "Café/a.md")),
        (unicodedata.normalize("NFD", "Café"), "x/CAFÉ/a.md"),
        ("Straße", "STRASSE/a.md"),
        ("私人/", "笔记/私人/a.md"),
        ("a\nb", "a\nb/c.md"),
    ],
)
def test_row_17_a_folder_rule_holds_at_any_depth_and_in_any_spelling(rule, path):
    """Names are compared in NFC and case folded, at every depth."""
    rules = compile_ruleset(replace(EVERYWHERE, exclude_directories=(rule,)), None)
    assert ExclusionReason.DIRECTORY == judge(rules, path)


def test_row_17_the_original_bytes_of_a_colliding_name_are_folded_too():
    """A path that keeps its own spelling after a name collision is still compared in NFC."""
    raw = unicodedata.normalize("NFD", "Café/a.md")
    rules = compile_ruleset(replace(EVERYWHERE, exclude_directories=("café",)), None)
    assert ExclusionReason.DIRECTORY == rules.path_exclusion(NotePath(raw, raw.encode()))


_part = st.text(st.characters(exclude_characters="/\x00", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda part: part.strip().strip("/") and part not in {".", ".."}
)


@given(st.lists(_part, min_size=1, max_size=5), st.lists(_part, max_size=3))
def test_folders_are_excluded_if_and_only_if_a_part_is_equal(parts, rule_names):
    """The rule agrees with its definition: some folder's folded name is one of the folded rules."""
    rules = compile_ruleset(ScanSettings(roots=(".",), exclude_directories=tuple(rule_names)), None)
    path = NotePath.from_text("/".join([*parts, "note.md"]))
    wanted = {fold(name).strip().strip("/") for name in rule_names}
    expected = ExclusionReason.DIRECTORY if any(fold(part) in wanted for part in parts) else None
    assert expected == rules.path_exclusion(path)


@pytest.mark.parametrize(
    ("roots", "path", "is_inside"),
    [
        (("01_Projects",), "01_Projects/a.md", True),
        (("01_Projects/",), "01_projects/x/a.md", True),
        (("./01_Projects",), "01_Projects/a.md", True),
        (("01_Projects",), "01_Projects2/a.md", False),
        (("01_Projects",), "x/01_Projects/a.md", False),
        (("01_Projects",), "a.md", False),
        (("a/b", "c"), "a/b/n.md", True),
        (("a/b", "c"), "a/n.md", False),
        (("x", "."), "a.md", True),
    ],
)
def test_roots_are_prefixes_of_whole_parts(roots, path, is_inside):
    """A root is compared part by part from the top of the vault."""
    rules = compile_ruleset(ScanSettings(roots=roots, exclude_directories=()), None)
    assert (None if is_inside else ExclusionReason.OUTSIDE_ROOTS) == judge(rules, path)


def test_row_25_a_note_is_judged_by_the_place_it_has_now():
    """The same name is out in one folder and in after a move."""
    rules = compile_ruleset(ScanSettings(), None)
    assert ExclusionReason.DIRECTORY == judge(rules, "01_Projects/04_archive/a.md")
    assert judge(rules, "01_Projects/a.md") is None


@pytest.mark.parametrize(
    ("keyword", "name", "is_out"),
    [
        ("salary", "My Salary 2026.md", True),
        ("salary", "my_salary.md", True),
        ("salary", "salary2026.md", True),
        ("salary", "salary表.md", True),
        ("salary", "salaryman.md", False),
        ("md", "note.md", False),
        ("tax return", "tax_return-2025.md", True),
        ("tax return", "taxreturn.md", False),
        ("42", "a42b.md", True),
        ("42", "1424.md", False),
        ("工资", "我的工资单.md", True),
        ("工资", "工 资.md", False),
        ("c++", "c++ notes.md", True),
        ("c++", "c notes.md", False),
        ("🔒", "x🔒y.md", True),
        ("é", unicodedata.normalize("NFD", "É.md"), True),
    ],
)
def test_a_keyword_is_a_whole_word_of_the_file_name(keyword, name, is_out):
    """Letters join words, digits and underscores part them; Chinese has no borders to look for."""
    rules = compile_ruleset(ScanSettings(roots=(".",), exclude_keywords=(keyword,)), None)
    assert (ExclusionReason.KEYWORD if is_out else None) == judge(rules, f"a/{name}")
    assert judge(rules, f"{name}/other.md") is None


@pytest.mark.parametrize(
    ("line", "path", "is_out"),
    [
        ("*.tmp.md", "a/b.tmp.md", True),
        ("/top", "top/a.md", True),
        ("/top", "a/top/b.md", False),
        ("drafts/", "a/drafts/b.md", True),
        ("drafts/", "a/drafts.md", False),
        ("a/**/z.md", "a/b/c/z.md", True),
        ("Drafts/", "drafts/b.md", True),
        ("café*", unicodedata.normalize("NFD", "CAFÉ.md"), True),
        ("[A-C]*.md", "b.md", True),
        ("\\!a.md", "!a.md", True),
        ("\\#a.md", "#a.md", True),
        ("drafts/", "a\nb/drafts/c.md", True),
        ("x/", "x/\udcff.md", True),
        ("[(?P<ps_d>]z.md", "pz.md", True),
    ],
)
def test_patterns_read_as_git_reads_them(line, path, is_out):
    """Patterns keep git's notation, in any case and normal form, and a line break in a name hides nothing."""
    rules = compile_ruleset(ScanSettings(roots=(".",)), line)
    assert (ExclusionReason.PATTERN if is_out else None) == judge(rules, path)


REFUSED = ["!drafts/ok.md", "[abc", "[z-a]", "trailing\\", "/", "x" * 1001]


@pytest.mark.parametrize("where", ["settings", "file"])
@pytest.mark.parametrize("line", REFUSED)
def test_row_18_a_rule_that_includes_or_does_not_parse_is_refused_by_its_number(where, line):
    """The line is named and never quoted, the others hold, and only a negation holds no new note back."""
    scan = EVERYWHERE if where == "file" else replace(EVERYWHERE, exclude_patterns=("ok", "# note", line, "drafts/"))
    text = f"ok\r\n# note\r\n{line}\r\ndrafts/\r\n" if where == "file" else None
    rules = compile_ruleset(scan, text)
    (problem,) = rules.problems
    expected = ".vaultmemoryignore, line 3" if where == "file" else "scan.exclude_patterns, entry 3"
    assert str(problem).startswith(f"{expected}: ")
    assert "ok.md" not in str(problem)
    assert (() if line.startswith("!") else (problem,)) == rules.holding
    assert ExclusionReason.PATTERN == judge(rules, "drafts/ok.md")
    assert ExclusionReason.PATTERN == judge(rules, "a/ok/b.md")
    assert judge(rules, "a/b.md") is None


@pytest.mark.parametrize(
    ("line", "path", "is_out"),
    [
        ("drafts/[2026", "drafts/2026.md", True),
        ("drafts/[2026", "other/2026.md", False),
        ("[abc].md [", "[abc].md [", True),
        ("diary\\", "my/diary", True),
        ("diary\\", "my/diary-2026/a.md", True),
        ("diary\\", "my/dairy.md", False),
        ("Priv\udce9/", "privé/a.md", True),
        ("a" * 1001, "a" * 1001 + ".md", True),
        ("/", "a.md", False),
    ],
)
def test_the_widest_reading_of_a_broken_pattern_holds(line, path, is_out):
    """What begins as the broken line does is out, and so is a name of exactly its letters."""
    rules = compile_ruleset(EVERYWHERE, line)
    assert rules.holding
    assert (ExclusionReason.PATTERN if is_out else None) == judge(rules, path)


@given(
    valid=st.lists(st.sampled_from(["drafts/", "*.tmp.md", "/top", "a/**/z.md"]), max_size=4),
    broken=st.lists(st.sampled_from(REFUSED) | st.text(max_size=12), max_size=3),
    path=st.sampled_from(["drafts/a.md", "x/drafts/b.md", "b.tmp.md", "top/c.md", "a/q/z.md", "free/d.md"]),
)
def test_a_broken_rule_never_lets_in_what_a_valid_one_keeps_out(valid, broken, path):
    """Whatever else stands in the file, in whatever order, a valid rule holds, and the worker comes to the same id."""
    alone = judge(compile_ruleset(EVERYWHERE, "\n".join(valid)), path)
    for lines in ([*valid, *broken], [*broken, *valid]):
        rules = compile_ruleset(EVERYWHERE, "\n".join(lines))
        assert alone is None or judge(rules, path) is not None
        again = pickle.loads(pickle.dumps(rules))
        assert (rules.id, judge(rules, path)) == (again.id, judge(again, path))


@pytest.mark.parametrize("pattern", ["*a" * 8 + "*b", "*a" * 200 + "b", "**/" * 200 + "b", "?" * 300 + "b"])
def test_row_19_a_crafted_glob_returns_at_once(pattern):
    """The engine is linear in the path: no pattern of a vault can hang the run."""
    rules = compile_ruleset(ScanSettings(roots=(".",)), pattern)
    start = time.perf_counter()
    assert judge(rules, "a" * 60 + ".md") is None
    assert judge(rules, "a" * 4000 + ".md") is None
    assert time.perf_counter() - start < 1


def test_a_thousand_patterns_compile_and_the_next_one_is_refused():
    """The size of a rule file is bounded in lines."""
    lines = [f"*{number}*x*/**/y{number}/" for number in range(patterns.MAX_PATTERNS)]
    rules = compile_ruleset(ScanSettings(roots=(".",)), "\n".join(lines))
    assert ExclusionReason.PATTERN == judge(rules, "a999bxc/q/y999/n.md")
    longer = compile_ruleset(ScanSettings(roots=(".",)), "\n".join([*lines, "z"]))
    assert [f".vaultmemoryignore, line {patterns.MAX_PATTERNS + 1}"] == [one.where for one in longer.holding]
    assert ExclusionReason.PATTERN == judge(longer, "a999bxc/q/y999/n.md")


def test_the_ignore_file_may_have_a_mark_windows_line_ends_comments_and_blanks():
    """Only lines that count are kept."""
    rules = compile_ruleset(ScanSettings(), "\ufeff# private stuff\r\n\r\ndrafts/\r   \n*.tmp.md")
    assert ("drafts/", "*.tmp.md") == rules.ignore_lines


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (b"drafts/\n\xe9t\xe9/\n", ".vaultmemoryignore, line 2: not UTF-8"),
        (b"drafts/\n\xff\xfe\n", ".vaultmemoryignore, line 2: not UTF-8"),
        (b"drafts/\n" + b"x\n" * 40_000, ".vaultmemoryignore: larger than 64 KiB"),
        (b"drafts/\n" + b"y" * 70_000, ".vaultmemoryignore: larger than 64 KiB"),
    ],
)
def test_an_ignore_file_that_cannot_be_read_whole_holds_as_far_as_it_can(data, trouble):
    """What can be read of it counts, what is wrong is named, and new notes wait."""
    rules = compile_ruleset(EVERYWHERE, read_ignore_file(data))
    assert trouble == str(rules.holding[0])
    assert ExclusionReason.PATTERN == judge(rules, "a/drafts/b.md")
    assert rules.id == pickle.loads(pickle.dumps(rules)).id


def test_an_ignore_file_that_is_no_file_holds_new_notes_and_has_an_id_of_its_own():
    """A link or a folder in its place is not the same as no rules."""
    rules = compile_ruleset(EVERYWHERE, None, "not a regular file")
    assert [".vaultmemoryignore: not a regular file"] == [str(problem) for problem in rules.holding]
    assert compile_ruleset(EVERYWHERE, None).id != rules.id
    assert rules.id == pickle.loads(pickle.dumps(rules)).id


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_an_ignore_file_in_utf16_is_read_by_its_mark(encoding):
    """What some Windows editors write."""
    data = "\ufeff私人/\n".encode(encoding)
    assert "私人/\n" == read_ignore_file(data)


def test_an_ignore_file_is_read_as_utf8_without_its_mark():
    """A Windows editor's mark is no part of the first pattern."""
    assert "私人/\n" == read_ignore_file("\ufeff私人/\n".encode())


@pytest.mark.parametrize(
    "scan",
    [
        ScanSettings(roots=()),
        ScanSettings(roots=("",)),
        ScanSettings(roots=("/etc",)),
        ScanSettings(roots=("a/../..",)),
        ScanSettings(roots=("a\\b",)),
    ],
)
def test_a_root_that_cannot_mean_anything_is_refused(scan):
    """A typing mistake in what lets notes in is an error; nothing was hidden by it."""
    with pytest.raises(ConfigError, match=r"^scan\."):
        compile_ruleset(scan, None)


@pytest.mark.parametrize(
    ("setting", "entries", "hidden"),
    [
        ("exclude_directories", ("Diary", "Areas/Health"), ["diary/a.md", "x/areas/health/b.md"]),
        ("exclude_directories", ("Diary", " "), ["diary/a.md"]),
        ("exclude_keywords", ("salary", ""), ["a/salary.md"]),
        ("exclude_patterns", ("*.tmp.md", "[x"), ["a/b.tmp.md", "a/[x"]),
    ],
)
def test_a_setting_to_exclude_that_cannot_be_read_holds_new_notes_and_undoes_no_other(setting, entries, hidden):
    """The entry is named, the others hold, and a path where a name was wanted is kept out as the path it is."""
    rules = compile_ruleset(replace(EVERYWHERE, **{setting: entries}), None)
    assert [f"scan.{setting}, entry 2"] == [problem.where for problem in rules.holding]
    assert all(judge(rules, path) is not None for path in hidden)
    assert judge(rules, "free/a.md") is None


@pytest.mark.parametrize(
    "head",
    [
        "private: true",
        "private: yes",
        'private: "True"',
        "private: 1",
        "private: on",
        "Private: y",
        "private: 是",
        "private: maybe",
        "private: [false, true]",
        "private: true\nprivate: false",
        "private: false\nprivate: true",
        "confidential: true",
        "sensitive: true",
        "secret: true",
        "is_private: true",
        "私密: true",
        "机密: 是",
        "vault-memory: false",
        "vault-memory: exclude",
        "Vault_Memory: Ignore",
        "vault-memory: no",
        "memory: false",
        "memory: off",
    ],
)
def test_row_20_a_privacy_key_excludes(head):
    """Any occurrence with anything but a clear no wins."""
    assert ExclusionReason.FRONT_MATTER == document(f"title: x\n{head}")


@pytest.mark.parametrize(
    "head",
    [
        "private: false",
        "private: no",
        "private: 'off'",
        "private: 0",
        "private:",
        "private: 否",
        "vault-memory: true",
        "memory: 64 GB",
        "memory:",
        "privateer: true",
        "publish: false",
        "tags: [public, privateer]",
    ],
)
def test_row_20_a_clear_no_or_another_key_does_not_exclude(head):
    """Words that only look alike leave a note in."""
    assert document(head) is None


@pytest.mark.parametrize(
    "head",
    [
        "tags: [private]",
        'tags: "#private"',
        "tags: work, Private",
        "tags:\n  - work\n  - private/sub",
        "tag: 私密",
        "tags: [private]\ntags: [public]",
        "Tags: CONFIDENTIAL",
    ],
)
def test_row_20_a_private_tag_in_front_matter_excludes(head):
    """Lists, texts, nested tags and repeated keys all count."""
    assert ExclusionReason.TAG == document(head)


@pytest.mark.parametrize("tag", ["private", "#Private", "private/sub", "private/sub/x", "机密", "SECRET"])
def test_row_20_a_private_tag_in_the_text_excludes(tag):
    """A nested tag belongs to the tag it is nested in."""
    assert ExclusionReason.TAG == document("title: x", "work", tag)


@pytest.mark.parametrize("tag", ["privateer", "sub/private", "not-private", ""])
def test_another_tag_does_not_exclude(tag):
    """A tag is compared whole, from its outermost part."""
    assert document("title: x", tag) is None


def test_the_id_changes_with_everything_that_can_change_an_outcome(monkeypatch):
    """Row 23: any setting, an ignore line or a version gives another id; comments do not."""
    base = compile_ruleset(ScanSettings(), "a/\n# x\n").id
    others = {
        compile_ruleset(ScanSettings(), None).id,
        compile_ruleset(ScanSettings(), "b/").id,
        compile_ruleset(ScanSettings(roots=("x",)), "a/").id,
        compile_ruleset(ScanSettings(exclude_directories=()), "a/").id,
        compile_ruleset(ScanSettings(exclude_keywords=("x",)), "a/").id,
        compile_ruleset(ScanSettings(exclude_patterns=("x",)), "a/").id,
        compile_ruleset(ScanSettings(private_tags=()), "a/").id,
        compile_ruleset(ScanSettings(max_note_bytes=9), "a/").id,
        compile_ruleset(ScanSettings(time_budget_seconds=9.0), "a/").id,
    }
    for name in ("RULES_VERSION", "CHUNKER_VERSION", "TOKENIZER_VERSION", "EXCLUSION_VERSION"):
        with monkeypatch.context() as patch:
            patch.setattr(exclusion, name, "another")
            others.add(compile_ruleset(ScanSettings(), "a/").id)
    assert 13 == len(others - {base})
    assert base == compile_ruleset(ScanSettings(), "\n# y\na/\r\n").id
    assert 33 == len(base)


def test_a_ruleset_crosses_a_process_border_unchanged():
    """A pickled ruleset is compiled anew and judges alike."""
    rules = compile_ruleset(ScanSettings(exclude_keywords=("x",)), "drafts/\n")
    copy = pickle.loads(pickle.dumps(rules))
    assert rules == copy
    assert ExclusionReason.PATTERN == judge(copy, "01_Projects/drafts/a.md")


def test_a_ruleset_shows_its_id_alone():
    """Folder names and patterns are private as well: a log gets the id."""
    rules = compile_ruleset(ScanSettings(exclude_keywords=("Müller",)), "divorce/")
    assert f"Ruleset(id='{rules.id}')" == repr(rules)
