import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_memory.notes.markdown import parse
from vault_memory.notes.model import BlockKind, Document

DETERMINISTIC = settings(derandomize=True, deadline=None, max_examples=300)


def _parse(*lines: str) -> Document:
    return parse("\n".join(lines), fallback_title="file name")


def _headings(document: Document) -> list[tuple[str, ...]]:
    return [section.heading_path for section in document.sections if section.level]


class TestHeadings:
    """What is a heading and what only looks like one."""

    @pytest.mark.parametrize(
        "fence",
        [
            ["```bash", "# install deps", "```"],
            ["~~~", "# install deps", "~~~"],
            ["````", "```", "# install deps", "```", "````"],
            ["   ```", "# install deps", "   ```"],
            ["- a", "  ```", "  # install deps", "  ```"],
            ["> ```", "> # install deps", "> ```"],
            ["    # install deps"],
        ],
    )
    def test_b01_none_inside_a_fence(self, fence):
        """A comment in a script is no heading, and later sections keep their path."""
        document = _parse("# A", "", *fence, "", "## B")

        assert [("A",), ("A", "B")] == _headings(document)

    def test_b01_an_unclosed_fence_runs_to_the_end(self):
        """As CommonMark and Obsidian have it."""
        assert [("A",)] == _headings(_parse("# A", "```", "# b", "", "# c"))

    def test_b04_setext_headings_are_headings(self):
        """An underline makes a heading, also behind front matter."""
        document = _parse("---", "a: 1", "---", "Title", "=====", "", "Sub", "---", "text")

        assert [("Title",), ("Title", "Sub")] == _headings(document)
        assert [(4, 6), (7, 9)] == [(section.start_line, section.end_line) for section in document.sections]

    @pytest.mark.parametrize("body", ["a: 1", "- a", "prose", "key: [unclosed"])
    def test_b04_the_end_of_front_matter_underlines_nothing(self, body):
        """Whatever stands between the fences, the second one is no underline."""
        assert [("H",)] == _headings(_parse("---", body, "---", "# H"))

    @pytest.mark.parametrize(
        "hidden",
        [
            ["%%", "# no", "", "# no", "%%"],
            ["%% a", "# no", "b %%"],
            ["<!--", "# no", "", "# no", "-->"],
            ["<div>", "# no", "</div>"],
            ["$$", "# no", "$$"],
        ],
    )
    def test_none_inside_comments_html_and_formulas(self, hidden):
        """What is not rendered as a heading is none."""
        assert [("A",), ("B",)] == _headings(_parse("# A", "", *hidden, "", "# B"))

    def test_levels_may_be_skipped(self):
        """The path holds the headings there are."""
        assert [("A",), ("A", "C"), ("A", "B"), ("D",)] == _headings(_parse("# A", "### C", "## B", "# D"))

    def test_a_heading_reads_as_its_reader_sees_it(self):
        """Links by their alias, comments gone, closing marks gone."""
        assert [("See y 100 %",)] == _headings(_parse("## See [[x|y]] %%draft%% 100 % ##"))

    def test_two_stray_formula_marks_swallow_nothing(self):
        """A formula of 200 lines is none."""
        assert [("A",), ("B",)] == _headings(_parse("# A", "$$ is money", *["x"] * 300, "# B", "y $$"))

    def test_only_line_feeds_end_lines(self):
        """Form feed, NEL, U+2028 and a stray carriage return are text."""
        document = _parse("a\x0c# no\u2028# no\x85# no\r# no", "# Yes")

        assert [("Yes",)] == _headings(document)
        assert 2 == document.sections[-1].start_line


class TestBlocks:
    """Kinds and lines of blocks."""

    def test_kinds_and_lines(self):
        """Each block knows its kind and its file lines."""
        document = _parse(
            "---", "a: 1", "---", "text", "more", "", "- a", "  - b", "", "```", "x", "```", "|a|", "|-|", "|1|",
        )  # fmt: skip

        expected = [
            (BlockKind.TEXT, 4, 5),
            (BlockKind.LIST, 7, 8),
            (BlockKind.FENCE, 10, 12),
            (BlockKind.TABLE, 13, 15),
        ]
        assert expected == [(b.kind, b.start_line, b.end_line) for b in document.sections[0].blocks]

    def test_comments_are_no_blocks(self):
        """A block that is comment alone is left out; one that holds a comment is not."""
        document = _parse("%%", "a", "", "b", "%%", "", "<!-- c -->", "", "text <!-- d -->")

        assert [9] == [block.start_line for block in document.sections[0].blocks]

    def test_an_unclosed_comment_hides_the_rest_and_says_so(self):
        """As Obsidian shows it; the warning is for the person who forgot the end."""
        document = _parse("text", "", "%%", "", "# hidden")

        assert ([], ("comment_unclosed",)) == (_headings(document), document.warnings)

    def test_a_stray_percent_pair_in_a_line_hides_nothing(self):
        """Growth of 5%% is no comment."""
        assert [("B",)] == _headings(_parse("5%% more", "", "%% open", "", "# B"))

    def test_definitions_and_footnotes_are_text(self):
        """Lines that an HTML renderer drops can still be asked for."""
        document = _parse("[id]: https://example.org 'Title'", "", "[^1]: a note", "", "***")

        assert [1, 3, 5] == [block.start_line for block in document.sections[0].blocks]


