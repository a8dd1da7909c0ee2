"""Secrets made of words: recovery phrases of wallets, and pass-phrases behind their label.

Belongs here: runs of words, their checksum and their labels. Does not: the word lists themselves (``secret_words``), or
one word behind a label (``secret_labels``). A pass-phrase of plain words that nothing labels stays unfound.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_labels import find_near, lowered
from vault_memory.notes.secret_values import compiled
from vault_memory.notes.secret_words import PHRASE_LENGTHS, chinese, english, passes_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

_PHRASE_WORDS: Final = 12
_LONE_CHARACTERS: Final = r"(?<![一-鿿])[一-鿿](?:[\s,、，|\d.]{1,6}[一-鿿](?![一-鿿])){11,60}"
_PHRASE_LABEL: Final = r"(?i)(?:seed|recovery|mnemonic|backup|secret|wallet)[ _-]?(?:phrase|words?|seed)|mnemonic|frase[ ](?:semilla|de[ ]recuperaci[óo]n|mnem[óo]nica)|phrase[ ](?:de[ ]r[ée]cup[ée]ration|secr[èe]te|mn[ée]monique)|wiederherstellungs(?:phrase|w[öo]rter)|мнемоническ|シード|ニーモニック|復元フレーズ|니모닉|복구|助[记記][词詞]|恢复短语|種子|种子词|リカバリーフレーズ|시드 구문"


def find_phrases(text: str) -> Iterator[tuple[str, int, int]]:
    """Find BIP-39 phrases: words or characters of a list in a row, whose checksum is right or that are labelled."""
    if _has_run(compiled(r"[a-z]+").findall(text.lower())):
        yield from _find_english_phrases(text)
    if compiled(_LONE_CHARACTERS).search(text):
        yield from _find_chinese_phrases(text)
    yield from _find_labelled_words(text)
    yield from _find_passphrases(text)
    for match in compiled(r"助[记記][词詞][\s:：是为=*`]{1,6}([一-鿿]{12,24})(?![一-鿿])").finditer(text):
        if any(all(char in numbers for char in match[1]) for numbers in chinese()):
            yield "recovery_phrase", match.start(), match.end()


_LABELLED_WORDS: Final = r"[^\n]{0,12}[:：=\n][\s`*\"'>]{0,8}(?P<words>[^\W\d_]{2,12}(?:(?:[ \u3000,、]{1,2}|[ \t]*\n?[ \t]*\d{1,2}[.)][ \t]*)[^\W\d_]{2,12}){11,24})[ \t]*[.。`*\"']{0,3}[ \t]*(?:\n|\Z)"
_FUNCTION_WORDS: Final = frozenset({"the", "is", "a", "of", "to", "and", "in", "your", "you", "it", "for", "that", "el", "la", "de", "que", "y", "es", "en", "los", "un", "le", "les", "et", "est", "der", "die", "das", "und", "ist", "и", "не", "это", "на"})  # fmt: skip


def _find_labelled_words(text: str) -> Iterator[tuple[str, int, int]]:
    """Find a phrase of words of any list, or of none that we know, behind its label and alone to its line's end."""
    for label in compiled(_PHRASE_LABEL).finditer(text):
        match = compiled(_LABELLED_WORDS).match(text, label.end(), label.end() + 400)
        words = compiled(r"[^\W\d_]{2,12}").findall(match["words"]) if match else []
        if len(words) in {*PHRASE_LENGTHS, 13, 25} and _FUNCTION_WORDS.isdisjoint(map(str.lower, words)):
            yield "recovery_phrase", label.start(), label.end()


def _has_run(words: list[str]) -> bool:
    """Tell whether twelve words in a row are of the English list: cheap, and almost never so."""
    run = 0
    for word in words:
        run = run + 1 if 3 <= len(word) <= 8 else 0
        if run >= _PHRASE_WORDS:
            break
    else:
        return False
    numbers, run = english(), 0
    for word in words:
        run = run + 1 if word in numbers else 0
        if run >= _PHRASE_WORDS:
            return True
    return False


_GAP: Final = r"[\s\d.,;:、，；|()\[\]`*_\-–>#\"'/]{1,24}\Z"
_LIMIT: Final = r"[:=\"'`(|\n,.]"


