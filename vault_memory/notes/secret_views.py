"""Other readings of a note, each mapped back to its file lines.

A secret that is wrapped, escaped, encoded or written with look-alike letters is still a secret to whoever
reads it, an agent included. Belongs here: turning one text into the texts it can be read as. Does not: what
a secret looks like.

::

    text -> invisible -> nfkc -> confusables -> entities -> markup -> percent     each built on the one before
                                        └-> assembled               └-> joined, reversed, base64 (twice)

A view exists only where it differs from the one before. No step makes text longer than a small multiple of
its input, all decoded pieces of a depth form one view, and ``MAX_DECODED_CHARACTERS`` bounds them together:
where that is not enough, ``DecodeBudgetError`` says so and the caller fails closed.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
import zlib
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_assembly import assembled
from vault_memory.notes.secret_values import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_DECODED_CHARACTERS: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 2

# Format characters, fillers that show nothing, variation selectors and strokes drawn over a letter.
_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\uffff\u0332-\u0338\u20d2\u20d3\u2800\U000e0000-\U000e0fff\U0001d173-\U0001d17a"
)
# Control sequences of terminals (ECMA-48), other controls but tab and line feed, private use: an output that is
# cleaned of them joins what stood on both sides.
_CONTROL: Final = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufdd0-\ufdef\ue000-\uf8ff\U000f0000-\U0010ffff]"
)
_TAG_OFFSET: Final = 0xE0000
_SELECTOR_OFFSET, _SELECTOR_FIRST = 0x100, 16
_CONFUSABLES: Final = str.maketrans(
    "АВЕЅЗІЈКМНОРСТУХЬЫаеіјорсухѕһԁԛԝвкмнтгпԍьΑΒΕΖΗΙΚΜΝΟΡΤΥΧαβγεικνορτυχωϲϳᎪᏴᏟᎬᎻᎫᏦᏞᎷᏢᏚᎢᏙᏔᏃՏօսհոցɑɡɩʀɪʏıȷɴᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢℓ‐‑‒–—−﹣ꞏ․∶꞉ˑ＿",
    "ABES3IJKMHOPCTYXbIaeijopcyxshdqwbkmhtrngbABEZHIKMNOPTYXaBYeiKvopTuxwcjABCEHJKLMPSTVWNSouhnga"
    "giRIYijNACDEJKMOPTUVWZl-------..:::_",
)
_ENTITY: Final = r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,24});?"
_ESCAPE: Final = r"\\(?:u\{?([0-9a-fA-F]{2,4})\}?|x([0-9a-fA-F]{2})|([!-/:-@\[-`{-~])|(?P<octal>[0-7]{3}))"
_BLOCK: Final = (
    "address|article|aside|blockquote|br|caption|center|dd|details|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]|header|hr|legend|li"
    "|main|menu|nav|ol|optgroup|option|p|pre|section|select|summary|table|tbody|tfoot|thead|tr|ul"
)
_ELEMENT: Final = (
    "a|abbr|acronym|area|audio|b|bdi|bdo|big|button|canvas|cite|code|col|colgroup|data|datalist|del|dfn|em|embed|font|i|iframe|img|input|ins|kbd|label|link"
    "|map|mark|meta|meter|nobr|noscript|object|output|param|picture|progress|q|rb|rp|rt|rtc|ruby|s|samp|slot|small|source|span|strike|strong|sub|sup|svg"
    "|template|textarea|time|track|tt|u|use|var|video|wbr"
)
_ATTRIBUTES: Final = r"(?:\s[^<>]{0,400})?/?"
_BEFORE_TAG, _AFTER_TAG = r"[A-Za-z0-9_+/=.)\]>*`~\u0378\u0379-]", r"[A-Za-z0-9_+/=.<!^%\[*`~\u0378\u0379-]"
# What a renderer shows nothing of. A tag of a name that is no element's is one only inside of a word: elsewhere it
# is a placeholder such as <token>.
_MARKUP: Final = (
    rf"(?i)(?P<cell></?t[dh]{_ATTRIBUTES}>)|(?P<block></?(?:{_BLOCK}){_ATTRIBUTES}>)|</?(?:{_ELEMENT}){_ATTRIBUTES}>"
    rf"|(?<={_BEFORE_TAG})</?[a-z][a-z0-9:-]{{0,30}}{_ATTRIBUTES}>(?={_AFTER_TAG})|<[!?][a-z\[/][^<>]{{0,400}}>|\]\]>"
    r"|!\[\[[^\[\]\n]{0,200}\]\]|(?P<link>\[\[(?:[^\[\]|\n]{0,200}\|)?|\]\])|\^?\[\^[^\[\]\s]{1,80}\]|\^\[[^\[\]\n]{0,200}\]"
    r"|!\[[^\[\]\n]{0,200}\](?:\([^()\n]{0,400}\)|\[[^\[\]\n]{0,80}\])"
    r"|\[(?P<shown>[^\[\]\n]{0,200})\](?:\((?![^()\n]{0,400}(?:[?&#]|://[^()/@]{0,100}:[^()@]{0,100}@))[^()\n]{0,400}\)|\[[^\[\]\n]{0,80}\])"
    r"|\*{1,3}|~~|==(?=[^=\s])|`{1,3}|(?<=[A-Za-z0-9_])(?:\$\$?|[~^]|\+\+|\|\||%%)(?=[A-Za-z0-9_])"
)
_MARKUP_SIGN: Final = r"[\]\[<*~=`$^+|%]"
"""One of these stands in every match of the above."""
# Openers of what is hidden down to its end, however far that is.
_HIDDEN: Final = (
    ("<!--", "-->"),
    ("%%", "%%"),
    ("<style", "</style>"),
    ("<script", "</script>"),
    ("<template", "</template>"),
)
_HIDDEN_OPENER: Final = "|".join(re.escape(opener) for opener, _ in _HIDDEN)
_SPACES: Final = r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
# Two signs that Unicode has given to nobody: they stand for what parts words on the page, where it may be a token.
_GAP_OF_BLOCKS, _GAP_OF_SPACES = "\u0378", "\u0379"
_MARKS_ON_ASCII: Final = r"(?<=[!-~\u0378\u0379])[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
_PERCENT: Final = r"(?:%[0-9A-Fa-f]{2})+"
_JOIN: Final = (
    r"(?<=[A-Za-z0-9+/_.-]{20})=[ \t]{0,4}\n(?=[A-Za-z0-9])|(?<=[A-Za-z0-9+/=_.-])[\u0378\u0379]{1,40}(?=[A-Za-z0-9+/=_.-])"
    r"|(?<=[A-Za-z0-9+/=_.:@-])[ \t\u0378\u0379]{0,40}\\?[ \t]{0,8}\n[ \t>\u0378\u0379]{0,40}(?=[A-Za-z0-9+/=_.@-])(?![a-z]{2,12}[_-]|eyJ|A[KS]IA|AIza|SG\.|[a-z+]{3,14}://)"
    r"""|["'`][ \t]{0,20}(?:\\?\n[ \t>]{0,40})?(?:\+|\.{1,2}|\|\||&|<>)?[ \t]{0,20}(?:\\?\n[ \t>]{0,40})?[fFrRbBuU]{0,2}["'`]"""
)
_BLOB: Final = r"[A-Za-z0-9+/_-]{20,}={0,2}"
_BLOB_LINES: Final = r"(?:^[ \t>|]{0,40}[A-Za-z0-9+/]{16,}={0,2}[ \t]{0,8}$\n?){2,}"
_HEX_BLOB: Final = r"(?:[0-9a-f]{2}){20,}|(?:[0-9A-F]{2}){20,}"
_LEAST_BLOB: Final = 16  # characters without a space, in each of the three
# A text as a list of its characters' numbers: 67:68:70, 0x67, 0x68, 103, 104, chr(103)+chr(104), =67=68.
_NUMBERS: Final = (
    (
        r"(?i)(?<![0-9a-z])(?:0x|\\x)?[0-9a-f]{2}(?:(?:[:=-]|[,;]?[ \t]{1,2}|,)(?:0x|\\x)?[0-9a-f]{2}){15,4000}(?![0-9a-z])",
        r"(?i)(?:0x)?([0-9a-f]{2})",
        16,
    ),
    (r"(?i)(?:=[0-9a-f]{2}){8,4000}", r"=(..)", 16),
    (r"(?<![0-9.])[0-9]{2,3}(?:[,; ]{1,3}[0-9]{2,3}){15,4000}(?![0-9.])", r"[0-9]{2,3}", 10),
    (r"(?i)chr\([0-9]{2,3}\)(?:[ \t+.&|]{1,6}chr\([0-9]{2,3}\)){7,4000}", r"[0-9]{2,3}", 10),
)
_BASE32_BLOB: Final = r"(?<![A-Za-z0-9+/=])[A-Z2-7]{32,4000}={0,6}(?![A-Za-z0-9+/])"
_GZIP_MOST: Final = 1 << 20
_REVERSED_ENDS: Final = (
    "-1v-ro-ks", "-tna-ks", "-jorp-ks", "_phg", "_ohg", "_shg", "_uhg", "_rhg", "_tap_buhtig", "-taplg", "_fh",
    "AIKA", "AISA", "azIA", "-bxox", "-pxox", "_evil_ks", "_evil_kr", "_mpn", "-ipyp", "_ksg", "-iax", "_8r", "-GS", "JyeJ",
)  # fmt: skip
_TOKEN: Final = r"[A-Za-z0-9_.-]{24,}"
_PRINTABLE_SHARE: Final = 0.97
_NESTED_LINKS: Final = 3
_PARAGRAPH_END: Final = r"\n(?=[ \t>]{0,40}(?:\n|\Z))"
_LEAST_UTF16: Final = 8
_NFKC_GROWTH: Final = 4096


