"""Secrets that only their label gives away: ``password: ...``, ``密码是...``, a table's ``Password`` column.

Belongs here: the vocabulary of labels in several languages, the ways a value is tied to its label, and the
limits each kind of label sets on its value. Does not: tokens that a vendor's prefix gives away.

A label is found by one alternation; what stands around it is then read from slices of bounded length, so
that a note made of nothing but labels costs a constant for each.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_values import (
    compiled,
    is_password,
    is_placeholder,
    is_random,
    is_reference,
    is_sample_word,
    is_trivial_number,
    wordiness,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PASSWORD: Final = (
    r"passw(?:or)?d|passwort|kennwort|pass[ _-]?(?:phrase|code)|pwd|psk|(?<![A-Za-z0-9+/=])pw(?![A-Za-z0-9+/])|(?<![A-Za-z0-9+/=])pass(?![A-Za-z])"
    r"|(?-i:(?<=[a-z])(?:Pass|Pw)(?![a-z]))|contrase[ñn]a|(?<![a-z])senha|mot[ _-]de[ _-]passe|(?<![a-z])mdp(?![a-z])|wachtwoord|парол[ьяею]"
    r"|パスワード|暗証番号|비밀번호|암호|密[ \t]{0,4}[码碼]|口[ \t]{0,4}令(?!牌)|暗[ \t]{0,2}[码碼号]|通行[码碼]|(?<=登[录陆])码|开机码|解锁码"
)
_SECRET: Final = (
    r"secret(?:[ _-]?access)?(?:[ _-]?key)?|(?:private|signing|encryption|encrypt|master|shared|pre[ _-]?shared|account|storage|access|service|wallet|deploy|root"
    r"|session|cipher|crypto?|aes|hmac|webhook|licen[cs]e|security|recovery|instrumentation|subscription|jwt|server|admin|function|host)[ _-]?key(?!word|board|s?tone)"
    r"|[密秘私金][ \t]{0,4}[钥鑰匙](?![匙])|(?<=应用)秘钥|(?<=加密)串|signature[ _-]?secret"
)
_TOKEN: Final = r"token|(?<![a-z])bearer|令[ \t]{0,4}牌|凭[证据]|憑證|session[ _-]?cookie|(?<![a-z])jwt|(?<![a-z])sessdata|トークン|토큰"
_API_KEY: Final = (
    r"api[ _-]?key|(?<![a-z])app[ _-]?key|auth[ _-]?key|authorization[ _-]?code|application[ _-]?key|integration[ _-]?key|"
    r"(?:安全|应用|專用|专用|邮箱|客户端|第三方)?授[权權][码碼]|访问[码碼密]?[钥匙]?|激活码|(?<![A-Za-z])[as]k(?=[ \t]?[=:：])"
)
_WEAK: Final = r"(?<![A-Za-z])key(?![A-Za-z])|credentials?|(?<![A-Za-z])creds?(?![A-Za-z])|(?<![A-Za-z])auth(?![A-Za-z])|(?<=账)密|(?<=帐)密|(?<![a-z])login(?![a-z])|登[录陆]信息|账[户号]信息"
_LABEL: Final = rf"(?i)(?P<P>{_PASSWORD})|(?P<S>{_SECRET})|(?P<T>{_TOKEN})|(?P<K>{_API_KEY})|(?P<W>{_WEAK})"

_NOT_BEFORE: Final = frozenset(
    ["public", "primary", "foreign", "partition", "sort", "cache", "next", "page", "continuation", "pad", "eos", "bos", "unk", "mask", "max", "min", "stop", "special", "hot", "short", "registry", "arrow", "function", "dict", "json", "composite", "candidate", "publishable", "site", "measurement", "index", "hash", "hashed", "unique", "surrogate", "natural", "row", "map", "lookup", "tree", "dns", "xsrf", "csrf", "forgery", "per", "first", "last", "of", "localization", "localisation", "i18n", "translation", "config", "device", "registration", "push", "sync", "cancellation", "lexer", "syntax", "design", "amz", "goog", "change", "import", "export", "update", "policy", "work", "unit", "lock", "upload", "starting", "resume", "confirmation", "idempotency", "request", "task", "claim", "delegation", "collection", "query", "search", "position", "s3", "object", "kms", "rate", "bucket", "security", "session", "reset", "verification", "public", "lookahead", "start", "end", "open", "close", "opening", "closing", "comment", "punctuation", "unexpected", "id", "ordering", "group", "dedup", "deduplication", "invite", "unsubscribe", "tracking", "context", "input", "output", "completion", "prompt", "image", "ssh", "deploy_public"]
)  # fmt: skip
_NOT_BEFORE_CHINESE: Final = tuple(
    ["凯撒", "恺撒", "摩斯", "摩尔斯", "莫斯", "莫尔斯", "摩爾斯", "芬奇", "流量", "财富", "栅栏", "维吉尼亚", "维热纳尔", "生命", "人生", "基因", "遗传", "成功", "幸福", "文化", "爱情", "古典", "替换", "置换", "换位", "宇宙", "历史", "健康", "长寿", "数字", "商业", "增长", "心灵", "成长", "情感", "爆款", "公", "主", "外", "古", "弱", "哈希", "对称", "流", "分组", "词", "接头", "军事", "行军", "红包", "淘", "培根", "棋盘", "希尔", "仿射", "滚动", "猪圈", "写作", "沟通", "教育", "公开", "防伪", "抽奖", "福利", "编", "解", "译", "乱", "转", "邮政编", "魔"]
)  # fmt: skip


def _is_other_label(text: str, start: int) -> bool:
    """Tell labels that only end like one: ``primary key``, ``凯撒密码``, a book's title, a piece of base64."""
    before = text[max(0, start - 24) : start]
    if not before:
        return False
    word = compiled(r"(?:[A-Z]?[a-z0-9]+|[A-Z]+)(?=[ _-]?\Z)").search(before)
    if (word and word.group().lower() in _NOT_BEFORE) or before.endswith(_NOT_BEFORE_CHINESE):
        return True
    return (
        before.rfind("《") > before.rfind("》")
        or "secretsmanager:" in before
        or compiled(r"[A-Za-z0-9+/]{24}").match(before) is not None
    )


