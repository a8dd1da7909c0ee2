import hashlib

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_memory.notes.chunking import MAX_TOKENS, chunk, chunk_ids, token_bound
from vault_memory.notes.frontmatter import FrontMatterState, split_front_matter
from vault_memory.notes.model import Chunk, Script
from vault_memory.notes.pieces import MAX_CHARACTERS, cluster_border
from vault_memory_tests.unit.notes.builders import make_clean_note

DETERMINISTIC = settings(derandomize=True, deadline=None, max_examples=200)


def _chunks(*lines: str, path: str = "01_Projects/x.md") -> tuple[Chunk, ...]:
    return chunk(make_clean_note("\n".join(lines), path))


def _texts(*lines: str) -> list[str]:
    return [item.embed_text for item in _chunks(*lines)]


def _spans(chunks: tuple[Chunk, ...]) -> list[tuple[int, int]]:
    return [(item.start_line, item.end_line) for item in chunks]


class TestShape:
    """What one note becomes."""

    def test_a_short_section_is_one_chunk(self):
        """Heading, paragraphs and lists stay together where they fit."""
        (only,) = _chunks("# A", "", "one", "", "- two", "- three")

        assert (("A",), 1, 1, 6) == (only.heading_path, only.level, only.start_line, only.end_line)
        assert "# A\n\none\n\n- two\n- three" == only.content

    def test_the_text_sent_is_title_path_and_body(self):
        """The heading itself is in the path, once."""
        assert ["T > A > B\nbody"] == _texts("---", "title: T", "---", "# A", "## B", "body")

    def test_a_first_heading_that_is_the_title_is_not_repeated(self):
        """Title and H1 are mostly the same."""
        assert ["A > B\nbody"] == _texts("# A", "## B", "body")

    def test_a_title_from_the_file_name_is_never_sent(self):
        """So that a rename costs nothing."""
        first = _chunks("body", path="01_Projects/first.md")
        second = _chunks("body", path="01_Projects/second.md")

        assert ["body"] == [item.embed_text for item in first]
        assert first == second

    def test_b01_a_fence_with_comments_is_one_chunk(self):
        """A script's comments cut nothing."""
        (only,) = _chunks("# A", "```bash", "# install deps", "pip install x", "", "# run", "```")

        assert "A\n```bash\n# install deps\npip install x\n\n# run\n```" == only.embed_text

    def test_b05_byte_order_mark_and_line_ends_change_nothing(self):
        """The same note from Windows gives the same chunks."""
        text = "---\ntitle: T\n---\n# A\n\ntext\nmore\n\n## B\ntext"

        expected = chunk(make_clean_note(text))
        assert expected == chunk(make_clean_note("\ufeff" + text.replace("\n", "\r\n")))
        assert expected == chunk(make_clean_note(text.replace("\n", "\r")))

    def test_b07_a_note_with_broken_front_matter_is_still_cut(self):
        """Its body is what counts."""
        assert ["A\nbody"] == _texts("---", "key: [unclosed", "---", "# A", "body")

    def test_b09_lines_are_file_lines(self):
        """Front matter counts."""
        assert [(6, 6), (7, 8)] == _spans(_chunks("---", "title: T", "a: 1", "---", "", "text", "# A", "more"))

    @pytest.mark.parametrize("line", ["x" * 10_000, "word " * 2_000, "一句话。" * 2_500, "é" * 5_000, "🏳️‍🌈" * 2_000])
    def test_b10_the_cap_holds_for_a_line_without_end(self, line):
        """A huge line is cut, every part cites it, and nothing of it is lost."""
        chunks = _chunks("# A", "", line)

        assert max(len(item.content) for item in chunks) <= MAX_CHARACTERS
        assert {3} == {item.end_line for item in chunks}
        assert line.strip() == "".join(item.content for item in chunks).removeprefix("# A\n\n").strip()

    def test_b13_a_long_table_repeats_its_header(self):
        """Every part reads as a table; every row is in one of them, with its line."""
        rows = [f"| row {number} | value {number} |" for number in range(200)]
        chunks = _chunks("# A", "", "| name | value |", "|---|---|", *rows)

        assert len(chunks) > 5
        for item in chunks:
            body = item.content.removeprefix("# A\n\n").split("\n")
            assert ["| name | value |", "|---|---|"] == body[:2]
            assert rows[item.end_line - 5] == body[-1]
        assert rows == [line for item in chunks for line in item.content.split("\n") if line.startswith("| row")]

    def test_a_header_row_longer_than_the_cap_is_cut(self):
        """A hostile table does not break the cap."""
        chunks = _chunks("|" + "h" * 3_000 + "|", "|-|", *["| cell |"] * 300)

        assert max(len(item.content) for item in chunks) <= MAX_CHARACTERS

    def test_a_long_fence_is_cut_between_lines_and_stays_code(self):
        """Each part opens and closes the fence; the lines cited are those of its code."""
        code = [f"print({number})  # [[not a link]] %%not a comment%%" for number in range(60)]
        chunks = _chunks("# A", "", "~~~python", *code, "~~~")

        assert len(chunks) > 2
        for item in chunks:
            body = item.content.removeprefix("# A\n\n").split("\n")
            assert ("~~~python", "~~~") == (body[0], body[-1])
        assert code == [line for item in chunks for line in item.embed_text.split("\n") if line.startswith("print")]
        assert [3, *(item.end_line + 1 for item in chunks[:-1])] == [max(item.start_line, 3) for item in chunks]

    @pytest.mark.parametrize(
        "lines",
        [[], [""], ["", " ", "\t"], ["---", "a: 1", "---"], ["%%", "hidden", "%%"], ["<!-- hidden -->"]],
    )
    def test_b15_an_empty_note_has_one_chunk_and_sends_nothing(self, lines):
        """It stays findable by its file name."""
        (only,) = _chunks(*lines)

        assert ("", "", 0) == (only.content, only.embed_text, only.token_bound)

    def test_b15_front_matter_alone_sends_its_title(self):
        """A title somebody wrote is worth embedding."""
        assert ["T"] == _texts("---", "title: T", "---")

    @pytest.mark.parametrize(("lines", "text"), [(["# A"], "A"), (["# A", "## B", ""], "A > B"), (["## B"], "B")])
    def test_b15_headings_alone_are_one_chunk(self, lines, text):
        """Their text is shown, their path is embedded."""
        (only,) = _chunks(*lines)

        assert text == only.embed_text
        assert "\n".join(lines).strip() == only.content

    def test_b16_a_heading_alone_folds_into_what_follows(self):
        """Shown and cited with the next section; that section's text is the same without it."""
        (only,) = _chunks("# A", "", "## Empty", "", "## B", "text")

        assert ("# A\n\n## Empty\n\n## B\ntext", 1, 6) == (only.content, only.start_line, only.end_line)
        assert "A > B\ntext" == only.embed_text

    def test_b16_a_heading_is_never_cut_from_its_text(self):
        """Not even where the first paragraph nearly fills a chunk."""
        first = _chunks("# A", "", "A sentence of words. " * 47)[0]

        assert len(first.content) > 200

    def test_b18_every_word_of_a_long_note_is_in_a_chunk(self):
        """Also behind character 6,000."""
        chunks = _chunks("# A", "", *["filler words\n"] * 1_000, "quetzalcoatl")

        assert "quetzalcoatl" in chunks[-1].content

    def test_b22_equal_paragraphs_have_different_ids(self):
        """Both are kept."""
        lines = ["## Same", "text", "", "## Same", "text"]
        chunks = _chunks(*lines)
        ids = chunk_ids("a.md", chunks)

        assert chunks[0].text_hash == chunks[1].text_hash
        assert (2, 32) == (len(set(ids)), len(ids[0]))
        assert ids == chunk_ids("a.md", _chunks(*lines, ""))
        assert not set(ids) & set(chunk_ids("b.md", chunks))

    def test_b50_chinese_counts_in_full(self):
        """Characters divided by four is far too low there."""
        assert token_bound("汉字") >= 2
        assert token_bound("👩‍👩‍👧") >= 18
        longest = max(item.token_bound for item in _chunks("# " + "题" * 5_000, "## " + "𠀀" * 900, "𠀀" * 9_000))
        assert longest < MAX_TOKENS

    def test_scripts(self):
        """A few Chinese words do not make a text Chinese; a tenth does."""
        assert [Script.CJK, Script.LATIN, Script.CJK, Script.LATIN] == [
            _chunks(text)[0].script for text in ("数据库 and so on", "a" * 200 + "数据", "ひらがな", "1234 🎉")
        ]


