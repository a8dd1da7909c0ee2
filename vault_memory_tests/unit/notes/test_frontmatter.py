import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_memory.notes.frontmatter import FrontMatterState, might_mention, split_front_matter

DETERMINISTIC = settings(derandomize=True, deadline=None, max_examples=300)


def _read(*lines: str):
    return split_front_matter("\n".join(["---", *lines, "---", "body"]))


class TestSplitFrontMatter:
    """Where front matter ends and what it says."""

    def test_it_counts_at_line_1_only(self):
        """A rule further down opens no front matter."""
        assert FrontMatterState.ABSENT is split_front_matter("\n---\na: 1\n---\n").state
        assert FrontMatterState.ABSENT is split_front_matter("").state

    def test_the_body_starts_behind_the_closing_fence(self):
        """Lines are file lines."""
        assert 5 == _read("a: 1", "b: 2").first_body_line
        assert 3 == split_front_matter("---\n---").first_body_line

    def test_an_empty_block_is_an_empty_mapping(self):
        """Blanks and comments are no values, and no fault."""
        assert (FrontMatterState.OK, {}) == (_read("# nothing").state, dict(_read("# nothing").values))

    def test_b06_dates_and_odd_numbers_become_text(self):
        """What JSON cannot hold is written as text, so that no note is lost over its date."""
        found = _read(
            "day: 2026-07-30",
            "moment: 2026-07-30T09:05:00Z",
            "local: 2026-07-30 09:05:00 +8",
            "none: .nan",
            "much: -.inf",
            "more: 1e999",
            "set: !!set {a, b}",
            "no_day: 2026-13-45",
        )

        expected = {
            "day": "2026-07-30",
            "moment": "2026-07-30T09:05:00+00:00",
            "local": "2026-07-30T09:05:00+08:00",
            "none": "nan",
            "much": "-inf",
            "more": "inf",
            "set": ["a", "b"],
            "no_day": "2026-13-45",
        }
        assert expected == found.values
        json.dumps(dict(found.values), allow_nan=False)

    def test_plain_values_are_read_as_obsidian_shows_them(self):
        """Booleans in all their spellings; times, versions and codes with a leading zero stay text."""
        found = _read(
            "a: yes", "b: off", 'c: "yes"', "d: 12:30", "e: 0123", "f: 1.10.2", "g: 42", "h: -1.5", "i:", "on: 1"
        )

        expected = {
            "a": True, "b": False, "c": "yes", "d": "12:30", "e": "0123",
            "f": "1.10.2", "g": 42, "h": -1.5, "i": None, "on": 1,
        }  # fmt: skip
        assert expected == found.values

    def test_all_occurrences_of_a_key_are_kept(self):
        """A second ``private: false`` does not undo the first."""
        found = _read("private: true", "private: false")

        assert (("private", True), ("private", False)) == found.pairs
        assert {"private": False} == found.values

    @pytest.mark.parametrize("line", ["\tkey: value", "key: [unclosed", "title: a: b", "key: 'x", "a: b\n c: d\n-"])
    def test_b07_broken_yaml_is_a_state(self, line):
        """Broken YAML costs its values, not the note."""
        found = _read(line)

        assert (FrontMatterState.INVALID, {}, False) == (found.state, dict(found.values), found.readable)

    def test_other_shapes_are_states(self):
        """A list, a value and a block without end are told apart."""
        assert FrontMatterState.NOT_A_MAPPING is _read("- a").state
        assert FrontMatterState.NOT_A_MAPPING is _read("prose").state
        unterminated = split_front_matter("---\nprivate: true\nbody")
        assert (FrontMatterState.UNTERMINATED, 1) == (unterminated.state, unterminated.first_body_line)
        assert ("private: true", "body") == unterminated.raw_lines

    @pytest.mark.parametrize(
        "source",
        [
            'a: &a ["x","x","x","x","x","x","x","x","x"]\n'
            + "\n".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
            "k: " + "[" * 20_000,
            "{a: " * 20_000,
            "- " * 20_000,
            "x: !!python/object/apply:os.system [id]",
            "x: !mine 1",
            "n: " + "9" * 5_000,
            "k: v\n" * 100_000,
            "- a\n" * 10_000,
            "[" + "a," * 30_000 + "]",
            "base: &b {private: true}",
            "<<: {private: true}",
            "a: 1\n--- \nb: 2".replace("--- ", "--- x"),
        ],
        ids=[
            "bomb",
            "flow",
            "maps",
            "sequences",
            "object",
            "tag",
            "digits",
            "huge",
            "long",
            "wide",
            "anchor",
            "merge",
            "two",
        ],
    )
    def test_what_no_note_needs_is_refused_at_once(self, source):
        """Nothing is expanded, constructed or counted to the end, and nothing of it is in the result's text."""
        best = min(_timed(source) for _ in range(5))

        assert FrontMatterState.REFUSED is _read(source).state
        assert 0.01 > best  # 3 ms where it was measured
        assert "private" not in repr(_read(source))

    def test_nul_and_surrogates_written_as_escapes_are_replaced(self):
        """PostgreSQL refuses both in JSON."""
        assert {"a": "x\ufffdy"} == _read(r'a: "x\0y"').values

    @DETERMINISTIC
    @given(st.text(alphabet=st.sampled_from("ab:- \n[]{}\"'&*!#|>?%@`\t\\0.~é密"), max_size=80))
    def test_it_never_raises(self, source):
        """Whatever stands there, there is an answer that JSON can hold."""
        found = split_front_matter(f"---\n{source}\n---\n")

        json.dumps(dict(found.values), allow_nan=False)
        assert found.first_body_line >= 1


def _timed(source: str) -> float:
    start = time.process_time()
    split_front_matter(f"---\n{source}\n---\n")
    return time.process_time() - start


class TestMightMention:
    """What unreadable front matter may hide."""

    @pytest.mark.parametrize(
        "line",
        [
            "private: true",
            "\tPRIVATE : yes",
            "{a: 1, 'private': true",
            '"priv\\u0061te": true',
            "ｐｒｉｖａｔｅ: true",
            "pri\u200bvate: true",
            "? private",
            '"priv\\\n  ate": 1',
            "!!binary cHJpdmF0ZQ==: true",
        ],
    )
    def test_a_key_is_seen_in_every_spelling(self, line):
        """Fail closed: what may be the key counts as the key."""
        assert might_mention(line.split("\n"), ["private"])

    @pytest.mark.parametrize("line", ["privateer: x", "semi-private: x", "title: [broken", ""])
    def test_other_words_do_not_count(self, line):
        """A broken note about privateers is still indexed."""
        assert not might_mention([line], ["private"])

    def test_chinese_keys_work_alike(self):
        """Keys are text, in whatever script."""
        assert might_mention(["私密： 是"], ["私密"])
