"""Find secrets in the text of a note.

``scan(text)`` is pure: the same text and the same ``RULES_VERSION`` give the same findings. A finding names
a rule, a file line and a view; nothing in this package keeps, prints or raises a part of what matched.

Belongs here: running the rules over the views of a text. Does not: the rules themselves (``secret_rules``,
``secret_labels``, ``secret_codes``, ``secret_phrases``), the readings of a text (``secret_views``), decoding bytes, time limits
and the decision to quarantine (``scanner``).

What it does not find, by design: a pass-phrase made of plain words, text inside pictures, encryption,
and secrets that nothing marks as such. Directories and tags exclude those.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from vault_memory.notes import secret_assembly, secret_codes, secret_labels, secret_phrases, secret_rules, secret_talk
from vault_memory.notes.model import Finding
from vault_memory.notes.secret_screen import Screen
from vault_memory.notes.secret_values import (
    compiled,
    is_password,
    is_placeholder,
    is_random,
    is_reference,
    is_token_body,
)
from vault_memory.notes.secret_views import DecodeBudgetError, View, views

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vault_memory.notes.secret_rules import Rule

RULES_VERSION: Final = "4"
"""Raise this with every change to rules, labels, values or views: stored notes are then scanned again."""

BUDGET_RULE: Final = "decode_budget"
MAX_FINDINGS_PER_RULE: Final = 20
"""Of one rule the first are enough to quarantine and to look; no other rule is ever hidden by them."""


def scan(text: str) -> tuple[Finding, ...]:
    """Find secrets in a text.

    Args:
        text: A note or a part of one; any string at all, lone surrogates included.

    Returns:
        One finding a rule and line, by line; empty if the text is clean. A text that decodes to more than
        a scan looks at gives a finding of the rule ``decode_budget``: it fails closed.
    """
    found: dict[str, dict[int, str]] = {}
    try:
        for view in views(text.replace("\r\n", "\n").replace("\r", "\n")):
            for rule, start, end in _find(view):
                lines = found.setdefault(rule, {})
                if len(lines) < MAX_FINDINGS_PER_RULE and view.counts(start, end):
                    lines.setdefault(view.line_at(start), view.name)
    except DecodeBudgetError:
        found[BUDGET_RULE] = {1: "text"}
    findings = [Finding(rule, line, view) for rule, lines in found.items() for line, view in lines.items()]
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.rule)))


def _find(view: View) -> Iterator[tuple[str, int, int]]:
    """Find secrets in one view: rule, start and end; joined and reversed text is looked at for tokens only."""
    text = view.text
    if not text:
        return
    yield from _find_tokens(text, _PREFIXED)
    yield from _find_tokens(text, _FORMATS)
    if view.name == "reversed":
        return
    yield from _find_tokens(text, _LABELLED)
    if view.crossing is None:
        yield from secret_labels.find_labelled(text)
        yield from secret_labels.find_in_tables(text)
        yield from secret_talk.find_spoken(text)
        yield from secret_codes.find_recovery_codes(text)
        yield from secret_codes.find_second_factors(text)
        yield from secret_codes.find_pins(text)
        yield from secret_codes.find_licence_keys(text)
        yield from _find_kubernetes_secrets(text)
        yield from secret_phrases.find_phrases(text)
        yield from _find_parted(text)


def _find_tokens(text: str, rules: Screen[Rule]) -> Iterator[tuple[str, int, int]]:
    for rule in rules.possible(text):
        for literal in rule.literals:
            if literal in text:
                break
        else:
            continue
        if rule.gate and not (
            _has_digits(text) if rule.gate == "digits" else compiled(rule.gate).search(_long_words(text))
        ):
            continue
        for match in compiled(rule.pattern).finditer(text):
            if _holds(rule, match):
                yield rule.id, match.start(), match.end()


def _find_parted(text: str) -> Iterator[tuple[str, int, int]]:
    """Find tokens whose prefix gives them away and that spaces part."""
    for rule, literal in _PARTED.possible(text):
        if literal in text:
            for token, start in secret_assembly.parted(text, literal):
                match = compiled(rule.pattern).match(token)
                if match and _holds(rule, match):
                    yield rule.id, start, start + len(literal)
                    break


_TELLING: Final = 3  # of shorter prefixes too many words begin
_PREFIXED: Final = Screen([(rule, rule.literals) for rule in secret_rules.PREFIXED])
_FORMATS: Final = Screen([(rule, rule.literals) for rule in secret_rules.FORMATS])
_LABELLED: Final = Screen([(rule, rule.literals) for rule in secret_rules.LABELLED])
_PARTED: Final = Screen(
    [((rule, text), (text,)) for rule in secret_rules.PREFIXED for text in rule.literals if len(text) >= _TELLING]
)
_LONG_WORD: Final = 24


@lru_cache(maxsize=2)
def _has_digits(text: str) -> bool:
    """Tell whether twelve digits stand together, in groups or not."""
    return compiled(r"[0-9](?:[ -]?[0-9]){11}").search(text) is not None


@lru_cache(maxsize=2)
def _long_words(text: str) -> str:
    """Give the words that are long enough to be a token, in order."""
    return " ".join([word for word in text.split() if len(word) >= _LONG_WORD])


def _holds(rule: Rule, match: re.Match[str]) -> bool:
    """Tell whether a match of a rule passes the rule's check."""
    special = _SPECIAL.get(rule.check)
    if special:
        return special(match)
    return secret_rules.CHECKS[rule.check](match[1] if match.re.groups else match[0])