class TestObsidian:
    """What Obsidian adds to Markdown."""

    def test_links_comments_and_block_ids(self):
        """What the reader sees is embedded; what the file says is shown."""
        line = "See [[note|alias]], [[other]], [[n#h]] ![[pic.png|100]] %%draft%% now<!-- x --> `[[code]] %%` ^abc-1"
        (only,) = _chunks(line)

        assert line == only.content
        assert "See alias, other, n > h pic.png  now `[[code]] %%` " == only.embed_text

    def test_a_comment_over_several_lines_is_neither_shown_nor_sent(self):
        """Lines that are comment alone are left out; the others keep their lines."""
        (only,) = _chunks("a", "%%", "# hidden", "", "hidden", "%%", "b")

        assert ("a\n\n\nb", "a\n\nb", 1, 7) == (only.content, only.embed_text, only.start_line, only.end_line)

    def test_callouts_tasks_formulas_footnotes_and_html_are_text(self):
        """Nothing of what people write is lost."""
        lines = [
            "> [!note] Title",
            "> body",
            "",
            "- [ ] task",
            "- [x] done",
            "",
            "$$",
            "x = 1",
            "$$",
            "",
            "a[^1]",
            "",
            "[^1]: foot",
            "",
            "<div>",
            "html",
            "</div>",
        ]
        (only,) = _chunks(*lines)

        assert "\n".join(lines) == only.content == only.embed_text

    def test_dataview_and_templater_are_code(self):
        """A query is shown as it stands."""
        lines = ["```dataview", 'TABLE file.name FROM [[x|y]] WHERE a = "%%"', "```", "", "<% tp.date.now() %>"]

        assert ["\n".join(lines)] == _texts(*lines)


