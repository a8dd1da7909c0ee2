"""Does a value look like a secret, or like talk about one?

Belongs here: tests of one short string (shape, randomness, placeholder, reference). Does not: where the
string was found, or what label stood before it (``secret_labels``). Everything is linear in the length of
the value, which callers bound.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from functools import cache
from itertools import pairwise
from typing import Final

MAX_VALUE_CHARACTERS: Final = 800
_ENOUGH: Final = 160  # characters of a long value that tell whether it is random

_SAMPLE_WORDS: Final = ["your", "you", "my", "our", "the", "some", "any", "this", "that", "a", "an", "of", "for", "to", "and", "or", "with", "is", "it", "in", "on", "at", "by", "as", "not", "no", "here", "there", "example", "sample", "placeholder", "template", "demo", "dummy", "fake", "mock", "test", "testing", "tester", "temp", "tmp", "foo", "bar", "baz", "qux", "quux", "changeme", "change", "replace", "insert", "enter", "fill", "set", "put", "add", "use", "redacted", "removed", "hidden", "masked", "secure", "insecure", "unsafe", "strong", "weak", "simple", "plain", "long", "short", "super", "very", "really", "top", "new", "old", "current", "previous", "next", "last", "first", "second", "default", "initial", "random", "generated", "unknown", "none", "null", "nil", "undefined", "empty", "blank", "value", "values", "string", "str", "text", "char", "varchar", "bytes", "byte", "bool", "int", "integer", "number", "object", "array", "list", "type", "field", "param", "parameter", "arg", "name", "password", "passwords", "passwd", "passw", "passwort", "pass", "passphrase", "passcode", "pwd", "pw", "secret", "secrets", "token", "tokens", "key", "keys", "api", "apikey", "auth", "bearer", "basic", "access", "refresh", "client", "server", "app", "application", "service", "session", "cookie", "id", "uuid", "user", "users", "username", "usr", "login", "admin", "administrator", "root", "guest", "public", "private", "shared", "master", "account", "owner", "member", "manager", "operator", "postgres", "postgresql", "mysql", "mariadb", "mongo", "mongodb", "redis", "rabbitmq", "sqlserver", "oracle", "database", "db", "data", "host", "hostname", "localhost", "port", "url", "uri", "path", "file", "dir", "env", "var", "config", "conf", "settings", "option", "vault", "dagster", "airflow", "grafana", "jenkins", "minio", "minioadmin", "elastic", "kibana", "docker", "kubernetes", "github", "gitlab", "google", "aws", "azure", "openai", "anthropic", "slack", "stripe", "telegram", "discord", "bot", "web", "webhook", "dev", "development", "stage", "staging", "prod", "production", "local", "ci", "build", "hash", "hashed", "encrypted", "encoded", "decoded", "base", "salt", "hmac", "sign", "signed", "signing", "signature", "encryption", "private", "publickey", "rsa", "jwt", "oauth", "otp", "totp", "mfa", "code", "codes", "hello", "world", "welcome", "letmein", "qwerty", "qwertyuiop", "asdf", "asdfgh", "asdfghjkl", "zxcv", "zxcvbn", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh", "xyz", "iloveyou", "monkey", "dragon", "football", "sunshine", "princess", "hunter", "trustno", "correct", "horse", "battery", "staple", "keyboard", "cat", "supersecret", "topsecret", "notsecret", "verysecret", "s3cret", "s3cr3t", "p4ss", "p4ssw0rd", "p4ssword", "passw0rd", "pa55w0rd", "pa55word", "pa55", "p@ss", "p@ssw0rd", "p@ssword", "wrong", "right", "invalid", "valid", "bad", "good", "confirm", "confirmation", "reset", "forgot", "forgotten", "required", "optional", "length", "min", "max", "minimum", "maximum", "char", "chars", "characters", "word", "words", "line", "please", "something", "anything", "whatever", "must", "should", "will", "john", "jane", "doe", "alice", "bob", "carol", "dave", "eve", "me", "mypass", "userpass", "userpwd", "proxyuser", "proxypass", "proxypwd", "ok", "true", "false", "yes", "on", "off", "see", "go", "java", "python", "node", "react", "spring", "boot"]  # fmt: skip

_TEMPLATES: Final = ("${", "$(", "{{", "}}", "{%", "<%", "%(", "#{", "@{", "[[", "$ANSIBLE_VAULT")
_FILES: Final = (".txt", ".json", ".yaml", ".yml", ".pem", ".key", ".crt", ".cer", ".p12", ".pfx", ".env", ".toml", ".ini", ".conf", ".cfg", ".md", ".html", ".htm", ".php", ".js", ".ts", ".py", ".go", ".rs", ".java", ".sh", ".gpg", ".kdbx", ".com", ".org", ".net", ".io", ".dev", ".cn")  # fmt: skip
_REFERENCE: Final = (
    r"[$%@:&]?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+%?\Z"  # NAMES_LIKE_THIS, $VAR, %VAR%
    r"|\$[A-Za-z_][A-Za-z0-9_:]*\Z|%[A-Za-z_]+%\Z|%[sdr@]"
    r"|(?:op|vault|keychain|keyring|ssm|secretsmanager|gcpsm|awskms|azurekeyvault|file|pass|env|bws|doppler|akv|arn|sops|ref\+\w+|urn)(?::|//)"
    r"|!(?:vault|secret|env|include|Ref|Sub|GetAtt)\b|ENC[\[(]|\{cipher\}"
    r"|[\w$]+(?:\.[A-Za-z_$][\w$]*)+\Z|[\w$.]+(?:\[|\(|->|::)|&?\*?\w+::"  # code
    r"|(?:new|await|async|return|lambda|func|function|typeof|this|self|process|os|req|request|config|ctx|props)\b[ .\[(]"
    r"|(?:https?|ftp|wss?|git|ssh|s3|gs)://|(?:/|\./|\.\./|~/|[A-Za-z]:\\)[\w.\-/\\]*"  # addresses and paths
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\Z"  # mail addresses
    r"|(?:projects|secrets?|kv|secret/data|ssh|keys?)/[\w./-]+\Z"
    r"|\^?\(\?[=!<:]|\^\[[^\]]{1,40}\]"  # regular expressions
    r"|(?:sha\d{1,3}|md5|blake\w{1,3})[-:=$]|SHA256:|ssh-(?:rsa|ed25519|dss)|ecdsa-|AAAA[BCE]3Nza|\$(?:2[aby]|argon2|apr1|[156y])\$|\{SSHA"
)
_SAMPLE: Final = (
    r"(?i)\.\.\.|…|\*\*\*|•|●|x{4}|_{3}|\?{3}|-{4}|#{3}|0{6}|1{6}"
    r"|example|sample|placeholder|change.?me|change.?this|replace.?(?:me|with|this)|redacted|masked|your.?(?:own|api|key|token|secret|pass|app|client|account|name|real|"
    r"strong|secure|access|auth|bot|pw|db|user|server|host)|your[_-]|[_-]here\b|insert.?|dummy|lorem|foo.?bar|fake|not.?real|deadbeef|cafebabe"
    r"|012345678|123456789|abcdefgh|qwertyui|asdfghjk|987654321|a1b2c3|1a2b3c|abc123|123abc|abcd1234|aabbcc|112233|<[^>]*>?|\A[\[({<]|[\])}>]\Z"
)
_TECHNICAL: Final = (
    r"(?i)\A(?:(?:[xhspkv]|[a-z]*(?:sha|md|aes|rsa|utf|base|oauth|ipv|http|pbkdf|argon|bcrypt|scrypt|ripemd|blake|"
    r"ed|secp|win|mp|vp|pkcs|iso|ec|cp|rfc|cve|fido|u2f|wpa|tls|ssl|ntlm|ver|version|es|hs|rs|ps|id|hex|web|"
    r"int|uint|float|double|varchar|char|string|python|node|java|php|ubuntu|debian|postgres|mysql|cuda|log|i18n|l10n))[-_]?\d{1,5}(?:[-_.]?[a-z0-9]{1,8}){0,3}"
    r"|v?\d+(?:\.\d+)+(?:[-+.]?[a-z0-9.]+)?|\d+(?:[.,]\d+)?[-]?[a-z%°µ]{1,6}(?:/[a-z]+)?|\d{1,4}[-/.:]\d{1,2}(?:[-/.:]\d{1,4})?(?:t[\d:.z+-]*)?"
    r"|(?:19|20)\d\d[-_/.]?(?:q[1-4]|h[12]|w\d\d|\d\d)(?:[-_/.][a-z0-9]{1,12}){0,4}|\d+[-~–]\d+[a-z]*|0x[0-9a-f]{1,8}|\d+(?:st|nd|rd|th)|#[0-9a-f]{3,8}|[a-z]+[-_]\d{1,2}|[\d.,:/+\-]+|aes-\d+-\w+|1password|\d+fa|level\d+|[a-z]+\d?)\Z"
)
_UUID: Final = r"(?i)\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z"
_HEX: Final = r"(?i)\A(?:0x)?[0-9a-f]+\Z"
_TOKEN: Final = r"\A[!-~]+\Z"
_WORD_RUN: Final = r"[A-Za-z]+"
_SAMPLE_LEFTOVER: Final = 2
_UNWORDLY: Final = 0.35

_COMMON_BIGRAMS: Final = frozenset(
    ["th", "he", "in", "er", "an", "re", "nd", "at", "on", "nt", "ha", "es", "st", "en", "ed", "to", "it", "ou", "ea", "hi", "is", "or", "ti", "as", "te", "et", "ng", "of", "al", "de", "se", "le", "sa", "si", "ar", "ve", "ra", "ld", "ur", "ro", "ri", "io", "ic", "ne", "me", "li", "ll", "ch", "ma", "om", "be", "ce", "co", "ta", "ho", "el", "no", "ac", "ct", "us", "il", "la", "ly", "ec", "ns", "ot", "un", "ai", "ss", "ee", "di", "tr", "lo", "ge", "ut", "ge", "em", "ir", "id", "so", "pe", "po", "wh", "pr", "sh", "ol", "wi", "ul", "ow", "ni", "ad", "ay", "am", "ie", "im", "ts", "mo", "ca", "ev", "ex", "ke", "mp", "ag", "pa", "ap", "ci", "fo", "fr", "ig", "do", "op", "su", "ga", "rs", "ei", "up", "mi", "ck", "tt", "pl", "cl", "gr", "gh", "ab", "bl", "br", "cr", "cu", "da", "dr", "ef", "eg", "ep", "fi", "ff", "fe", "ft", "gi", "go", "gu", "ks", "ki", "lu", "lt", "ms", "mb", "mu", "na", "nc", "nk", "nu", "oa", "ob", "od", "oi", "oo", "os", "ov", "pi", "pp", "pt", "qu", "rd", "rk", "rm", "rn", "rt", "ru", "rv", "rl", "sc", "sk", "sl", "sp", "sw", "sy", "tu", "tw", "ty", "ub", "ua", "ud", "ue", "ug", "ui", "um", "va", "vi", "wa", "we", "wo", "ys"]
)  # fmt: skip


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern on first use: most notes need few of them."""
    return re.compile(pattern, flags)