_NOT_AFTER: Final = (
    r"(?i)(?:[ _-]?(?:hash(?:ed|es|ing)?|file(?:name)?|path|policy|policies|length|len|min|max|ttl|expir\w*|type|url|uri|endpoint|ids?|names?|field|hint|reset|ref(?:erence)?|count|limit|size|usage"
    r"|manager|strength|encoder|provider|store|rotation|format|regex|pattern|placeholder|input|prompt|version|algorithm|digest|arn|location|dir|header|scopes?|issuer|audience|bucket"
    r"|validat\w*|check\w*|required|enabled|attempts|age|protect\w*|less|ization|ize\w*|is[ei]\w*|s[ _-]?per|budget|confirm\w*|generat\w*|cred|santa|sharing|management|service|engine|window|"
    r"server|ring|chain|board|word|stone|note|point|frame|value[ _-]?pair|press|code|binding|map|event|up|down|pair|space|range|agreement|exchange|vault|lock|for[ _-]?sale|user|host"
    r"|fingerprint|pub|public|text|label|title|description|message|error|invalid|incorrect|class|mode|form|page|screen|view|model|schema|table|column|row|index|list|array|set|dict|type|prefix|suffix|permission|cert\w*|data)\b(?!\w)"
    r"|[ _-]?(?:Hash|File|Path|Policy|Length|Type|Url|Id|Name|Field|Hint|Reset|Encoder|Manager|Provider|Input)(?-i:(?![a-z]))"
    r"|izer|iz|ology|word|board|ed\b|ing\b"
    r"|》|学|子|朋克|本(?!身)|算法|体制|强度|长度|策略|规则|管理|保护|重置|找回|错误|箱|输入|框|复杂|加密|哈希|机制|技术|分析|破解|生成|桶|红包|字段|文件|表|泄[露漏]|过期|登[录陆](?!是|为|[:：])"
    r"|库|散列|不少于|至少|最少|由|贴|写|存|放|必须|永远|可以|应该|要求|不[能要可]|需要|最好|对|交换|协商|派生|轮换|托管|原语|工程|安全|体系|协议|系统|通信|术|编|家|战|界|设备|器|组件|服务|大全|模块|锁芯|认证|验证)"
)
_OPEN: Final = r"""[\s"'`*_(\[{「『“‘<《【]{0,8}"""
_STRONG: Final = r"""[\s"'`*_)\]）】」』”’》~?!]{0,6}(?::=|=>|={1,3}|[:：;]|->|→|-->|⇒|➜|\||>|——?|–)"""  # label: value
_TYPED: Final = r"""[\s"'`?]{0,4}:[ \t]{0,4}[A-Za-z][\w<>\[\]|., ?]{0,40}[ \t]{0,4}=(?!=)"""  # label: str = value
_COMMENTED: Final = r"""[ \t]{0,4}[(（\[][^()（）\[\]\n]{0,40}[)）\]][ \t]{0,4}[*_`]{0,3}(?:[:：=]|->|→|是|为|is)"""  # label (root) : value
_PAIR: Final = r"""["'][ \t]{0,4}(?:,|\)?[ \t]{0,4}(?:\.set|\.put)?\()[ \t]{0,4}(?=["'])"""  # put("label", "value")
_CALL: Final = r"""[ \t]{0,2}\([ \t]{0,4}(?=["'])"""  # setPassword("value")
_ATTRIBUTE: Final = (
    r"""["'][ \t]{0,4},?\s{0,20}["']?value["']?[ \t]{0,4}[=:][ \t]{0,4}(?=["'])"""  # name="label" value="value"
)
_LATER_VALUE: Final = (
    r"""["']?[ \t]{0,4}\n[ \t-]{0,20}["']?value["']?[ \t]{0,4}:[ \t]{0,4}"""  # - name: LABEL / value: value
)
_QUALIFIED: Final = r"""[ \t]{1,4}(?:for|of|to|on|in|at|used|de|für|pour|para)[ \t][^\n.:=|;,!?。；，：]{1,40}[:：=]|(?:[ \t]{0,2}[/／&和、+|-][ \t]{0,2}[\w一-鿿]{1,12}){1,3}[ \t]{0,2}[:：=]"""
_COPULA: Final = (
    r"""["'`*_)）\]」』]{0,4}(?:[ \t]{1,4}(?:[A-Za-z][\w'-]{0,14}[ \t]{1,4}){0,5}?(?:is|was|are|to|as|became|IS|Is|=|es|ist|lautet|est|é|это)(?:[ \t]{1,4}(?:now|still|currently|been|changed|set|reset|updated|rotated|just|temporarily|back)){0,4}(?:[ \t]{1,4}(?:to|as))?(?:[ \t]?:)?[ \t]{1,4}"""
    r"""|[一-鿿 \t]{0,8}?(?:[是为為叫用即]|改成了?|改[为為]|换成了?|设成了?|设[为為置]|設[为為定]|变成了?|变[为為]|成了|告诉|发你|[:：=→]|は|が|는|은)[ \t]{0,4}(?:[:：][ \t]{0,2})?)"""
)
_SPACE: Final = r"""["'`*_」』）)]{0,3}(?:[ \t]{1,4}|(?=[「『“‘"'`（(【]))"""
_BARE: Final = r"""[!-~]{1,200}"""
_QUOTED: Final = r"""(?P<quote>["'`])(?P<quoted>[^"'`\n]{1,400})(?P=quote)"""
_TRIM_END: Final = ".,;:!?)]}>\"'`|*~&/\\"
_LINE_REST: Final = 200
_NEXT_LINE: Final = r"""[\s"'`*_)\]）】」』:：=>-]{0,8}?[ \t]{0,8}\n(?:[ \t>]{0,8}\n)?[ \t>]{0,8}(?:[-*+][ \t]|\d{1,2}[.)][ \t])?[ \t]{0,4}(?:```?\w{0,12}\n[ \t>]{0,8})?[`"'*_]{0,4}(?P<value>[!-~]{4,200})[ \t]{0,8}(?:\n|\Z)"""
_HANZI_LINE: Final = r"[ \t]{0,4}[:：][ \t]{0,4}(?P<value>[一-鿿]{7,24})[ \t]{0,8}(?:\n|\Z)"
_HANZI_TALK: Final = r"[的了是在见请用需要不可与和或被把等于同忘记设置改重存放找问看发由无空暂待略保密加解钥码令算法输入长短字符位数为以从及其这那该每任何各对]"
_NUMBER: Final = r"(?P<value>\d{3}[ -]\d{3}|\d{3,12})(?![\d\w]|[-/.]\d|[ \t]{0,2}(?:[年月日位个次条天种元号分秒%％页章人台套份款歲岁]|bits?|char|digit|times|days|seconds?|minutes?|hours?|years?|users?|token|[KMG]B))"
_PIN: Final = r"(?:(?<![A-Za-z_#])(?:PIN|Pin[ -]?(?:code|number)|pin[ -](?:code|number)|PUK|CVV2?|CVC2?)(?![A-Za-z_])(?:[ \t]?[码碼])?|(?:取款|支付|锁屏|解锁|开机|门[锁禁]|银行卡|信用卡|保险[箱柜]|行李箱|手机|交易|提款|卡)[ \t]?(?:的)?(?:密[码碼]|PIN)|安全码|解锁码|取件码|門鎖密碼|提款密碼)"
_PIN_TIE: Final = (
    r"[\s*_`\"'）)]{0,6}(?:[:：=|]|is|was|是|为|為|改成了?|改为|->|→|[ \t]|(?<=[码碼]))[ \t*_`\"'（(「]{0,6}"
)
_CARD_CODE: Final = r"CVV|CVC|安全码"
_GPIO: Final = r"(?i)gpio|board|header|arduino|connector|pinout|led|vcc|gnd|uart|spi"
_RANDOM_MINIMUM: Final = {"S": 16, "T": 16, "K": 16, "W": 20}
_CASES: Final = 3
_SHORTEST: Final = 4
_PAIR_LABEL: Final = (
    r"(?i)(?:(?:账|帐)[号户]|用户名?|user(?:name)?|login|account|email|id)[ \t]{0,2}(?:[/／&+、和,|-]|and|or)[ \t]{0,2}(?:密[码碼]|pass(?:word)?|pwd|pw)\b|[账帐]密|账号密码|用户名密码"
    r"|(?<![A-Za-z])(?:creds?|credentials?|logins?)(?![A-Za-z])|登[录陆](?:信息|账号)"
)