LINE = st.text(alphabet=st.sampled_from("abcdefgh  .,数据库记忆。é"), min_size=1, max_size=150).map(
    lambda text: "w" + text.strip()
)
SHORT = st.lists(st.lists(LINE, min_size=1, max_size=3), min_size=1, max_size=4)
PARAGRAPHS = st.lists(st.lists(LINE, min_size=1, max_size=4), min_size=1, max_size=30)


def _section(paragraphs: list[list[str]], heading: str = "## H") -> str:
    return "\n\n".join([heading, *("\n".join(lines) for lines in paragraphs)]) + "\n"


def _hashes(text: str, path: str = "01_Projects/x.md") -> set[str]:
    return {item.text_hash for item in chunk(make_clean_note(text, path))}


class TestStability:
    """P5: what an edit costs."""

    @DETERMINISTIC
    @given(PARAGRAPHS, LINE, st.data())
    def test_editing_a_line_sends_at_most_two_texts(self, paragraphs, line, data):
        """P5: in sections of any length, whatever line is put in another's place."""
        paragraphs = paragraphs * data.draw(st.integers(1, 4))
        before = _hashes(_section(paragraphs))
        number = data.draw(st.integers(0, len(paragraphs) - 1))
        place = data.draw(st.integers(0, len(paragraphs[number]) - 1))
        edited = [list(lines) for lines in paragraphs]
        edited[number][place] = line

        assert 2 >= len(_hashes(_section(edited)) - before)

    @DETERMINISTIC
    @given(st.lists(SHORT, min_size=1, max_size=4), SHORT, st.data())
    def test_adding_a_section_leaves_the_others_alone(self, sections, added, data):
        """Wherever it is put."""
        texts = [_section(paragraphs, f"## {number}") for number, paragraphs in enumerate(sections)]
        before = _hashes("\n".join(texts))
        texts.insert(data.draw(st.integers(0, len(texts))), _section(added, "## new"))

        assert before <= _hashes("\n".join(texts))

    def test_adding_a_heading_without_text_leaves_the_others_alone(self):
        """Also where it folds into the next section."""
        before = _hashes("## A\na\n\n## B\nb\n")

        assert before <= _hashes("## A\na\n\n## new\n\n## B\nb\n")
        assert before <= _hashes("## A\na\n\n## B\nb\n\n## new\n")

    def test_editing_a_heading_changes_its_subtree_alone(self):
        """Title and other sections keep their texts."""
        text = "# T\nt\n## A\na\n### A1\nb\n## B\nc\n"

        assert 2 == len(_hashes(text) - _hashes(text.replace("## A\n", "## X\n")))

    def test_the_title_is_in_every_text(self):
        """A change of it is a change of all."""
        text = "---\ntitle: T\n---\n## A\na\n## B\nb\n"

        assert not _hashes(text) & _hashes(text.replace("title: T", "title: U"))

    def test_an_edit_in_a_long_line_stays_local(self):
        """A sentence more in a paragraph of 12,000 characters moves no border behind it."""
        sentences = [f"Sentence {hashlib.sha256(bytes([n])).hexdigest()} number {n}." for n in range(120)]
        before = _hashes("## A\n\n" + " ".join(sentences))
        sentences.insert(60, "One more sentence here.")

        assert 2 >= len(_hashes("## A\n\n" + " ".join(sentences)) - before)


NOTE = st.lists(
    st.one_of(
        LINE,
        st.sampled_from(
            ["", "", "# A", "## B", "### C", "===", "---", "```", "````py", "~~~", "%%", "%% x %%", "<!--", "-->",
             "- a", "  - b", "1. c", "> q", "> - x", "|a|b|", "|-|-|", "|1|2|", "$$", "<div>", "    code",
             "\tcode", "[[a|b]]",
             "x ^id", "`a", "a``b", "\r", "\x0c", "\u2028", "\x85", "\0", "w " * 700, "长" * 1_500, "a\u0301" * 900,
             "|" + "x" * 1_200 + "|", "# " + "h" * 1_500]
        ),
    ),
    max_size=60,
)  # fmt: skip