class TestTitle:
    """Where the title comes from."""

    @pytest.mark.parametrize(
        ("lines", "title", "is_sent"),
        [
            (["---", "title: Own", "---", "# H"], "Own", True),
            (["---", "title: 2026", "---"], "2026", True),
            (["---", "title:", "---", "# H"], "H", True),
            (["## Sub", "# First", "# Second"], "First", True),
            (["## Sub"], "file name", False),
            ([""], "file name", False),
        ],
    )
    def test_front_matter_then_heading_then_file_name(self, lines, title, is_sent):
        """A file name is a title for people, not for the embedding service."""
        document = _parse(*lines)

        assert (title, is_sent) == (document.title, document.title_is_sent)


class TestTagsAndLinks:
    """What a note points at."""

    def test_b20_unicode_tags(self):
        """Letters of any script, nested, with at least one that is no digit."""
        document = _parse("#项目/子项 #café #1990s #123 #a-b_c (#in) #🎉x #e\u0301t")

        assert ("项目/子项", "café", "1990s", "a-b_c", "in", "🎉x", "e\u0301t") == document.tags

    def test_no_tags_inside_code_links_urls_and_comments(self):
        """What only looks like a tag is none."""
        document = _parse(
            "`#a` [[n#b]] [x](y#c) https://example.org/#d %%#e%% <!-- #f --> <a href='#g'> word#h &#35; \\#i",
            "", "```", "#j", "```", "", "    #k", "", "#real",
        )  # fmt: skip

        assert ("real",) == document.tags

    @pytest.mark.parametrize(
        "source",
        ["tags: [a, b]", "tags: '#a, #b'", "tag: a b", "tags:\n- a\n- '#b'", "Tags: a，b", "tags: a\ntag: b"],
    )
    def test_front_matter_tags(self, source):
        """A list or text, with or without the hash, under either name."""
        assert ("a", "b") == _parse("---", source, "---", "#A").tags

    def test_links(self):
        """Wikilinks, embeds and relative links by their target, once each; nothing in code, nothing absolute."""
        document = _parse(
            "[[a|b]] [[a#h]] ![[img.png|100]] [t](sub/n%20o.md#x) [u](<my note.md>) [[#here]] `[[no]]`",
            "[web](https://example.org/a.md) [m](mailto:x@example.org) [p](x(1).md)",
            "", "|[[c\\|d]]|", "|-|", "", "```", "[[no]]", "```",
        )  # fmt: skip

        assert ("a", "img.png", "sub/n o.md", "my note.md", "x(1).md", "c") == document.links


class TestHostileText:
    """Text made to break a parser."""

    @DETERMINISTIC
    @given(st.text(alphabet=st.sampled_from("a b\n\n#->|`~%$=:[]()!<>*1.\t\\\r\0é密\u2028"), max_size=120))
    def test_it_never_raises_and_loses_no_line(self, text):
        """Whatever the text: sections follow each other, and blocks stand on their lines."""
        document = parse(text, fallback_title="t")
        lines = text.split("\n")

        ends = [section.end_line for section in document.sections]
        assert ends == sorted(ends)
        for section in document.sections:
            for block in section.blocks:
                if not document.warnings:
                    assert tuple(lines[block.start_line - 1 : block.end_line]) == block.lines

    @pytest.mark.parametrize(
        "text",
        [
            "[" * 100_000, "*" * 100_000, "`a``b" * 20_000, " ".join("`" * n for n in range(1, 440)), ">" * 100_000,
            "> " * 50 + "\n" + (">" * 40 + " a\n") * 2_300, "- " * 50_000, "[[a" * 33_000, "](aaaa(" * 14_000,
            "|a" * 500 + "|\n" + "|-" * 500 + "|\n" + "|\n" * 50_000, "$$a\n" * 25_000, "%%a\n" * 25_000,
            "- a\nb\n" * 16_000, "<!--\n\n" * 16_000, "<a" + " a=b" * 25_000, "# " + "#" * 100_000,
        ],
        ids=range(16),
    )  # fmt: skip
    def test_crafted_text_takes_no_longer_than_its_size(self, text):
        """100 kB that a full Markdown parser needs minutes for."""
        start = time.process_time()
        parse(text, fallback_title="t")

        assert 3 > time.process_time() - start