def _find_english_phrases(text: str) -> Iterator[tuple[str, int, int]]:
    for run in _runs_of_list_words(text):
        words = [item.group().lower() for item in run]
        labelled = compiled(_PHRASE_LABEL).search(text, max(0, run[0].start() - 80), run[0].start())
        distinct = len(set(words)) >= _PHRASE_WORDS * 3 // 4
        if distinct and words != sorted(words) and (labelled or _holds_phrase(text, run, words)):
            yield "recovery_phrase", run[0].start(), run[-1].end()


def _holds_phrase(text: str, run: list[re.Match[str]], words: list[str]) -> bool:
    """Tell whether a part of a run that stands for itself has a right checksum, and is no sentence.

    One of sixteen sequences of twelve words has one by chance: prose of list words must not be tried at every length.
    """
    size = len(run)
    for length in PHRASE_LENGTHS:
        for first, last in {(0, length), (size - length, size)}:
            if length > size:
                break
            before = text[run[first - 1].end() : run[first].start()] if first else ""
            after = text[run[last - 1].end() : run[last].start()] if last < size else ""
            alone = (not first or compiled(_LIMIT).search(before)) and (last == size or compiled(_LIMIT).search(after))
            if alone and not _is_sentence(text, run[first:last]) and passes_checksum(words[first:last], english()):
                return True
    return False


def _is_sentence(text: str, run: list[re.Match[str]]) -> bool:
    """Tell whether a run begins with the only capital of it and ends with a full stop."""
    capitals = [item.group()[0].isupper() for item in run]
    return capitals[0] and not any(capitals[1:]) and text[run[-1].end() : run[-1].end() + 1] in {".", "!", "?"}


def _runs_of_list_words(text: str) -> Iterator[list[re.Match[str]]]:
    """Give runs of twelve and more list words of one sentence with nothing but numbers and punctuation between them."""
    numbers = english()
    run: list[re.Match[str]] = []
    for match in compiled(r"[A-Za-z]+").finditer(text):
        listed = match.group().lower() in numbers
        gap = text[run[-1].end() : match.start()] if run else ""
        ended = run and gap[0] in ".!?" and match.group()[0].isupper() and run[-1].group()[-1].islower()
        if run and (not listed or ended or not compiled(_GAP).match(gap) or gap.count("\n") > 1):
            if len(run) >= _PHRASE_WORDS:
                yield run
            run = []
        if listed:
            run.append(match)
    if len(run) >= _PHRASE_WORDS:
        yield run


def _find_chinese_phrases(text: str) -> Iterator[tuple[str, int, int]]:
    for match in compiled(_LONE_CHARACTERS).finditer(text):
        words = compiled(r"[一-鿿]").findall(match.group())
        before = text[max(0, match.start() - 20) : match.start()]
        labelled = compiled(_PHRASE_LABEL).search(before)
        for numbers in chinese():
            if all(word in numbers for word in words) and (
                passes_checksum(words, numbers) or (labelled and len(words) in PHRASE_LENGTHS)
            ):
                yield "recovery_phrase", match.start(), match.end()
                break