class TestEveryNote:
    """What holds for any text."""

    @DETERMINISTIC
    @given(NOTE)
    def test_caps_lines_and_coverage(self, lines):
        """Whatever the note: caps hold, content stands on its lines, no line is lost, nothing raises."""
        note = make_clean_note("\n".join(lines))
        file_lines = note.text.split("\n")
        chunks = chunk(note)

        assert list(range(len(chunks))) == [item.ordinal for item in chunks]
        assert len(chunks) == len(set(chunk_ids("x.md", chunks)))
        starts = [item.start_line for item in chunks]
        assert starts == sorted(starts)
        covered = set()
        for item in chunks:
            assert len(item.content) <= MAX_CHARACTERS
            assert token_bound(item.embed_text) <= item.token_bound < MAX_TOKENS
            assert 1 <= item.start_line <= item.end_line <= len(file_lines)
            covered.update(range(item.start_line, item.end_line + 1))
            cited = "\n".join(file_lines[item.start_line - 1 : item.end_line])
            # A repeated table header or a fence's two marks stand on other lines, and nothing else does.
            elsewhere = [line for line in item.content.split("\n") if line not in cited]
            assert len(elsewhere) <= 2
            assert all(any(line in whole for whole in file_lines) for line in elsewhere)
        if "%%" not in note.text and "<!--" not in note.text:
            front_matter = split_front_matter(note.text)
            unseen = set(range(1, front_matter.first_body_line))
            if front_matter.state is FrontMatterState.NOT_A_MAPPING:
                unseen = {1, front_matter.first_body_line - 1}  # prose between two rules
            assert {number for number, line in enumerate(file_lines, 1) if line.strip()} - unseen <= covered

    @DETERMINISTIC
    @given(st.lists(LINE, min_size=1, max_size=60))
    def test_a_plain_note_is_the_sum_of_its_chunks(self, lines):
        """Every line once, in order, and on the line that is cited."""
        chunks = _chunks(*lines)

        assert lines == [line for item in chunks for line in item.content.split("\n")]
        assert all(lines[item.start_line - 1 : item.end_line] == item.content.split("\n") for item in chunks)

    @settings(DETERMINISTIC, max_examples=25)
    @given(st.randoms(use_true_random=False))
    def test_no_cluster_is_cut(self, random):
        """A family stays together, an accent on its letter."""
        text = "".join(random.choices(["e\u0301", "👩‍👩‍👧", "🇨🇳", "한", "x", "क्षि"], k=800))
        whole = regex.findall(r"\X", text)

        assert whole == [cluster for item in _chunks(text) for cluster in regex.findall(r"\X", item.content)]

    def test_the_cap_wins_over_a_cluster_without_end(self):
        """A letter with 5,000 accents is cut all the same."""
        chunks = _chunks("a" + "\u0301" * 5_000)

        assert max(len(item.content) for item in chunks) <= MAX_CHARACTERS
        assert 10 == cluster_border("a" + "\u0301" * 50, 0, 10)


def test_golden_note():
    """A rich note in two languages, chunk by chunk: lines, path and the exact text sent."""
    text = """---
title: 季度复盘 Q3
tags: [复盘, review]
---
开头的话，没有标题。

# 数据库

## 迁移 Migration

我们把 [[旧库|旧的数据库]] 迁到新集群。 ^blk1
Cut-over took *40 minutes*; see [[runbook#Rollback]].

%% 私下的想法 %%

- [x] 备份
- [ ] 校验 #任务/数据库

```sql
-- # not a heading
SELECT 1; -- [[not a link]]
```

## 空的

Setext 标题
-----------

| 指标 | value |
|------|-------|
| P95  | 12 ms |

> [!warning] 小心
> 不要重复执行。
"""
    found = [
        (item.start_line, item.end_line, item.level, item.script.value, item.embed_text)
        for item in chunk(make_clean_note(text))
    ]

    assert [
        (5, 5, 0, "cjk", "季度复盘 Q3\n开头的话，没有标题。"),
        (
            7,
            22,
            2,
            "cjk",
            (
                "季度复盘 Q3 > 数据库 > 迁移 Migration\n我们把 旧的数据库 迁到新集群。 \n"
                "Cut-over took *40 minutes*; see runbook > Rollback.\n\n- [x] 备份\n- [ ] 校验 #任务/数据库\n\n"
                "```sql\n-- # not a heading\nSELECT 1; -- [[not a link]]\n```"
            ),
        ),
        (
            24,
            34,
            2,
            "cjk",
            (
                "季度复盘 Q3 > 数据库 > Setext 标题\n| 指标 | value |\n|------|-------|\n| P95  | 12 ms |\n\n"
                "> [!warning] 小心\n> 不要重复执行。"
            ),
        ),
    ] == found