_MAYBE: Final = r"[0-9!@#$%^&*]|[A-Za-z]{8}"
_VERBS: Final = ("pass", "key", "auth", "login", "cred", "creds")
_STEMS: Final = (
    "pass", "kennwort", "pwd", "psk", "pw", "contrase", "senha", "mdp", "wachtwoord", "парол", "パスワード", "暗証番号",
    "비밀번호", "암호", "码", "碼", "令", "暗", "secret", "key", "钥", "鑰", "匙", "加密串", "token", "bearer", "凭", "憑", "cookie",
    "jwt", "sessdata", "トークン", "토큰", "auth", "授", "访问", "ak=", "ak:", "ak =", "ak :", "sk=", "sk:", "sk =", "sk :", "ak：", "sk：",
    "cred", "login", "密", "登录信息", "登陆信息", "信息",
)  # fmt: skip
_PIN_STEMS: Final = ("pin", "puk", "cvv", "cvc", "码", "碼", "令", "番号")
_PAIR_STEMS: Final = ("pass", "pwd", "pw", "密", "cred", "login", "登录", "登陆")
_CODE_STEMS: Final = ("code", "key", "token", "pass", "码", "碼", "密")
_OTP_STEMS: Final = ("2fa", "totp", "mfa", "otp", "authenticator", "two", "验证", "認證", "驗證", "认证", "因", "动态")
_APP_STEMS: Final = ("app", "应用", "专用", "專用", "授", "gmail", "smtp")
_HEADER_STEMS: Final = (
    "pass",
    "pw",
    "pin",
    "码",
    "碼",
    "令",
    "パスワード",
    "비밀번호",
    "парол",
    "contrase",
    "senha",
    "secret",
    "key",
    "token",
    "钥",
    "鑰",
)
_WINDOW: Final = 48


