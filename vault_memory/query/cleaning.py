"""Note text made safe to show to an agent and a terminal, and what was conspicuous about it.

Belongs here: what is removed, and the flags. Does not: the frame around it (``context``). Nothing is dropped
because of what it *says*: ``instruction_like`` is a flag, since a note may be about prompts.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

FLAGS: Final = ("instruction_like", "invisible", "bidi", "ansi", "control", "html_comment", "active_content")
"""In the order in which they are shown."""

MAX_MARKS: Final = 4
"""Accents kept on one letter; no script needs more, and a thousand make one letter longer than any budget."""


@dataclass(frozen=True, slots=True)
class CleanText:
    """A text that can be shown, and its flags in the order of ``FLAGS``."""

    text: str = field(repr=False)
    flags: tuple[str, ...]


# Control sequences of terminals (ECMA-48): strings such as titles and links, then CSI, then the rest.
_ANSI = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_BREAK = re.compile("\r\n?|[\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_EMOJI = "\u203c-\u3299\U0001f000-\U0001faff"
_JOINED_SCRIPTS = "\u0600-\u0dff"
# Joiners and variation selectors do honest work inside an emoji or between letters of some scripts; everywhere
# else, and all tag characters, private use and other format characters, they only hide something.
_INVISIBLE = re.compile(
    rf"(?<![{_EMOJI}{_JOINED_SCRIPTS}\ufe0f])\u200d|\u200d(?![{_EMOJI}{_JOINED_SCRIPTS}])"
    rf"|(?<![{_JOINED_SCRIPTS}])\u200c|\u200c(?![{_JOINED_SCRIPTS}])"
    rf"|(?<![{_EMOJI}0-9#*\xa9\xae])[\ufe0e\ufe0f]"
    "|[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\ue000-\uf8ff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U00013430-\U0001345f"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKS = re.compile(
    f"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{{{MAX_MARKS}}})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)

_COMMENT = re.compile(r"<!--.*?(?:--!?>|\Z)", re.DOTALL)
_ATTRIBUTES = r"""(?>[^<>"']|"[^"]*"|'[^']*'|["'])*+>?"""
_SCHEME = (
    r"(?:j\s*a\s*v\s*a|v\s*b)\s*s\s*c\s*r\s*i\s*p\s*t\s*(?::|&#0*58;?|&#x0*3a;?|&colon;)|data\s*:\s*(?:text|image/svg)"
)
_ACTIVE = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)
    for pattern, replacement in (
        (r"!\[([^\]\n]{0,300})\]\(\s*<?\s*(?:[a-z][a-z0-9+.-]*:|//|\\\\)[^)]*\)?", r"[image: \1]"),
        (r"!\[([^\]\n]{0,300})\]\s?\[[^\]\n]{0,300}\]", r"[image: \1]"),
        (rf"<(script|style)\b{_ATTRIBUTES}.*?(?:</\1\s*>|\Z)", ""),
        (
            (
                r"</?(?:img|image|script|style|iframe|frame|object|embed|link|meta|base|svg|video|audio|source|track"
                rf"|form|input|button|portal)\b{_ATTRIBUTES}"
            ),
            "",
        ),
        (rf"<[a-z][^\s<>]*+(?=[^<>]*\bon[a-z]+\s*=){_ATTRIBUTES}", ""),
        (rf"\]\(\s*<?\s*(?:{_SCHEME})(?:[^()\n]|\([^()\n]*\))*\)?", "](removed)"),
        (rf"(\]:\s*<?\s*|<\s*|=\s*[\"']?\s*)(?:{_SCHEME})[^\s>\"']*", r"\1removed"),
    )
)

_ROLES = "human|assistant|system|developer"
_INSTRUCTION = re.compile(
    "|".join(
        (
            (
                r"\b(?:ignore|disregard|forget|override|bypass|overrule)\b(?:\W+\w+){0,4}?\W+"
                r"(?:instructions?|prompts?|rules?|guidelines?|directions?|restrictions|safeguards)\b"
            ),
            (
                r"\b(?:reveal|print|show|repeat|display|leak|output)\b(?:\W+\w+){0,4}?\W+"
                r"(?:system|hidden|developer|initial)\W+(?:prompt|message|instructions?)\b"
            ),
            r"\bnew\s+(?:orders?|instructions?|directives?|task)\s*:",
            r"\byou\s+are\s+now\s+(?:a|an|in|the|no|free)\b",
            r"\b(?:do\s+not|don't|never|without)\s+(?:tell|telling|inform|informing|ask|asking|notify)\w*\s+the\s+user\b",
            rf"(?:^|\n)[ \t]{{0,20}}(?:#{{1,6}}[ \t]*)?(?:\*\*)?(?:{_ROLES})(?:\*\*)?[ \t]{{0,20}}:",
            r"<\|[a-z_]{2,30}\|>",
            r"\[/?inst\]|<</?sys>>",
            (
                r"</?\s{0,20}(?:system|system-reminder|system_prompt|instructions?|function_calls?|function_results?|invoke"
                r"|parameter|tool_(?:use|call|result|response)s?|retrieved_context|antml:\w+)\b"
            ),
            rf"[\"']role[\"']\s*:\s*[\"'](?:{_ROLES})",
            r"[\"']type[\"']\s*:\s*[\"'](?:tool_use|tool_result|function_call)",
            r"(?:忽略|无视|無視|忘记|忘掉|忘記|不要理会|绕过|繞過|推翻)[^。\n]{0,14}?(?:指令|指示|提示|规则|規則|要求|设定|設定|命令)",
            r"(?:泄露|透露|输出|輸出|显示|顯示|复述|告诉我)[^。\n]{0,8}?(?:系统提示|系統提示|提示词|提示詞)",
            r"(?:把|将|將)[^。\n]{0,10}?(?:密钥|密鑰|密码|密碼|令牌|口令)[^。\n]{0,4}?(?:发送|發送|发给|發給|上传|上傳|发到)",
            r"(?:你现在是|你現在是|从现在起你|從現在起你)",
            r"指示を(?:すべて|全て)?(?:無視|忘れ)",
            r"\bignor(?:a|e|ez|iere|ieren)\b(?:\W+\w+){0,3}?\W+(?:instrucciones|instructions|anweisungen|istruzioni)\b",
        )
    ),
    re.IGNORECASE,
)
MAX_TEXT_CHARACTERS: Final = 200_000


@lru_cache(
    maxsize=64
)  # a hit is cleaned to be scanned, to be flagged and to be shown, in a block and as structured data
def clean(text: str) -> CleanText:
    """Remove what could act on a terminal, a renderer or a reader unseen; keep everything that can be read."""
    flags: set[str] = set()

    def replaced(pattern: re.Pattern[str], replacement: str, flag: str | None, given: str) -> str:
        result, count = pattern.subn(replacement, given)
        if count and flag:
            flags.add(flag)
        return result

    text = _LINE_BREAK.sub("\n", text[:MAX_TEXT_CHARACTERS])
    if not text.isprintable():  # spares the usual line, not the usual note
        text = replaced(_ANSI, "", "ansi", text)
        text = replaced(_CONTROL, " ", "control", text)
        text = replaced(_BIDI, "", "bidi", text)
        text = _SURROGATE.sub("\ufffd", text)
    text = replaced(_INVISIBLE, "", "invisible", text)
    text = _MARKS.sub(r"\1", text)
    if _looks_like_instruction(text):
        flags.add("instruction_like")
    if "<" in text or "]" in text:
        text = _without_markup(text, flags)
    return CleanText(text, tuple(flag for flag in FLAGS if flag in flags))


def one_line(text: str) -> str:
    """Clean a path or heading and put it on one line."""
    return " ".join(clean(text).text.split())


def _looks_like_instruction(text: str) -> bool:
    return _INSTRUCTION.search(unicodedata.normalize("NFKC", text)) is not None


def _without_markup(text: str, flags: set[str]) -> str:
    """Remove comments and active content; again while a removal puts together a new one."""
    for _ in range(8):
        before = text
        text = _COMMENT.sub("", text)
        if text != before:
            flags.add("html_comment")
        for pattern, replacement in _ACTIVE:
            text, count = pattern.subn(replacement, text)
            if count:
                flags.add("active_content")
        if text == before:
            return text
    # Whoever nests this deep means no good: no tag is left.
    return text.replace("<", "(")