_PASSPHRASE: Final = (
    r"(?i)(?<![a-z])pass[ _-]?phrase|(?:master|backup|root|admin|disk|luks|ssh|gpg|pgp|wifi|wi-fi|login)[ _-]?password|(?<![a-z])(?:password|passwort|kennwort|contrase[ñn]a|senha|wachtwoord|frase[ ]de[ ]paso|mot[ ]de[ ]passe|phrase[ ]de[ ]passe|парол[ья]|парольная[ ]фраза)(?![a-z])"
    r"|パスフレーズ|パスワード|비밀번호|口[ \t]?令|暗[ \t]?号|密[ \t]?[码碼](?:短[语語])?|密[语語]|助[记記][词詞]|恢复短语|(?:seed|recovery|mnemonic|secret|wallet)[ _-]?phrase|(?:recovery|mnemonic|wallet)[ _-]?words"
)
_PASSPHRASE_STEMS: Final = (
    "phrase", "password", "passwort", "kennwort", "contrase", "senha", "wachtwoord", "frase", "passe", "парол", "パス", "비밀번호", "令", "号", "码", "碼", "语", "語", "词", "詞", "words",
)  # fmt: skip
_PHRASE_TIE: Final = r"(?:[ \t]+(?:of|for|to|on|de|der|des|für|del|du)[ \t][^\n.:=|;,!?]{1,40}?)?[\s*_`\"'）)]{0,4}(?:[:：=]|->|→|(?<=[ \t])(?:is|ist|est|es|lautet)(?=[ \t])|[是为為](?=[ \t`\"'「“]))[ \t]{0,4}"
_PLAIN_WORDS: Final = r"(?P<open>[`\"'「“]?)(?P<words>[^\W\d_]{3,12}(?:(?P<part>[ .\-_,]|,[ ])[^\W\d_]{3,12})(?:(?P=part)[^\W\d_]{3,12}){2,9})(?P<close>[`\"'」”]?)[ \t.。]{0,3}(?P<end>\n|\Z)?"
_HANZI_WORDS: Final = (
    r"[ \t]{0,2}[`「“]?(?P<words>[一-鿿]{2,5}(?:[ \u3000·・、，,-][一-鿿]{2,5}){3,11})[`」”]?[ \t]{0,4}(?:\n|\Z)"
)
_HANZI_TALK: Final = r"[的了是在见请用需要不可与和或被把等于同忘记设置改存放找问看由无空暂待略保加解算输入长短字符位数以及其这那该每任何各对抄写纸]"
_TALK: Final = frozenset(
    [
        "the",
        "and",
        "for",
        "with",
        "from",
        "that",
        "this",
        "your",
        "our",
        "his",
        "her",
        "its",
        "their",
        "you",
        "they",
        "what",
        "when",
        "where",
        "which",
        "who",
        "how",
        "why",
        "are",
        "was",
        "were",
        "will",
        "would",
        "must",
        "should",
        "shall",
        "can",
        "may",
        "might",
        "has",
        "have",
        "had",
        "not",
        "but",
        "none",
        "any",
        "all",
        "same",
        "see",
        "use",
        "used",
        "using",
        "ask",
        "tell",
        "type",
        "enter",
        "keep",
        "kept",
        "store",
        "stored",
        "save",
        "saved",
        "write",
        "written",
        "get",
        "set",
        "reset",
        "change",
        "changed",
        "rotate",
        "rotated",
        "forget",
        "forgot",
        "forgotten",
        "expire",
        "expires",
        "expired",
        "required",
        "optional",
        "needed",
        "need",
        "needs",
        "minimum",
        "maximum",
        "least",
        "most",
        "length",
        "long",
        "short",
        "strong",
        "weak",
        "simple",
        "plain",
        "random",
        "character",
        "characters",
        "letter",
        "letters",
        "digit",
        "digits",
        "number",
        "numbers",
        "symbol",
        "symbols",
        "word",
        "words",
        "upper",
        "lower",
        "case",
        "mixed",
        "special",
        "contain",
        "contains",
        "containing",
        "include",
        "includes",
        "including",
        "valid",
        "invalid",
        "wrong",
        "correctly",
        "incorrect",
        "empty",
        "blank",
        "unknown",
        "default",
        "example",
        "sample",
        "placeholder",
        "dummy",
        "test",
        "demo",
        "here",
        "there",
        "below",
        "above",
        "inside",
        "behind",
        "under",
        "vault",
        "safe",
        "keychain",
        "keyring",
        "manager",
        "bitwarden",
        "lastpass",
        "keepass",
        "onepassword",
        "pass",
        "password",
        "passwords",
        "passphrase",
        "passphrases",
        "phrase",
        "secret",
        "secrets",
        "token",
        "key",
        "keys",
        "account",
        "accounts",
        "user",
        "users",
        "username",
        "login",
        "admin",
        "email",
        "mail",
        "address",
        "field",
        "form",
        "input",
        "page",
        "button",
        "screen",
        "view",
        "prompt",
        "dialog",
        "box",
        "text",
        "string",
        "value",
        "type",
        "config",
        "file",
        "files",
        "path",
        "name",
        "environment",
        "variable",
        "hash",
        "hashed",
        "hashing",
        "bcrypt",
        "argon",
        "encrypted",
        "encryption",
        "decrypt",
        "protect",
        "protected",
        "policy",
        "rule",
        "rules",
        "strength",
        "security",
        "secure",
        "new",
        "old",
        "current",
        "previous",
        "next",
        "last",
        "first",
        "second",
        "only",
        "also",
        "then",
        "else",
        "than",
        "more",
        "less",
        "each",
        "every",
        "some",
        "other",
        "another",
        "via",
        "per",
        "into",
        "onto",
        "about",
        "before",
        "after",
        "during",
        "until",
        "since",
        "now",
        "today",
        "tomorrow",
        "yesterday",
        "please",
        "contact",
        "call",
        "send",
        "sent",
        "email",
        "paper",
        "envelope",
        "drawer",
        "printed",
        "shared",
        "share",
        "between",
        "team",
        "office",
        "home",
        "work",
        "copy",
        "paste",
        "line",
        "lines",
        "list",
        "left",
        "right",
        "change",
        "update",
        "updated",
        "est",
        "sont",
        "pour",
        "avec",
        "dans",
        "les",
        "des",
        "une",
        "que",
        "qui",
        "pas",
        "sur",
        "par",
        "vous",
        "votre",
        "voir",
        "coffre",
        "der",
        "die",
        "das",
        "und",
        "ist",
        "nicht",
        "mit",
        "für",
        "von",
        "auf",
        "den",
        "dem",
        "ein",
        "eine",
        "siehe",
        "tresor",
        "ihr",
        "sein",
        "wird",
        "werden",
        "para",
        "con",
        "los",
        "las",
        "una",
        "por",
        "como",
        "más",
        "está",
        "son",
        "del",
        "ver",
        "caja",
        "não",
        "com",
        "uma",
        "seu",
        "sua",
        "dos",
        "das",
        "ver",
        "het",
        "een",
        "van",
        "voor",
        "niet",
        "met",
        "zijn",
        "или",
        "для",
        "это",
        "как",
        "что",
        "при",
        "нет",
        "над",
        "под",
        "authentication",
        "authorization",
        "authenticated",
        "required",
        "generator",
        "generation",
        "recovery",
        "reminder",
        "hint",
        "hints",
        "history",
        "settings",
        "setting",
        "options",
        "option",
        "details",
        "information",
        "info",
        "error",
        "errors",
        "message",
        "messages",
        "success",
        "failed",
        "failure",
        "login",
        "logout",
        "signup",
        "register",
        "registration",
        "confirm",
        "confirmation",
        "verification",
        "verify",
        "validation",
    ]
)