def _find_near(pattern: str, text: str, stems: tuple[str, ...]) -> Iterator[re.Match[str]]:
    """Run a pattern only around the stems that each of its matches contains.

    ``str.find`` reads a text a hundred times faster than an alternation of labels does, and few lines of a
    note have any of them. Stems are lower-case; overlapping surroundings are merged, so that a text made
    of stems is still read once.
    """
    lowered = _lowered(text)
    at: list[int] = []
    for stem in stems:
        found = lowered.find(stem)
        while found >= 0:
            at.append(found)
            found = lowered.find(stem, found + len(stem))
    at.sort()
    done = number = 0
    while number < len(at):
        start, end = max(done, at[number] - _WINDOW), at[number] + _WINDOW
        while number < len(at) and at[number] - _WINDOW <= end:
            end = at[number] + _WINDOW
            number += 1
        for match in compiled(pattern).finditer(text, start, end):
            yield match
        done = end


@lru_cache(maxsize=2)
def _lowered(text: str) -> str:
    """Give a text in lower case, each character in its place."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def find_labelled(text: str) -> Iterator[tuple[str, int, int]]:
    """Find values that stand by a label: rule, start and end of label with value."""
    for match in _find_near(_LABEL, text, _STEMS):
        start, end = match.span()
        kind = str(match.lastgroup)
        maybe = compiled(_MAYBE).search(text, end, end + _LINE_REST)
        chinese = kind in "PS" and not match.group().isascii() and compiled(_HANZI_LINE).match(text, end)
        if not (maybe or chinese) or _is_other_label(text, start) or _is_in_example_address(text, start):
            continue
        rest = text[end : end + 700]
        if compiled(_NOT_AFTER).match(rest):
            continue
        rest, shift = _skip_identifier(rest)
        length = _value_end(kind, match.group(), rest) if maybe else _hanzi_end(rest)
        if length:
            yield _RULES[kind], start, end + shift + length
    yield from _find_pins(text)
    yield from _find_pairs(text)


_RULES: Final = {
    "P": "labelled_password",
    "S": "labelled_secret",
    "T": "labelled_token",
    "K": "labelled_api_key",
    "W": "labelled_credential",
}


def _is_in_example_address(text: str, start: int) -> bool:
    """Tell whether a label is a parameter of an address that manuals use, or of one that a mail list signs."""
    if text[start - 1 : start] not in {"?", "&"} and text[start - 3 : start] not in {"?ws", "&ws", "?x-"}:
        return False
    return (
        compiled(r"://(?:[\w-]{1,40}\.){0,3}(?:example\.(?:com|org|net)|mp\.weixin\.qq\.com)/").search(
            text, max(0, start - 300), start
        )
        is not None
    )


def _skip_identifier(rest: str) -> tuple[str, int]:
    """Step over the rest of a name such as ``_KEY_BASE`` or ``s`` that the label is a part of."""
    match = compiled(r"[A-Za-z0-9_-]{0,40}").match(rest)
    tail = match.group() if match else ""
    tail = tail.rstrip("-")
    if compiled(r"(?i)\A(?:s|es)?(?:[_-][A-Za-z0-9_-]*)?\Z|\A[0-9]{1,2}\Z|\A(?-i:[A-Z][A-Za-z0-9]*)\Z").match(tail):
        return rest[len(tail) :], len(tail)
    return rest, 0


def _value_end(kind: str, label: str, rest: str) -> int:
    """Give where the value of a label ends, or 0 if it has none."""
    chinese = not label.isascii()
    for tie in (_TYPED, _COMMENTED, _PAIR, _CALL, _ATTRIBUTE, _LATER_VALUE, _STRONG, _QUALIFIED):
        match = compiled(tie).match(rest)
        if match:
            for value, quoted, end in _values_at(rest, match.end(), password=kind in "PS"):
                if _accept(kind, value, firm=True, quoted=quoted, chinese=chinese):
                    return end
            if tie is _STRONG and kind in "PS" and chinese and _hanzi_end(rest):
                return _hanzi_end(rest)
    for tie in (_COPULA, _SPACE):
        match = compiled(tie).match(rest)
        if match and not (tie is _SPACE and label.lower() in _VERBS):
            for value, quoted, end in _values_at(rest, match.end(), password=kind in "PS"):
                if _accept(kind, value, firm=quoted and tie is _COPULA, quoted=quoted, chinese=chinese):
                    return end
    match = compiled(_NEXT_LINE).match(rest)
    if match:
        value = match["value"].strip("`\"'*_").rstrip(_TRIM_END) if kind != "P" else match["value"].strip("`\"'")
        if _accept(kind, value, firm=False, quoted=False, chinese=chinese):
            return match.end("value")
    return 0


def _hanzi_end(rest: str) -> int:
    """Give where a pass-phrase of Chinese characters ends that fills its line and is no sentence, or 0."""
    match = compiled(_HANZI_LINE).match(rest)
    return match.end("value") if match and not compiled(_HANZI_TALK).search(match["value"]) else 0


def _values_at(rest: str, start: int, *, password: bool) -> Iterator[tuple[str, bool, int]]:
    """Give the candidate at a place: what is quoted there, or the run up to a space."""
    match = compiled(r"[ \t]{0,8}[frbu]?" + _QUOTED).match(rest, start)
    if match:
        yield match["quoted"], True, match.end("quoted")
        return
    match = compiled(_OPEN.replace(r"\s", r" \t")).match(rest, start)
    begin = match.end() if match else start
    opener = rest[start:begin].strip()
    match = compiled(_BARE).match(rest, begin)
    if match and not opener.endswith(("<", "[", "{")) and not match.group().startswith("-"):
        value = match.group()
        for stop in ('"', "'", "`", "</", ",'", "|", "<br"):
            cut = value.find(stop)
            if cut > 0:
                value = value[:cut]
        trimmed = value.rstrip(_TRIM_END) or value
        cut = compiled(r"[,;)&]").search(trimmed)
        if cut and cut.start() >= _SHORTEST:
            yield trimmed[: cut.start()], bool(opener), begin + cut.start()
        if not cut or password:
            yield trimmed, bool(opener), begin + len(trimmed)


def _accept(kind: str, value: str, *, firm: bool, quoted: bool, chinese: bool) -> bool:
    """Tell whether a value is a secret, given the kind of label and how firmly it is tied to it."""
    if len(value) < _SHORTEST or (value.isalpha() and len(value) < 8):
        return False
    if is_reference(value) and not (chinese and is_password(value)):
        return False
    if kind == "P":
        if value.isdigit():
            return firm and 6 <= len(value) <= 12 and not is_trivial_number(value)
        return is_password(value, firm=firm) or is_random(value, 12)
    if kind == "S" and firm and len(value) >= 8 and is_password(value):
        cases = sum(
            (
                any(map(str.islower, value)),
                any(map(str.isupper, value)),
                any(map(str.isdigit, value)),
                not value.isalnum(),
            )
        )
        if cases > _CASES or ((cases == _CASES and len(value) >= 10) and not compiled(r"[-_./:]").search(value)):
            return True
    minimum = _RANDOM_MINIMUM[kind] + (0 if firm or quoted else 4)
    if kind == "W" and value.startswith(("AAAA", "MII")):
        return False
    return is_random(value, minimum, hexadecimal=kind != "W", uuid=kind in "SK" and firm)


def _find_pins(text: str) -> Iterator[tuple[str, int, int]]:
    """Find short numbers that a card, a phone or a door opens with."""
    for match in _find_near(_PIN, text, _PIN_STEMS):
        tie = compiled(_PIN_TIE).match(text, match.end(), match.end() + 40)
        number = compiled(_NUMBER).match(text, tie.end(), tie.end() + 40) if tie else None
        digits = compiled(r"[ -]").sub("", number["value"]) if number else ""
        if (
            not number
            or is_trivial_number(digits)
            or not (3 if compiled(_CARD_CODE).match(match.group()) else 4) <= len(digits) <= 8
        ):
            continue
        around = text[max(0, match.start() - 60) : number.end() + 40]
        if not (match.group().isascii() and compiled(_GPIO).search(around)):
            yield "labelled_pin", match.start(), number.end()
    for match in compiled(r"(?:密[ \t]{0,4}[码碼]|口令|暗证番号)").finditer(text):
        tie = compiled(r"[\s*_`）)]{0,4}(?:[:：=]|[是为為]|改成了?|改为|->|→)[ \t*_`「（(]{0,4}").match(
            text, match.end(), match.end() + 20
        )
        number = compiled(_NUMBER).match(text, tie.end(), tie.end() + 40) if tie else None
        if (
            number
            and number["value"].isdigit()
            and len(number["value"]) >= 4
            and not is_trivial_number(number["value"])
            and not _is_other_label(text, match.start())
        ):
            yield "labelled_pin", match.start(), number.end()


def _find_pairs(text: str) -> Iterator[tuple[str, int, int]]:
    """Find ``user / password`` written after one label for both."""
    for match in _find_near(_PAIR_LABEL, text, _PAIR_STEMS):
        if compiled(r"[?&=-][\w-]{0,24}\Z").search(text, max(0, match.start() - 24), match.start()):
            continue
        rest = text[match.end() : match.end() + _LINE_REST].partition("\n")[0]
        tie = compiled(r"[\s*_`\"'）)]{0,4}(?:[:：=|]|is|are|是|为|->|→|[ \t])").match(rest)
        if not tie:
            continue
        words = compiled(r"[^\s/|,，、：:;；()（）\"'`]{6,64}").findall(rest[tie.end() :])[:4]
        for word in words:
            word = word.rstrip(_TRIM_END)
            if (
                is_password(word, firm=False)
                and not is_reference(word)
                and compiled(r"[!@#$%^&*_.+-]|[a-z].*[A-Z]|[A-Z].*[a-z]|[a-z].*\d{3}").search(word)
            ):
                yield "labelled_password", match.start(), match.end() + len(rest)
                break


_HEADER: Final = (
    r"(?i)\A[\s*_`\"']*(?:[\w/ .()-]{0,20}[ _/-]|(?-i:[一-鿿]{0,8}))?(?:passw(?:or)?ds?|passwort|pwd|pw|pass|passphrase|passcode|pin|密[ \t]{0,4}[码碼]|口[ \t]?令|パスワード|비밀번호|пароль|contraseña|senha|mot de passe"
    r"|(?P<machine>secrets?|(?:api|access|secret|private|app|auth)[ _-]?(?:key|secret|token)s?|tokens?|[密秘私][钥鑰]|令牌|appsecret|授权码))(?:[ _]?(?:value|值|\(.{0,12}\)))?[\s*_`\"']*\Z"
)
_RULE_ROW: Final = r"\A[\s|:+\-=—]*\Z"
_MAX_COLUMNS: Final = 40


def find_in_tables(text: str) -> Iterator[tuple[str, int, int]]:
    """Find values under a header cell that is a label: pipe tables, and comma- or tab-separated lines."""
    lowered = _lowered(text)
    if not any(stem in lowered for stem in _HEADER_STEMS):
        return
    headers: dict[int, str] = {}
    mark = ""
    offset = 0
    for line in text.split("\n"):
        here, offset = offset, offset + len(line) + 1
        if mark and mark in line:
            if compiled(_RULE_ROW).match(line):
                continue
            cells = line.strip(" \t>").strip("|" if mark == "|" else " ").split(mark)[:_MAX_COLUMNS]
            for column, kind in headers.items():
                value = cells[column].strip(" \t\"'`*") if column < len(cells) else ""
                if _accept_cell(kind, value):
                    yield _RULES[kind], here, here + len(line)
            if any(compiled(_HEADER).match(cell) for cell in cells):
                headers = _header_columns(cells)
            continue
        headers, mark = {}, ""
        for candidate in "|\t,":
            if candidate in line and len(line) <= 2000:
                cells = line.strip(" \t>").strip("|" if candidate == "|" else " ").split(candidate)[:_MAX_COLUMNS]
                headers = _header_columns(cells) if len(cells) > 1 else {}
                mark = candidate if headers else ""
                if mark:
                    break


def _header_columns(cells: list[str]) -> dict[int, str]:
    columns: dict[int, str] = {}
    for number, cell in enumerate(cells):
        match = compiled(_HEADER).match(cell) if len(cell) <= 60 else None
        if match:
            columns[number] = "S" if match["machine"] else "P"
    return columns


def _accept_cell(kind: str, value: str) -> bool:
    if not 4 <= len(value) <= 200 or " " in value:
        return False
    if kind == "P" and value.isdigit():
        return len(value) <= 12 and not is_trivial_number(value)
    return _accept(kind, value, firm=True, quoted=True, chinese=False)


_CODES_LABEL: Final = (
    r"(?i)(?:recovery|backup|back-up|scratch|rescue|emergency|one[ -]time|2fa|mfa|备用|備用|恢复|恢復|救援|应急|紧急|一次性|备份)[ \t_-]{0,3}(?:access[ ]|verification[ ]|login[ ]|登录|验证|驗證)?"
    r"[ \t_-]{0,2}(?:codes?|keys?|tokens?|passcodes?|passwords?|验证[码碼]|驗證碼|代[码碼]|[码碼]|密[钥码碼])"
)
_CODE: Final = r"(?<![\w.-])(?:\d{3,5}[ -]\d{3,5}|\d{8,10}|\d{6}|[a-z0-9]{4,6}(?:-[a-z0-9]{4,6}){1,7}|[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){1,7}|[a-z0-9]{8,16}|[A-Z0-9]{8,32}|[a-f0-9]{4,5} [a-f0-9]{4,5})(?![\w.-])"
_MIN_CODES: Final = 3


def find_recovery_codes(text: str) -> Iterator[tuple[str, int, int]]:
    """Find lists of one-time codes under their label; one alone counts if it is long and random."""
    for match in _find_near(_CODES_LABEL, text, _CODE_STEMS):
        window = text[match.end() : match.end() + 500]
        if compiled(r"[ \t]{0,2}(?:是什么|可以|用于|are[ ]used|let[ ])").match(window):
            continue
        codes = [
            code
            for code in compiled(_CODE).findall(window)
            if sum(map(str.isdigit, code)) >= 2 and not is_placeholder(code)
        ]
        codes = [code for code in codes if not compiled(r"(?:19|20)\d\d-\d\d|(?:19|20)\d{6}\Z").match(code)]
        single = compiled(
            r"[\s:：=`*|是为-]{1,12}(?P<value>[A-Za-z0-9]{4,8}(?:-[A-Za-z0-9]{4,8}){2,9}|[A-Z0-9]{12,64}|[a-z0-9]{16,64})(?![\w-])"
        ).match(window)
        if len(set(codes)) >= _MIN_CODES or (single and is_random(single["value"].replace("-", ""), 12)):
            yield "recovery_codes", match.start(), match.end()


_OTP_LABEL: Final = r"(?i)(?<![a-z])(?:2fa|totp|mfa|otp|authenticator|two[ -]factor|two[ -]step)(?![a-z])|两步验证|二步验证|雙重驗證|两步认证|双因[素子]|二次验证|谷歌验证器|身份验证器|动态[口密][令码]"
_BASE32: Final = r"(?<![A-Za-z0-9+/=_-])(?:[A-Z2-7]{16,64}|[a-z2-7]{16,64}|(?:[A-Za-z2-7]{4}[ -]){3,15}[A-Za-z2-7]{4})={0,6}(?![A-Za-z0-9+/_-])"
_APP_LABEL: Final = r"(?i)app(?:lication)?(?:[ -]specific)?[ -]?passwords?|应用(?:专用|程序)?密[码碼]|專用密碼|专用密码|(?:邮箱|smtp|imap|qq|163|客户端)?[ ]?授[权權][码碼]|gmail|smtp"
_APP: Final = r"(?<![A-Za-z0-9-])(?:[a-z]{4}([ -])[a-z]{4}\1[a-z]{4}\1[a-z]{4}|[a-z]{16}|[A-Z]{16})(?![A-Za-z0-9-])"
_NEAR: Final = 80


def find_second_factors(text: str) -> Iterator[tuple[str, int, int]]:
    """Find seeds of one-time passwords and the passwords that mail and Apple accounts give to programs."""
    for match in _find_near(_OTP_LABEL, text, _OTP_STEMS):
        near = text[match.end() : match.end() + _NEAR]
        for seed in compiled(_BASE32).finditer(near):
            packed = compiled(r"[ =-]").sub("", seed.group())
            if (
                len(packed) >= 16
                and any(map(str.isdigit, packed))
                and not is_placeholder(packed)
                and len(set(packed)) >= 8
            ):
                yield "totp_secret", match.start(), match.end() + seed.end()
                break
    for match in _find_near(_APP_LABEL, text, _APP_STEMS):
        near = text[match.end() : match.end() + _NEAR].partition("\n\n")[0]
        for found in compiled(_APP).finditer(near):
            packed = compiled(r"[ -]").sub("", found.group()).lower()
            words = compiled(r"[ -]").split(found.group())
            if (
                len(set(packed)) >= 8
                and not is_placeholder(packed)
                and not is_sample_word(packed)
                and _unlike_words(packed, words)
            ):
                yield "app_password", match.start(), match.end() + found.end()
                break


def _unlike_words(packed: str, words: list[str]) -> bool:
    """Tell random letters from four short words in a sentence."""
    vowelless = sum(not set(word) & set("aeiou") for word in words)
    return wordiness(packed) < 0.5 or vowelless >= 2