class DecodeBudgetError(Exception):
    """A note decodes to more text than a scan looks at."""


@dataclass(frozen=True, slots=True)
class View:
    """One reading of a note.

    Attributes:
        name: What was done to the text.
        text: The reading itself.
        removed: Offsets at which newlines of the file were taken out, ascending.
        pieces: For decoded text: offsets at which pieces start, ascending, each with its file line.
        crossing: Only matches that lie over a removed newline or join count; the rest was seen before.
    """

    name: str
    text: str = field(repr=False)
    removed: tuple[int, ...] = ()
    pieces: tuple[tuple[int, int], ...] = ()
    crossing: tuple[int, ...] | None = None
    newlines: list[int] = field(default_factory=list[int], repr=False)

    def line_at(self, offset: int) -> int:
        """Give the file line (1-based) of an offset in this view."""
        if self.pieces:
            return self.pieces[max(0, bisect_right(self.pieces, (offset, 1 << 60)) - 1)][1]
        if not self.newlines:
            self.newlines.append(-1)
            self.newlines.extend(match.start() for match in compiled(r"\n").finditer(self.text))
        return bisect_right(self.newlines, offset - 1) + bisect_right(self.removed, offset)

    def counts(self, start: int, end: int) -> bool:
        """Tell whether a match is news in this view."""
        if self.crossing is None:
            return True
        at = bisect_right(self.crossing, start)
        return at < len(self.crossing) and self.crossing[at] < end