@cache
def _sample_word_pattern() -> re.Pattern[str]:
    """One alternation of all sample words, longest first, over lower-case text."""
    words = sorted(set(_SAMPLE_WORDS), key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, (word for word in words if len(word) > _SAMPLE_LEFTOVER))))


def entropy(value: str) -> float:
    """Shannon entropy of the characters of a string, in bits a character."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in (value.count(char) for char in set(value)))


def wordiness(value: str) -> float:
    """Share of adjacent letter pairs that are common in English: words about 0.8, random text about 0.25."""
    pairs = [run[i : i + 2] for run in compiled(_WORD_RUN).findall(value.lower()) for i in range(len(run) - 1)]
    return sum(pair in _COMMON_BIGRAMS for pair in pairs) / len(pairs) if pairs else 0.0


def is_placeholder(value: str) -> bool:
    """Tell whether a value only stands for a secret: ``YOUR_API_KEY``, ``xxxx``, ``${VAR}``, ``hunter2``."""
    if len(set(value)) <= max(2, len(value) // 10) or compiled(_SAMPLE).search(value):
        return True
    # A value that names itself stands for one: ``shop_password``, ``my-secret-2``.
    names_itself = compiled(r"(?i)passw(?:or)?d|secret").search(value) is not None and not _is_drawn(_leftover(value))
    return names_itself or is_reference(value) or is_sample_word(value) or _encodes_sample(value)


def is_sample_word(value: str) -> bool:
    """Tell whether nothing but sample words, digits and punctuation makes up the value."""
    lowered = value.lower()
    if lowered in _SAMPLE_WORDS:
        return True
    if not any(map(str.isalpha, lowered)):
        return False
    rest = _leftover(value)
    letters = sum(map(str.isalpha, rest))
    if _is_patched(value):
        return False
    # Two letters beside digits were put behind the word to make it hard to guess: ``hunter2Xk9``.
    made = letters == _SAMPLE_LEFTOVER and any(map(str.isdigit, rest)) and len(rest.strip("-_.")) > _SAMPLE_LEFTOVER + 1
    return rest != lowered and letters <= _SAMPLE_LEFTOVER and not made


_STAND_INS: Final = "your|my|test|example|sample|demo|dummy|fake|mock|foo|bar|baz|change|replace|insert|enter|here|placeholder|redacted|password|passwd|secret|token|key|passw|p4ss|p@ss|pa55|s3cr|value|string|abc|123|qwe|temp"
_PATCHES: Final = 2


def _is_patched(value: str) -> bool:
    """Tell ``hunter2prod!7``: words of samples that somebody made a password of, by digits and marks in two places."""
    if compiled(_STAND_INS).search(value.lower()):
        return False
    patches = compiled(r"[0-9!@#$%^&*+?]+").findall(value)
    joined = "".join(patches)
    return (
        len(patches) >= _PATCHES and len(joined) > _PATCHES and not joined.isdigit() and any(map(str.isdigit, joined))
    )


def _leftover(value: str) -> str:
    """Give what is left of a value without the sample words in it, in lower case."""
    return _sample_word_pattern().sub("", value.lower())


def _is_drawn(rest: str) -> bool:
    return (
        any(map(str.isdigit, rest)) and sum(map(str.isalpha, rest)) > _SAMPLE_LEFTOVER and wordiness(rest) < _UNWORDLY
    )


def _encodes_sample(value: str) -> bool:
    """Tell whether a value is base64 of talk about a secret, as in manuals: ``bm90IG15IHJlYWwgcGFzc3dvcmQ=``."""
    if len(value) % 4 or not compiled(r"[A-Za-z0-9+/]{8,400}={0,2}\Z").match(value):
        return False
    try:
        text = base64.b64decode(value).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    word = text.rpartition(":")[2].strip()
    return text.isprintable() and (
        compiled(r"(?i)passw(?:or)?d|secret|example|sample").search(text) is not None or is_sample_word(word)
    )


def is_reference(value: str) -> bool:
    """Tell whether a value is code, a variable, a path, an address, a digest or a pointer into a secret store."""
    if value.endswith(_FILES) or compiled(_REFERENCE).match(value):
        return True
    return any(template in value for template in _TEMPLATES)


def is_trivial_number(digits: str) -> bool:
    """Tell whether digits are a sequence, a repetition or a year: what examples are made of."""
    steps = {(int(b) - int(a)) % 10 for a, b in pairwise(digits)}
    halves = len(digits) > 5 and digits[: len(digits) // 2] == digits[len(digits) // 2 :]
    return (len(steps) <= 1 and steps <= {0, 1, 9}) or halves or digits in {"123123", "112233", "1234567890"}


def is_password(value: str, *, firm: bool = True) -> bool:
    """Tell whether a value has the shape of a password that somebody chose or generated.

    Args:
        value: The candidate, without quotes.
        firm: Whether a colon, an equals sign or quotes tied it to its label; prose needs a stronger shape.
    """
    size = len(value)
    if not 6 <= size <= 128 or not compiled(_TOKEN).match(value):
        return False
    lower = any(map(str.islower, value))
    upper = any(map(str.isupper, value))
    digits = sum(map(str.isdigit, value))
    marks = {char for char in value if not char.isalnum()}
    mixed = lower and upper
    if not (lower or upper) or not (digits or mixed or (not marks and size >= 12)) or is_placeholder(value):
        return False
    if compiled(_TECHNICAL).match(value):
        return _is_random_word(value) or _is_motley(value) or _jumps(value)
    if digits:
        enough = bool(marks) or mixed or (digits >= 2 and (firm or size >= 8))
        return enough and (not _is_identifier(value) or (firm and mixed and bool(marks) and not _is_title(value)))
    if marks & set("!@#$%^&*"):
        return size >= 8 and not marks & set("=?/<>()[]{}\\|") and wordiness(value) < 1
    return not marks and _is_random_word(value)


def _is_identifier(value: str) -> bool:
    """Tell names from passwords: ``user_id_1``, ``my-app-v2``, ``forgot-password/3``; words with a small number."""
    if compiled(r"\A(?:[A-Z][a-z]{2,}[-_.]){3,}\d{2,}\Z").match(value):
        return False  # three words and a number are what managers of passwords make
    if not compiled(r"\A[A-Za-z]+(?:[-_./:][A-Za-z]+)*[-_./:]?v?\d{1,2}\Z").match(value):
        return compiled(r"\A[a-z]+(?:[-_/.][a-z0-9]+){2,}\Z").match(value) is not None and wordiness(value) > 0.6
    return wordiness(value) > 0.6


def _is_title(value: str) -> bool:
    """Tell ``Node-Exporter-2``: two names and the number of one of many."""
    return compiled(r"\A[A-Z][a-z]+[-_][A-Z][a-z]+[-_]\d\Z").match(value) is not None


def _jumps(value: str) -> bool:
    """Tell letters whose case changes as in no name, with a number among them."""
    letters = [char for char in value if char.isalpha()]
    turns = sum(a.islower() != b.islower() for a, b in pairwise(letters))
    return len(letters) >= 10 and turns >= 5 and wordiness(value) < 0.5


def _is_motley(value: str) -> bool:
    """Tell ``Xk9mQ2vLp7w`` from ``SHA256withRSA``: every other character is of another kind than the one before."""
    kinds = ["d" if char.isdigit() else "u" if char.isupper() else "l" if char.islower() else "m" for char in value]
    turns = sum(a != b for a, b in pairwise(kinds))
    return len(value) >= 8 and set("dul") <= set(kinds) and kinds.count("d") > 1 and turns > len(value) / 2


def _is_random_word(value: str) -> bool:
    """Tell whether letters without any digit were drawn at random."""
    if not value.isalpha() or len(value) < 8:
        return False
    if value.islower() or value.isupper():
        return len(value) >= 12 and wordiness(value) < 0.35 and entropy(value) > 2.8
    turns = sum(a.islower() != b.islower() for a, b in pairwise(value))
    return turns >= 4 and wordiness(value) < 0.45


def is_random(value: str, minimum: int = 16, *, hexadecimal: bool = True, uuid: bool = False) -> bool:
    """Tell whether a machine made this value.

    Args:
        value: The candidate, without quotes.
        minimum: Its least length.
        hexadecimal: Whether hexadecimal digits alone count (a label says so); else they are digests.
        uuid: Whether a UUID counts.
    """
    size = len(value)
    if not minimum <= size <= MAX_VALUE_CHARACTERS or not compiled(_TOKEN).match(value):
        return False
    value = value[:_ENOUGH]
    if (value.isalpha() and size < 20) or is_placeholder(value):
        return False
    if compiled(_UUID).match(value):
        return uuid
    if compiled(r"(?i)(?:my|some|our|the|a)[-_]").match(value) and wordiness(value) > 0.5:
        return False  # my-unique-key-1234
    digits = sum(map(str.isdigit, value))
    letters = sum(map(str.isalpha, value))
    if compiled(_HEX).match(value):
        return hexadecimal and size >= max(minimum, 20) and min(digits, letters) >= 3 and entropy(value) > 2.8
    return letters > 0 and entropy(value) >= min(3.6, 0.8 * math.log2(len(value))) and _is_unlike_words(value, digits)


def _is_unlike_words(value: str, digits: int) -> bool:
    if not digits:
        # Letters alone are random only if their case jumps or their pairs are no word's.
        return len(value) >= 20 and wordiness(value) < 0.4 and not value.islower()
    return wordiness(value) < 0.62 or (digits >= 4 and wordiness(value) < 0.7)


def is_token_body(value: str) -> bool:
    """Tell whether what follows a vendor's prefix is a real token's body rather than a stand-in."""
    if len(set(value)) < min(10, len(value) * 2 // 5) or compiled(_SAMPLE).search(value):
        return False
    if value.isalpha() and len(value) > 12 and wordiness(value) > 0.6:
        return False
    return entropy(value) > 2.3 and not (wordiness(value) > 0.72 and sum(char.isdigit() for char in value) < 4)