_PEM_WINDOW: Final = 1200
_PEM_BODY_LEAST: Final = 32


def _has_pem_body(match: re.Match[str]) -> bool:
    """Tell a key from the mention of its first line: at least 32 characters of base64 follow."""
    if not compiled(r"(?:\\[nr]|[\s\"'`>|+,;*])*[A-Za-z0-9+/#]").match(match.string, match.end()):
        return False
    after = match.string[match.end() : match.end() + _PEM_WINDOW].replace("\\r", "").replace("\\n", "\n")
    packed = 0
    for line in after.partition("-----END")[0].split("\n"):
        body = compiled(r"[\s\"'`>|+,;\\*]+").sub("", line)
        if not body or compiled(
            r"(?i)(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|Subject|#)[^\n]{0,80}\Z"
        ).match(body):
            continue
        run = compiled(r"[A-Za-z0-9+/=]{1,1200}").match(body)
        if (
            not run
            or (len(run.group()) < len(body) and len(run.group()) < _PEM_BODY_LEAST)
            or " " in line.strip(" >\t\"'`,\\+")
        ):
            break
        packed += len(run.group())
        if packed >= _PEM_BODY_LEAST:
            return (len(set(body)) >= 6 and is_token_body(body[:64])) or (
                len(set(after)) > 30 and "..." not in after[:80]
            )
    return False


def _is_real_jwt(match: re.Match[str]) -> bool:
    """Tell whether header and payload decode, and are not those of the one example that all manuals print."""
    header, payload, signature = match[1].split(".")
    try:
        head = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))
        body = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return False
    example = b"1234567890" in body or b"John Doe" in body or b"example" in body
    return b"{" in head[:2] and not example and is_token_body(signature)


def _is_basic_auth(match: re.Match[str]) -> bool:
    try:
        pair = base64.b64decode(match[1] + "=" * (-len(match[1]) % 4)).decode()
    except (binascii.Error, ValueError):
        return False
    user, colon, password = pair.partition(":")
    return bool(colon) and pair.isprintable() and password != user and _is_chosen(password)


def _is_url_with_password(match: re.Match[str]) -> bool:
    user, host = match["user"], match["host"]
    password = compiled(r"%([0-9A-Fa-f]{2})").sub(lambda code: chr(int(code[1], 16)), match["password"])
    if password in {"", "x-oauth-basic", "x"} and is_random(user, 20):
        return True
    if password in {user, user + user} or compiled(r"[{}<>$\[\]]").search(user):
        return False
    example = compiled(
        r"(?i)(?:^|[.@])(?:example|domain|yourdomain|your-?\w+|host(?:name)?|server|foo|bar|test)(?:\.\w{2,6})?(?::|$)"
    ).search(host)
    return _is_chosen(password) and (not example or is_random(password, 14))