def views(text: str) -> Iterator[View]:
    """Give every reading of a text, the text itself first.

    Raises:
        DecodeBudgetError: What is encoded in the text is too much to look at.
    """
    current = code = text
    yield View("text", current)
    for name, step in _STEPS:
        if name == "markup":
            code = current  # where a sign that Markdown hides, as in $a$b, is still there
        changed = step(current)
        if changed != current:
            current = changed
            yield View(name, current)
    base = View("plain", current)
    tight = _tight(text)
    joined = _join(current if tight is None else tight)
    if joined.crossing:
        yield joined
    lines = View("code", code)
    yield from _from_pieces("assembled", [(piece, lines.line_at(start)) for piece, start in assembled(code)])
    yield from _reversed_tokens(base)
    yield from _decoded(base)
    if tight is not None:
        yield from _decoded(joined)


def _tight(text: str) -> str | None:
    """Read a text once more with its odd spaces and line breaks marked as such; None where it has none of them."""
    current = _unescape_entities(_strip_invisible(text))
    spaced = current if current.isascii() else compiled(_SPACES).sub(_GAP_OF_SPACES, current)
    broken = _strip_markup(_fold(spaced), gap=_GAP_OF_BLOCKS)
    if _GAP_OF_BLOCKS not in broken and _GAP_OF_SPACES not in broken:
        return None
    return _unquote_percent(broken)


def _strip_invisible(text: str) -> str:
    text = compiled(_CONTROL).sub("", text)
    if text.isascii():
        return text
    return compiled(f"[{_INVISIBLE}]").sub(_tag_to_ascii, text)


def _tag_to_ascii(match: re.Match[str]) -> str:
    code = ord(match.group()) - _TAG_OFFSET
    if code >= _SELECTOR_OFFSET:  # variation selectors, each of which can carry a byte
        code -= _SELECTOR_OFFSET - _SELECTOR_FIRST
    return chr(code) if 0x20 <= code < 0x7F else ""


def _nfkc(text: str) -> str:
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text)
    if len(folded) > 2 * len(text) + _NFKC_GROWTH:
        # One ligature can become 18 letters: a note made of them hides more than it says.
        raise DecodeBudgetError
    return folded