def _find_passphrases(text: str) -> Iterator[tuple[str, int, int]]:
    """Find four and more plain words that stand alone behind a label, or in quotes; a sentence gives itself away."""
    low = lowered(text)
    if not any(stem in low for stem in _PASSPHRASE_STEMS):
        return
    for label in find_near(_PASSPHRASE, text, _PASSPHRASE_STEMS):
        tie = compiled(_PHRASE_TIE).match(text, label.end(), label.end() + 80)
        if tie is None:
            continue
        match = compiled(_PLAIN_WORDS).match(text, tie.end(), tie.end() + 160)
        if match and _is_passphrase(match):
            yield "passphrase", label.start(), match.end("words")
            continue
        hanzi = compiled(_HANZI_WORDS).match(text, tie.end(), tie.end() + 80)
        if hanzi and not compiled(_HANZI_TALK).search(hanzi["words"]):
            yield "passphrase", label.start(), hanzi.end("words")


def _is_passphrase(match: re.Match[str]) -> bool:
    quoted = bool(match["open"]) and bool(match["close"])
    if not quoted and match["end"] is None:
        return False  # the line goes on: talk
    words = compiled(r"[^\W\d_]+").findall(match["words"])
    small = [word.lower() for word in words]
    alike = all(map(str.islower, words)) or all(map(str.istitle, words)) or words[1:] == small[1:]
    return alike and len(set(small)) == len(small) and _TALK.isdisjoint(small)