def _is_command_password(match: re.Match[str]) -> bool:
    # Chinese goes on without a space: what is behind the ASCII run is the sentence.
    password = compiled(r"[^!-~].*").sub("", match["password"]).rstrip("\\;,)|")
    return (
        password not in match[0][: match.start("password") - match.start()].split()
        and is_password(password)
        and not is_reference(password)
    )


def _is_chosen(password: str) -> bool:
    """Tell whether a password that stands in its place by format is a real one, if a weak one."""
    if is_placeholder(password) or is_reference(password) or len(password) < 4:
        return False
    if is_password(password) or is_random(password, 10):
        return True
    odd = any(char.isdigit() or not (char.isalnum() or char in "-_.") for char in password)
    return odd and len(password) >= 6 and any(char.isalpha() for char in password) and not password.isdigit()


def _is_account_password(match: re.Match[str]) -> bool:
    """Tell a password behind an account's name, with no label, by all four kinds of characters in it."""
    value = compiled(r"[^!-~].*").sub("", match["password"]).rstrip(",;.)")
    kinds = (str.islower, str.isupper, str.isdigit)
    if not all(any(map(kind, value)) for kind in kinds) or not is_password(value, firm=False):
        return False
    # With a space on both sides of what parts them it is no path and no image's tag.
    spaced = compiled(r"[ \t][:：/|]{1,2}[ \t]").search(match[0]) is not None
    return bool(set(value) & set("!@#$%^&*+?~")) or (spaced and is_random(value, 10))


def _is_wifi_password(match: re.Match[str]) -> bool:
    return _is_chosen(match[1].replace("\\", ""))


def _is_cookie(match: re.Match[str]) -> bool:
    value = match[1].partition(";")[0]
    return is_random(value, 16, uuid=True) or is_random(value.partition("%")[0], 16)


def _has_session(match: re.Match[str]) -> bool:
    """Tell whether one of the cookies of a header names a session and holds a random value."""
    return any(_is_cookie(pair) for pair in compiled(_SESSION).finditer(match[1]))


_SESSION: Final = r"(?i)(?<![\w.-])[\w.-]{0,40}(?:sess\w{0,20}|sid|auth\w{0,12}|token\w{0,12}|jwt|login\w{0,12}|passport|ticket|remember\w{0,12}|sessdata|bili_jct|z_c0|sub|uuid_tt)=([A-Za-z0-9%._~+/:|-]{16,600})"


def _is_keypair(match: re.Match[str]) -> bool:
    """Tell a key written as 64 bytes from a table of small or regular numbers."""
    numbers = [int(number) for number in compiled(r"[0-9]+").findall(match[0])]
    steps = {b - a for a, b in pairwise(numbers)}
    return len(set(numbers)) > 40 and max(numbers) > 200 and len(steps) > 40


_SPECIAL: Final = {
    "pem": _has_pem_body,
    "jwt": _is_real_jwt,
    "basic": _is_basic_auth,
    "url": _is_url_with_password,
    "command": _is_command_password,
    "password": _is_wifi_password,
    "account": _is_account_password,
    "cookie": _is_cookie,
    "cookies": _has_session,
    "array": _is_keypair,
}


def _find_kubernetes_secrets(text: str) -> Iterator[tuple[str, int, int]]:
    """Find base64 values under ``data:`` of a Kubernetes Secret."""
    if "kind: Secret" not in text and '"kind": "Secret"' not in text and "kind: 'Secret'" not in text:
        return
    for match in compiled(
        r"(?m)^[ \t>]{1,12}[\"']?[\w.-]{1,80}[\"']?:[ \t]{1,4}[\"']?([A-Za-z0-9+/]{6,4000}={0,2})[\"']?[ \t,]{0,4}$"
    ).finditer(text):
        value = match[1]
        if len(value) % 4:
            continue
        try:
            decoded = base64.b64decode(value).decode()
        except (binascii.Error, ValueError):
            if len(value) >= 24 and is_random(value, 24):
                yield "kubernetes_secret", match.start(1), match.end()
            continue
        if decoded.isprintable() and _is_chosen(decoded.strip()):
            yield "kubernetes_secret", match.start(1), match.end()