def _fold_confusables(text: str) -> str:
    """Fold look-alike letters, and take the marks off ASCII letters: kana and Hangul keep theirs."""
    if text.isascii():
        return text
    bare = compiled(_MARKS_ON_ASCII).sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", bare).translate(_CONFUSABLES)


def _fold(text: str) -> str:
    return text if text.isascii() else _fold_confusables(_nfkc(text))


def _unescape_entities(text: str) -> str:
    for _ in range(MAX_DEPTH):
        if "&" not in text or not compiled(_ENTITY).search(text):
            break
        text = _strip_invisible(compiled(_ENTITY).sub(_entity, text))
    return text


def _read_entities(text: str) -> str:
    read = _unescape_entities(text)
    return text if read == text else _fold(read)


def _entity(match: re.Match[str]) -> str:
    from html import unescape  # noqa: PLC0415 - its table of names is loaded only where an entity stands

    return unescape(match.group()).replace("\n", " ").replace("\r", " ")


def _strip_markup(text: str, gap: str = " ") -> str:
    """Take away what is not shown; the line breaks in it move to the end of their paragraph, whose lines stay joined.

    Args:
        text: The text.
        gap: What stands for the end of a block or a line.
    """
    if "\\" in text:
        text = compiled(_ESCAPE).sub(_unescape_character, text)
        text = _fold(_strip_invisible(text))
    text = _drop(text, _hidden_spans(text))
    if not compiled(_MARKUP_SIGN).search(text):
        return text
    gaps = {"cell": "|", "block": gap}

    for _ in range(_NESTED_LINKS):
        marks = list(compiled(_MARKUP).finditer(text))
        spans = (
            (mark.start(), mark.end(), gaps.get(str(mark.lastgroup), "") if mark["shown"] is None else mark["shown"])
            for mark in marks
        )
        text = _drop(text, spans)
        if not any(mark["shown"] for mark in marks):
            break  # what a link shows can hold marks of its own
    return text


def _hidden_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Find comments, styles and scripts: start, end, nothing."""
    if "<" not in text and "%%" not in text:
        return
    ends, unclosed, position = dict(_HIDDEN), set[str](), 0
    for match in compiled(_HIDDEN_OPENER, re.IGNORECASE).finditer(text):
        opener = match.group().lower()
        if match.start() < position or opener in unclosed:
            continue
        # An HTML comment may be nothing but its opener: <!-->.
        end = compiled(r"-?>").match(text, match.end()) if opener == "<!--" else None
        end = end or compiled(re.escape(ends[opener]), re.IGNORECASE).search(text, match.end())
        if end is None:
            unclosed.add(opener)
            continue
        position = end.end()
        yield match.start(), position, ""


def _drop(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Put something shorter for some spans; line breaks that are lost come back at the paragraph's end."""
    parts: list[str] = []
    end = owed = 0
    for start, stop, instead in spans:
        kept = text[end:start]
        if owed and (gap := compiled(_PARAGRAPH_END).search(kept)):
            kept, owed = f"{kept[: gap.start()]}{chr(10) * owed}{kept[gap.start() :]}", 0
        parts += (kept, instead)
        owed += text.count("\n", start, stop)
        end = stop
    kept = text[end:]
    if owed:
        gap = compiled(_PARAGRAPH_END).search(kept)
        at = gap.start() if gap else len(kept)
        kept = f"{kept[:at]}{chr(10) * owed}{kept[at:]}"
    return "".join([*parts, kept])


def _unescape_character(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    char = chr(int(code, 16)) if code else match[3] or chr(int(match["octal"], 8))
    return " " if char in "\n\r" else char


def _unquote_percent(text: str) -> str:
    for _ in range(MAX_DEPTH):
        if "%" not in text or not compiled(_PERCENT).search(text):
            break
        text = _fold(_strip_invisible(compiled(_PERCENT).sub(_unquote, text)))
    return text


def _unquote(match: re.Match[str]) -> str:
    return bytes.fromhex(match.group().replace("%", "")).decode(errors="replace").replace("\n", " ").replace("\r", " ")


_STEPS: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("invisible", _strip_invisible),
    ("nfkc", _nfkc),
    ("confusables", _fold_confusables),
    ("entities", _read_entities),
    ("markup", _strip_markup),
    ("percent", _unquote_percent),
)


def _join(text: str) -> View:
    """Close up wrapped tokens and concatenated strings."""
    parts: list[str] = []
    removed: list[int] = []
    crossing: list[int] = []
    end = size = 0
    for match in compiled(_JOIN).finditer(text):
        parts.append(text[end : match.start()])
        size += match.start() - end
        crossing.append(size)
        removed.extend([size] * match.group().count("\n"))
        end = match.end()
    parts.append(text[end:])
    return View("joined", "".join(parts), removed=tuple(removed), crossing=tuple(crossing))


def _reversed_tokens(view: View) -> Iterator[View]:
    """Turn tokens around that end as a vendor's token begins."""
    if any(end in view.text for end in _REVERSED_ENDS):
        tokens = [match for match in compiled(_TOKEN).finditer(view.text) if match.group().endswith(_REVERSED_ENDS)]
        yield from _from_pieces("reversed", [(match.group()[::-1], view.line_at(match.start())) for match in tokens])


def _decoded(view: View) -> Iterator[View]:
    """Decode base64 and hexadecimal text, and once more what that gives; read each as a note is read."""
    spent = 0
    for _ in range(MAX_DEPTH):
        pieces: list[tuple[str, int]] = []
        has_blob = any(len(word) >= _LEAST_BLOB for word in view.text.split())
        for pattern in (_BLOB, _BLOB_LINES, _HEX_BLOB) if has_blob else ():
            for match in compiled(pattern, re.MULTILINE).finditer(view.text):
                piece = _decode(match.group(), hexadecimal=pattern is _HEX_BLOB)
                spent += len(piece)
                if spent > MAX_DECODED_CHARACTERS:
                    raise DecodeBudgetError
                if piece:
                    pieces.append((piece, view.line_at(match.start())))
        for piece, start in _numbered(view.text):
            spent += len(piece)
            pieces.append((piece, view.line_at(start)))
        if spent > MAX_DECODED_CHARACTERS:
            raise DecodeBudgetError
        deeper = list(_from_pieces("base64", pieces))
        if not deeper:
            return
        view = deeper[0]
        yield view
        read = [(_read(piece), line) for piece, line in pieces]
        yield from _from_pieces("base64, read", [pair for pair, old in zip(read, pieces, strict=True) if pair != old])


def _numbered(text: str) -> Iterator[tuple[str, int]]:
    """Read lists of characters' numbers, and base32."""
    for pattern, number, base in _NUMBERS:
        for match in compiled(pattern).finditer(text):
            codes = [int(code, base) for code in compiled(number).findall(match.group())]
            if all(32 <= code < 127 or code in {9, 10, 13} for code in codes):
                yield "".join(map(chr, codes)), match.start()
    for match in compiled(_BASE32_BLOB).finditer(text):
        blob = match.group().rstrip("=")
        with suppress(binascii.Error, UnicodeDecodeError):
            piece = base64.b32decode(blob + "=" * (-len(blob) % 8)).decode("ascii")
            if piece.isprintable():
                yield piece, match.start()


def _read(text: str) -> str:
    """Take a text through all steps."""
    for _, step in _STEPS:
        text = step(text)
    return text


def _decode(blob: str, *, hexadecimal: bool) -> str:
    """Decode one blob; empty where the result is no text."""
    if hexadecimal:
        data = binascii.unhexlify(blob)
    else:
        blob = compiled(r"[\s>|=]+").sub("", blob).replace("-", "+").replace("_", "/")
        blob = blob[: len(blob) - (len(blob) % 4 == 1)]
        data = base64.b64decode(blob + "=" * (-len(blob) % 4))
    head = data[:64]
    if data.startswith(b"\x1f\x8b"):
        with suppress(zlib.error):
            data = zlib.decompressobj(wbits=31).decompress(data, _GZIP_MOST)
            head = data[:64]
    if len(data) >= _LEAST_UTF16 and not any(head[1::2]) and all(head[::2]):
        data = data[: len(data) // 2 * 2].decode("utf-16-le", "replace").encode()  # as PowerShell encodes a command
        head = data[:64]
    # Most blobs are digests, pictures and words: four in five are told by their first bytes.
    if sum(byte < 9 or 13 < byte < 32 or byte == 127 for byte in head) > len(head) * (1 - _PRINTABLE_SHARE):
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if sum(map(str.isprintable, text)) + text.count("\n") >= len(text) * _PRINTABLE_SHARE else ""


def _from_pieces(name: str, pieces: list[tuple[str, int]]) -> Iterator[View]:
    if pieces:
        starts: list[tuple[int, int]] = []
        size = 0
        for piece, line in pieces:
            starts.append((size, line))
            size += len(piece) + 2
        yield View(name, "\n\n".join(piece for piece, _ in pieces), pieces=tuple(starts))
