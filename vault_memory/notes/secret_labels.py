"""Secrets that only their label gives away: ``password: ...``, ``密码是...``, a table's ``Password`` column.

Belongs here: the vocabulary of labels in several languages, the ways a value is tied to its label, and the
limits each kind of label sets on its value. Does not: tokens that a vendor's prefix gives away.

A label is found by one alternation; what stands around it is then read from slices of bounded length, so
that a note made of nothing but labels costs a constant for each.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_assembly import is_piece
from vault_memory.notes.secret_screen import Screen
from vault_memory.notes.secret_values import (
    compiled,
    is_password,
    is_random,
    is_reference,
    is_trivial_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD: Final = (
    r"pas{1,2}[ _-]?w(?:or|r|ro)?d|(?<![a-z])p(?:as)?swr?d?(?![a-z])|p/w|(?<![a-z])(?:mima|kouling)(?![a-z])|(?<![a-z])(?:ssh|my|db|pg|smtp|mail|ftp|ldap)pass(?![a-z])|🔑|🔐|passwort|kennwort|(?<![A-Za-z])(?:root|admin|user|db)pw(?![A-Za-z])|pass[ _-]?(?:phrase|code)|pwd|psk|(?<![A-Za-z0-9+/=])pw(?![A-Za-z0-9+/])|(?<![A-Za-z0-9+/=])pass(?![A-Za-z])"
    r"|(?-i:(?<=[a-z])(?:Pass|Pw)(?![a-z]))|contrase[ñn]a|(?<![a-z])senha|mot[ _-]de[ _-]passe|(?<![a-z])mdp(?![a-z])|wachtwoord|парол[ьяею]|palavra[ -]passe|(?<![a-z])clave(?:[ ](?:de[ ](?:acceso|la[ ]wifi)|secreta|wifi))?(?![a-z])|zugangscode|(?:wlan|wifi|wi-fi|netzwerk)[ -]?schl[üu]ssel"
    r"|(?<![a-z])has[łl]o(?![a-z])|[şs]ifre(?:si)?(?![a-z])|(?<![a-z])parola(?![a-z])|l[öo]senord|adgangskode|(?<![a-z])passord|salasana|(?<![a-z])hesl[oa](?![a-z])|jelsz[óo]|m[ậa]t kh[ẩa]u"
    r"|รหัสผ่าน|كلمة[ ](?:المرور|السر)|סיסמ[הא]|पासवर्ड|kata[ ]sandi|κωδικ[όο]ς|गुप्त[ ]शब्द|code[ ](?:secret|d'acc[èe]s)"
    r"|パスワード|暗証(?:番号)?|合言葉|비밀번호|패스워드|비번|암호|通[关關]密[语語]|密[ \t]{0,4}[码碼](?:短[语語])?|口[ \t]{0,4}令(?!牌)|暗[ \t]{0,2}[码碼号]|通行[码碼]|(?<=登[录陆])码|开机码|解锁码"
    r"|(?:bitwarden|1password|keepass\w{0,3}|lastpass|dashlane|nordpass|proton[ ]pass|enpass)(?:['’]s)?[ ](?:master|vault|login|unlock)"
)
_SECRET: Final = (
    r"unseal[ _-]?key(?:[ _-]?\d{1,2})?|secret(?:[ _-]?access)?(?:[ _-]?key)?|(?:private|signing|encryption|encrypt|master|shared|pre[ _-]?shared|account|storage|access|service|wallet|deploy|root"
    r"|session|cipher|crypto?|aes|hmac|webhook|licen[cs]e|security|recovery|instrumentation|subscription|jwt|server|admin|function|host)[ _-]?key(?!word|board|s?tone)"
    r"|[密秘私金][ \t]{0,4}[钥鑰匙](?![匙])|секретный ключ|приватный ключ|cl[ée] (?:secr[èe]te|priv[ée]e|api)|clave (?:privada|secreta|api)|秘密鍵|비밀[ ]?키|(?<=应用)秘钥|(?<=加密)串|signature[ _-]?secret"
)
_TOKEN: Final = r"token|(?<![a-z])bearer|令[ \t]{0,4}牌|凭[证据]|憑證|session[ _-]?cookie|(?<![a-z])jwt|(?<![a-z])sessdata|トークン|토큰"
_API_KEY: Final = (
    r"api[ _-]?key|(?<![a-z])app[ _-]?key|auth[ _-]?key|authorization[ _-]?code|application[ _-]?key|integration[ _-]?key|"
    r"(?:安全|应用|專用|专用|邮箱|客户端|第三方)?授[权權][码碼]|访问[码碼密]?[钥匙]?|激活码|(?<![A-Za-z])[as]k(?=[ \t]?[=:：])"
)
_WEAK: Final = r"(?<![A-Za-z])key(?![A-Za-z])|credentials?|(?<![A-Za-z])creds?(?![A-Za-z])|(?<![A-Za-z])auth(?![A-Za-z])|(?<=账)密|(?<=帐)密|(?<![a-z])login(?![a-z])|登[录陆]信息|账[户号]信息"
_LABEL: Final = rf"(?i)(?P<P>{PASSWORD})|(?P<S>{_SECRET})|(?P<T>{_TOKEN})|(?P<K>{_API_KEY})|(?P<W>{_WEAK})"

_NOT_BEFORE: Final = frozenset(
    ["public", "primary", "foreign", "partition", "sort", "cache", "next", "page", "continuation", "pad", "eos", "bos", "unk", "mask", "max", "min", "stop", "special", "hot", "short", "registry", "arrow", "function", "dict", "json", "composite", "candidate", "publishable", "site", "measurement", "index", "hash", "hashed", "unique", "surrogate", "natural", "row", "map", "lookup", "tree", "dns", "xsrf", "csrf", "forgery", "per", "first", "last", "of", "localization", "localisation", "i18n", "translation", "config", "device", "registration", "push", "sync", "cancellation", "lexer", "syntax", "design", "amz", "goog", "change", "import", "export", "update", "policy", "work", "unit", "lock", "upload", "starting", "resume", "confirmation", "idempotency", "request", "task", "claim", "delegation", "collection", "query", "search", "position", "s3", "object", "kms", "rate", "bucket", "security", "session", "reset", "verification", "public", "lookahead", "start", "end", "open", "close", "opening", "closing", "comment", "punctuation", "unexpected", "id", "ordering", "group", "dedup", "deduplication", "invite", "unsubscribe", "tracking", "context", "input", "output", "completion", "prompt", "image", "ssh", "deploy_public"]
)  # fmt: skip
_NOT_BEFORE_CHINESE: Final = ("凯撒", "恺撒", "摩斯", "摩尔斯", "莫斯", "莫尔斯", "摩爾斯", "芬奇", "流量", "财富", "栅栏", "维吉尼亚", "维热纳尔", "生命", "人生", "基因", "遗传", "成功", "幸福", "文化", "爱情", "古典", "替换", "置换", "换位", "宇宙", "历史", "健康", "长寿", "数字", "商业", "增长", "心灵", "成长", "情感", "爆款", "公", "主", "外", "古", "弱", "哈希", "对称", "流", "分组", "词", "接头", "军事", "行军", "红包", "淘", "培根", "棋盘", "希尔", "仿射", "滚动", "猪圈", "写作", "沟通", "教育", "公开", "防伪", "抽奖", "福利", "编", "解", "译", "乱", "转", "邮政编", "魔")  # fmt: skip


# Words that make no other thing of a password: the one of an Apple ID or of work is one all the same.
_OF_PASSWORDS: Final = frozenset(
    ["id", "site", "work", "group", "device", "security", "session", "registration", "first", "last", "start", "end", "map", "row", "per", "of", "unit", "lock", "invite", "bucket", "import", "export", "sync", "config", "dns", "upload", "image", "security", "stop", "open", "s3", "public", "primary", "short", "task", "collection", "object"]
)  # fmt: skip


def is_other_label(text: str, start: int, *, password: bool = False) -> bool:
    """Tell labels that only end like one: ``primary key``, ``凯撒密码``, a book's title, a piece of base64.

    Args:
        text: All of it.
        start: Where the label starts.
        password: Whether it is a word for a password, and not for a key or token.
    """
    before = text[max(0, start - 24) : start]
    if not before:
        return False
    word = compiled(r"(?:[A-Z]?[a-z0-9]+|[A-Z]+)(?=[ _-]?\Z)").search(before)
    other = word.group().lower() if word and text[start].isascii() else ""
    if password and other in _OF_PASSWORDS:
        other = ""
    if other in _NOT_BEFORE or before.endswith(_NOT_BEFORE_CHINESE):
        return True
    return (
        before.rfind("《") > before.rfind("》")
        or "secretsmanager:" in before
        or compiled(r"[A-Za-z0-9+/]{24}").match(before) is not None
    )


_NOT_AFTER: Final = (
    r"(?i)(?:[ _-]?(?:hash(?:ed|es|ing)?|file(?:name)?|path|policy|policies|length|len|min|max|ttl|expir\w*|type|url|uri|endpoint|ids?|names?|field|hint|reset(?![ \t]to(?![a-z]))|ref(?:erence)?|count|limit|size|usage"
    r"|manager|strength|encoder|provider|store|rotation|format|regex|pattern|placeholder|input|prompt|version|algorithm|digest|arn|location|dir|header|scopes?|issuer|audience|bucket"
    r"|validat\w*|check\w*|required|enabled|attempts|age|protect\w*|less|ization|ize\w*|is[ei]\w*|s[ _-]?per|budget|confirm\w*|generat\w*|cred|santa|sharing|management|service|engine|window|"
    r"server|ring|chain|board|word|stone|note|point|frame|value[ _-]?pair|press|code|binding|map|event|up|down|pair|space|range|agreement|exchange|vault|lock|for[ _-]?sale|user|host"
    r"|fingerprint|pub|public|text|label|title|description|message|error|invalid|incorrect|class|mode|form|page|screen|view|model|schema|table|column|row|index|list|array|set|dict|type|prefix|suffix|permission|cert\w*|data)\b(?!\w)"
    r"|[ _-]?(?:Hash|File|Path|Policy|Length|Type|Url|Id|Name|Field|Hint|Reset(?![ \t]to(?![a-z]))|Encoder|Manager|Provider|Input)(?-i:(?![a-z]))"
    r"|izer|iz|ology|word|board|ed\b|ing\b|[ -]?(?:richtlinien?|regeln?|l[äa]nge|wechsel|datei|feld|verwaltung|schutz|[äa]nderung)(?![a-z])"
    r"|》|学|子|朋克|本(?!身)|算法|体制|强度|长度|策略|规则|管理|保护|重置|找回|错误|箱|输入|框|复杂|加密|哈希|机制|技术|分析|破解|生成|桶|红包|字段|文件|表|泄[露漏]|过期|登[录陆](?!是|为|[:：])"
    r"|库|散列|不少于|至少|最少|由|贴|写|存|放|必须|永远|可以|应该|要求|不[能要可]|需要|最好|对|交换|协商|派生|轮换|托管|原语|工程|安全|体系|协议|系统|通信|术|编|家|战|界|设备|器|组件|服务|大全|模块|锁芯|认证|验证)"
)


def is_talk_about(text: str, start: int, end: int) -> bool:
    """Tell a word for passwords that heads something else: ``passwords``, ``password policy``, ``secure password hashing``."""
    return (
        text[end : end + 1].lower() == "s"
        or compiled(_NOT_AFTER).match(text, end) is not None
        or is_other_label(text, start, password=True)
    )


_OPEN: Final = r"""[\s"'`*_(\[{「『“‘<《【]{0,8}"""
_BRACKETED: Final = r"[】］\]」』][ \t]{0,2}(?=[!-~])"  # 【label】value
_STRONG: Final = (
    r"""[\s"'`*_)\]）】」』”’》~?!]{0,6}(?::=|=>|={1,3}|[:：;]|->|→|-->|⇒|➜|➡️?|👉|🔑|🔐|\||>|——?|–)"""  # label: value
)
_TYPED: Final = r"""[\s"'`?]{0,4}:[ \t]{0,4}[A-Za-z][\w<>\[\]|., ?]{0,40}[ \t]{0,4}=(?!=)"""  # label: str = value
_COMMENTED: Final = r"""[ \t]{0,4}[(（\[][^()（）\[\]\n]{0,40}[)）\]][ \t]{0,4}[*_`]{0,3}(?:[:：=]|->|→|是|为|is)"""  # label (root) : value
_PAIR: Final = r"""["'][ \t]{0,4}(?:,|\)?[ \t]{0,4}(?:\.set|\.put)?\()[ \t]{0,4}(?=["'])"""  # put("label", "value")
_CALL: Final = r"""[ \t]{0,2}\([ \t]{0,4}(?=["'])"""  # setPassword("value")
_ATTRIBUTE: Final = (
    r"""["'][ \t]{0,4},?\s{0,20}["']?value["']?[ \t]{0,4}[=:][ \t]{0,4}(?=["'])"""  # name="label" value="value"
)
_ELEMENTS: Final = r"""[ \t]{0,4}</[A-Za-z]{1,20}>\s{0,40}<[A-Za-z]{1,20}>(?=[^\s<])"""  # <key>label</key><value>value
_LATER_VALUE: Final = (
    r"""["']?[ \t]{0,4}\n[ \t-]{0,20}["']?value["']?[ \t]{0,4}:[ \t]{0,4}"""  # - name: LABEL / value: value
)
_QUALIFIED: Final = r"""[ \t]{1,4}(?:for|of|to|on|in|at|used|since|from|until|after|before|as|de|del|du|für|fuer|zum|zur|vom|seit|ab|pour|depuis|para|desde|di|do|da|dal|per|till|til|van|voor|от|для|к|на|с)[ \t][^\n.:=|;,!?。；，：—–→]{1,40}(?:[:：=]|—|–|->|→)|(?:[ \t]{0,2}[/／&和、+|-][ \t]{0,2}[\w一-鿿]{1,12}){1,3}[ \t]{0,2}[:：=]"""
_COPULA: Final = (
    r"""["'`*_)）\]」』]{0,4}(?:['’]s(?=[ \t])|[ \t]{1,4}(?:[A-Za-z][\w'-]{0,14}[ \t]{1,4}){0,5}?(?:is|was|are|to|as|became|IS|Is|=|es|ist|war|lautet|est|é|è|era|это)(?:[ \t]{1,4}(?:now|still|currently|been|changed|set|reset|updated|rotated|just|temporarily|back)){0,4}(?:[ \t]{1,4}(?:to|as))?(?:[ \t]?:)?[ \t]{1,4}"""
    r"""|[一-鿿 \t]{0,8}?(?:[是为為叫用即]|改成了?|改[为為]|换成了?|设成了?|设[为為置]|設[为為定]|变成了?|变[为為]|成了|告诉|发你|[:：=→]|は|が|を|는|은|를|을)[ \t]{0,4}(?:[:：][ \t]{0,2})?)"""
)
# label wifi: value; 密码还是老的那个：value; the label, value, and so on
_WORDED: Final = r"""[ \t]{1,3}(?:[^\W\d_][\w'-]{1,14}[ \t]{1,2}){0,2}(?:[^\W\d_][\w'-]{1,14})[ \t]?[:：=]|[一-鿿 \t]{1,12}[:：=]|,(?=[ \t](?=[!-~]{0,40}[0-9])(?=[!-~]{0,40}(?:[A-Z]|[!@#$%^&*_-]))[!-~]{8,64},)"""
_SPACE: Final = r"""["'`*_」』）)]{0,3}(?:[ \t]{1,4}|(?=[「『“‘"'`（(【]))"""
_ADJACENT: Final = r"(?=[A-Za-z0-9])"  # Chinese needs no space: 密码abc
_BARE: Final = r"""[!-~]{1,200}"""
_QUOTED: Final = r"""(?P<quote>["'`])(?P<quoted>[^"'`\n]{1,400})(?P=quote)"""
_TRIM_END: Final = ".,;:!?)]}>\"'`|*~&/\\"
_TRIM_PASSWORD: Final = ".,;:)]}>\"'`|"  # what a password may end with stays
_LINE_REST: Final = 200
_NEXT_LINE: Final = (
    r"""(?P<lead>[\s"'`*_)\]）】」』:：=>-]{0,8}?|[^\n]{0,60}?(?:[:：=是为為]|[ \t](?:is|was|ist|est|es|below|following|lautet)|如下|下面|以下)[\s"'`*_)\]）】」』:：=>-]{0,4}?)[ \t]{0,8}"""
    r"""\n(?:[ \t>]{0,8}\n)?[ \t>]{0,8}(?:[-*+][ \t]|\d{1,2}[.)][ \t])?[ \t]{0,4}(?:```?\w{0,12}\n[ \t>]{0,8})?[`"'*_]{0,4}(?P<value>[!-~]{4,200})[ \t]{0,8}(?:\n|\Z)"""
)
_HANZI_LINE: Final = r"[ \t]{0,4}[:：][ \t]{0,4}(?P<value>[一-鿿]{7,24})[ \t]{0,8}(?:\n|\Z)"
# Chinese, digits and a letter or mark in one: 小猫2024Abc!
_MIXED_LINE: Final = r"[ \t]{0,4}[:：=][ \t]{0,4}(?=[!-~]{0,40}[一-鿿])(?=\S{0,40}[0-9]\S{0,40}?[0-9])(?=\S{0,40}[A-Za-z!@#$%^&*])(?P<value>[!-~一-鿿]{6,40})[ \t]{0,8}(?:\n|\Z)"
_HANZI_TALK: Final = r"[的了是在见请用需要不可与和或被把等于同忘记设置改重存放找问看发由无空暂待略保密加解钥码令算法输入长短字符位数为以从及其这那该每任何各对]"
_RANDOM_MINIMUM: Final = {"S": 16, "T": 16, "A": 16, "K": 16, "W": 20}
_CASES: Final = 3
_SHORTEST: Final = 4
_PAIR_LABEL: Final = (
    r"(?i)(?:(?:账|帐)[号户]|用户名?|user(?:name)?|login|account|email|id)[ \t]{0,2}(?:[/／&+、和,|-]|and|or)[ \t]{0,2}(?:密[码碼]|pass(?:word)?|pwd|pw)\b|[账帐]密|zugangsdaten|identifiants|credenciales|账号密码|用户名密码"
    r"|(?<![A-Za-z])(?:creds?|credentials?|logins?)(?![A-Za-z])|登[录陆](?:信息|账号|(?=[:：]))"
)


_MAYBE: Final = r"[0-9!@#$%^&*]|[A-Za-z]{8}"
_VERBS: Final = ("pass", "key", "auth", "login", "cred", "creds")
_STEMS: Final = (
    "pas", "psw", "p/w", "mima", "kouling", "🔑", "🔐", "kennwort", "pwd", "psk", "pw", "contrase", "senha", "mdp", "wachtwoord", "парол", "パスワード", "暗証番号",
    "비밀번호", "암호", "비번", "패스워드", "비밀", "合言葉", "語", "语", "has", "ifre", "parola", "senord", "adgangskode", "salasana", "hesl", "jelsz",
    "t kh", "รหัสผ่าน", "كلمة", "סיסמ", "पासवर्ड", "गुप्त", "kata sandi", "κωδικ", "palavra", "clav", "clé", "cle ", "schl", "zugangscode", "ключ", "秘", "code s", "code d", "码", "碼", "令", "暗", "secret", "key", "钥", "鑰", "匙", "加密串", "token", "bearer", "凭", "憑", "cookie",
    "jwt", "sessdata", "トークン", "토큰", "auth", "授", "访问", "ak=", "ak:", "ak =", "ak :", "sk=", "sk:", "sk =", "sk :", "ak：", "sk：",
    "cred", "login", "bitwarden", "1password", "keepass", "lastpass", "dashlane", "nordpass", "proton pass", "enpass", "密", "登录信息", "登陆信息", "信息",
)  # fmt: skip
PASSWORD_STEMS: Final = (*_STEMS[: _STEMS.index("ключ")], "码", "碼", "令", "暗", "密")
_PAIR_STEMS: Final = (
    "zugangsdaten",
    "identifiants",
    "credenciales",
    "pass",
    "pwd",
    "pw",
    "密",
    "cred",
    "login",
    "登录",
    "登陆",
)
_HEADER_STEMS: Final = (*_STEMS, "pin")
_WINDOW: Final = 48


def find_near(pattern: str, text: str, stems: tuple[str, ...]) -> Iterator[re.Match[str]]:
    """Run a pattern only around the stems that each of its matches contains.

    ``str.find`` reads a text a hundred times faster than an alternation of labels does, and few lines of a
    note have any of them. Stems are lower-case; overlapping surroundings are merged, so that a text made
    of stems is still read once.
    """
    low = lowered(text)
    at: list[int] = []
    for stem in _screen(stems).possible(low):
        found = low.find(stem)
        while found >= 0:
            at.append(found)
            found = low.find(stem, found + len(stem))
    at.sort()
    done = number = 0
    while number < len(at):
        start, end = max(done, at[number] - _WINDOW), at[number] + _WINDOW
        while number < len(at) and at[number] - _WINDOW <= end:
            end = at[number] + _WINDOW
            number += 1
        yield from compiled(pattern).finditer(text, start, end)
        done = end


@cache
def _screen(stems: tuple[str, ...]) -> Screen[str]:
    return Screen([(stem, (stem,)) for stem in stems])


@lru_cache(maxsize=2)
def lowered(text: str) -> str:
    """Give a text in lower case, each character in its place."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(small if len(small := char.lower()) == 1 else char for char in text)


def find_labelled(text: str) -> Iterator[tuple[str, int, int]]:
    """Find values that stand by a label: rule, start and end of label with value."""
    for match in find_near(_LABEL, text, _STEMS):
        start, end = match.span()
        kind, label = str(match.lastgroup), match.group()
        maybe = compiled(_MAYBE).search(text, end, end + _LINE_REST)
        phrase = kind in "PS" and not label.isascii() and compiled(_HANZI_LINE).match(text, end)
        if kind == "P":
            yield from _find_value_before(text, start)
        if (
            not (maybe or phrase)
            or is_other_label(text, start, password=kind == "P")
            or _is_in_example_address(text, start)
        ):
            continue
        rest = text[end : end + 700]
        if compiled(_NOT_AFTER).match(rest):
            continue
        shift = 0
        if label.isascii():
            rest, shift = _skip_identifier(rest)
        if kind in "WK" and compiled(_SIGNER).search(text, max(0, start - 40), start):
            continue
        kind = _raised(kind, label, text, start)
        declared = compiled(_DECLARED).search(text, max(0, start - 60), start) is not None
        length = _value_end(kind, label, rest, declared=declared) if maybe else _hanzi_end(rest)
        if length:
            # The line that matters is the value's: a label may stand two lines above it.
            yield _RULES[kind], end + shift + length - 1, end + shift + length
    yield from _find_pairs(text)


def _raised(kind: str, label: str, text: str, start: int) -> str:
    """Give the kind of a label whose surroundings say more of it than its own word."""
    if label.lower() == "key" and compiled(r"[^\W_][ \t]").match(text, max(0, start - 2)):
        return "K"  # a key of something: ``高德 key=...``; alone at its line's start it names an entry
    if label == "KEY" and compiled(r"[A-Z0-9]_").match(text, max(0, start - 2)):
        return "K"  # a variable's name: SERVICE_KEY=...
    if kind == "T" and compiled(r"(?:[A-Z0-9]_|(?i:auth|access|api)[_ -]?)\Z").search(text, max(0, start - 8), start):
        return "A"  # a token of something: SERVICE_TOKEN=..., _authToken=..., access token
    return kind


_RULES: Final = {
    "P": "labelled_password",
    "S": "labelled_secret",
    "T": "labelled_token",
    "A": "labelled_token",
    "K": "labelled_api_key",
    "W": "labelled_credential",
}


_BEFORE: Final = (
    r"(?<![!-~])[\"'`「“]{0,2}(?P<value>[!-~]{6,64}?)[\"'`」”]{0,2}[ \t]{0,2}"
    r"(?:作为|当作?|做|[(（]|←|<-|//|#|(?:as|is)(?:[ ](?:the|my|our|a|your))?)(?:[ ][A-Za-z][\w-]{0,14}){0,2}[ \t]{0,2}(?:[一-鿿]{0,4})\Z"
)


def _find_value_before(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Find a value that stands before its label: ``use ... as the password``."""
    before = text[max(0, start - 90) : start]
    if not any(word in before for word in (" as", " is", "作", "当", "做", "(", "（", "←", "<-", "//", "#")):
        return
    match = compiled(_BEFORE).search(before)
    if match and is_password(match["value"], firm=False):
        yield "labelled_password", start, start + 1


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


_SIGNER: Final = r"(?i)(?<![a-z])(?:gpg|pgp|openpgp|minisign|signify|publishable|signer)[ _-]?(?:[a-z]{1,12}[ _-]){0,2}\Z"  # its public half

_DECLARED: Final = (
    r"(?m)(?:^|[\s;&`])(?:ENV|ARG|setenv|setx|set(?:[ \t]+-\w{1,4}){0,3}|[Ss]et-Item)[ \t]+[\"'$]?[\w:-]{0,40}\Z"
)


def _value_end(kind: str, label: str, rest: str, *, declared: bool = False) -> int:
    """Give where the value of a label ends, or 0 if it has none.

    Args:
        kind: Of the label.
        label: The label itself.
        rest: What stands behind it.
        declared: Whether a command that sets a variable stands before it: then a space ties as a colon does.
    """
    return _tied_end(kind, label, rest) or _loose_end(kind, label, rest, declared=declared)


def _tied_end(kind: str, label: str, rest: str) -> int:
    """Look for a value that a sign ties to its label."""
    chinese = not label.isascii()
    for tie in (_BRACKETED, _TYPED, _COMMENTED, _ELEMENTS, _PAIR, _CALL, _ATTRIBUTE, _LATER_VALUE, _STRONG, _QUALIFIED):
        match = compiled(tie).match(rest)
        if match:
            for value, quoted, end in _values_at(rest, match.end(), password=kind in "PS"):
                if _accept(kind, value, firm=True, quoted=quoted, chinese=chinese):
                    return end
            if end := _parted_end(kind, rest, match.end()):
                return end
    return _hanzi_end(rest) if kind in "PS" else 0


_LETTERS: Final = r"[ \t]{0,4}[\"'`]?(?P<value>[!-~](?:[ \t][!-~]){7,63})(?![ \t]?[!-~])"
_GROUPS: Final = r"[ \t]{0,4}[\"'`]?(?P<value>[A-Za-z0-9+/_-]{4,40}(?:[ \t]{1,3}[A-Za-z0-9+/_=-]{4,40}){1,15})"
_PARTED_MINIMUM: Final = 20


def _parted_end(kind: str, rest: str, start: int) -> int:
    """Give where a value ends that is written in groups or letter by letter, or 0."""
    match = compiled(_LETTERS).match(rest, start)
    if match:
        value = compiled(r"[ \t]").sub("", match["value"])
        return match.end() if is_password(value) or is_random(value, 12) else 0
    match = compiled(_GROUPS).match(rest, start) if kind in "SAKT" else None
    if not match:
        return 0
    groups = list(takewhile(is_piece, match["value"].split()))
    value = "".join(groups)
    return match.end() if len(groups) > 1 and is_random(value, _PARTED_MINIMUM) else 0


def _loose_end(kind: str, label: str, rest: str, *, declared: bool) -> int:
    """Look for a value behind a verb, a space or on the next line; it needs a stronger shape."""
    chinese = not label.isascii()
    for tie in (_COPULA, _WORDED, _SPACE, _ADJACENT) if chinese else (_COPULA, _WORDED, _SPACE):
        match = compiled(tie).match(rest)
        if tie is _WORDED and kind != "P":
            continue
        if match and not (tie is _SPACE and label.lower() in _VERBS and not declared):
            verb = label.lower() == "pass" and compiled(r"(?:to|as)(?:[ \t]?:)?[ \t]{1,4}\Z").search(match[0])
            for value, quoted, end in () if verb else _values_at(rest, match.end(), password=kind in "PS"):
                if _accept(kind, value, firm=declared or (quoted and tie is _COPULA), quoted=quoted, chinese=chinese):
                    return end
    match = compiled(_NEXT_LINE).match(rest)
    if match:
        value = match["value"].strip("`\"'*_").rstrip(_TRIM_END) if kind != "P" else match["value"].strip("`\"'")
        # Tied by a colon, or marked as code: more than a word that happens to stand at the end of a wrapped line.
        firm = compiled(r"[:：=是为為]\W*\Z").search(match["lead"]) is not None or match["value"].startswith("`")
        if _accept(kind, value, firm=firm or match[0].rstrip()[-1:] == "`", quoted=False, chinese=chinese):
            return match.end("value")
    return 0


def _hanzi_end(rest: str) -> int:
    """Give where a pass-phrase of Chinese characters ends that fills its line and is no sentence, or 0."""
    mixed = compiled(_MIXED_LINE).match(rest)
    if mixed and not compiled(_HANZI_TALK).search(mixed["value"]):
        return mixed.end("value")
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
        for stop in ('"', "'", "`", "</", ",'", "|", "<br", "](", "]["):
            cut = value.find(stop)
            if cut > 0:
                value = value[:cut]
        trimmed = value.rstrip(_TRIM_END) or value
        cut = compiled(r"[,;)&]").search(trimmed)
        if cut and cut.start() >= _SHORTEST:
            yield trimmed[: cut.start()], bool(opener), begin + cut.start()
        if not cut or password:
            yield trimmed, bool(opener), begin + len(trimmed)
        if password and (whole := value.rstrip(_TRIM_PASSWORD)) != trimmed:
            yield whole, bool(opener), begin + len(whole)


def _accept(kind: str, value: str, *, firm: bool, quoted: bool, chinese: bool) -> bool:
    """Tell whether a value is a secret, given the kind of label and how firmly it is tied to it."""
    if len(value) < _SHORTEST or (value.isalpha() and len(value) < 8):
        return False
    if is_reference(value) and not (chinese and is_password(value)):
        return False
    if kind == "P" and value.isdigit():
        return firm and 6 <= len(value) <= 12 and not is_trivial_number(value)
    if kind == "P":
        return is_password(value, firm=firm) or is_random(value, 12)
    if kind == "S" and firm and _is_varied(value) and is_password(value):
        return True
    minimum = _RANDOM_MINIMUM[kind] + (0 if firm or quoted else 4)
    certificate = kind == "W" and value.startswith(("AAAA", "MII"))
    return not certificate and is_random(value, minimum, hexadecimal=kind != "W", uuid=kind in "SKA" and firm)


def _is_varied(value: str) -> bool:
    """Tell whether a short secret has four kinds of characters, or three and no look of a name."""
    lower, upper, digit = (any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    kinds = lower + upper + digit + (not value.isalnum())
    return len(value) >= 8 and (
        kinds > _CASES or (kinds == _CASES and len(value) >= 10 and not compiled(r"[-_./:]").search(value))
    )


def _find_pairs(text: str) -> Iterator[tuple[str, int, int]]:
    """Find ``user / password`` written after one label for both."""
    for match in find_near(_PAIR_LABEL, text, _PAIR_STEMS):
        if compiled(r"[?&=-][\w-]{0,24}\Z").search(text, max(0, match.start() - 24), match.start()):
            continue
        rest = text[match.end() : match.end() + _LINE_REST].partition("\n")[0]
        tie = compiled(r"[\s*_`\"'）)]{0,4}(?:[:：=|]|is|are|是|为|->|→|[ \t])").match(rest)
        if not tie:
            continue
        words = compiled(r"[^\s/|,，、：:;；()（）\"'`]{6,64}").findall(rest[tie.end() :])[:4]
        for word in (word.rstrip(_TRIM_END) for word in words):
            if (
                is_password(word, firm=False)
                and not is_reference(word)
                and compiled(r"[!@#$%^&*_.+-]|[a-z].*[A-Z]|[A-Z].*[a-z]|[a-z].*\d{3}").search(word)
            ):
                yield "labelled_password", match.start(), match.end() + len(rest)
                break


_HEADER: Final = (
    rf"(?i)\A[\s*_`\"']*(?:[\w/ .()-]{{0,20}}(?:[ _/-]|(?=[^\x00-\x7f])))?(?:(?:{PASSWORD})s?|pin"
    r"|(?P<machine>secrets?|(?:api|access|secret|private|app|auth)[ _-]?(?:key|secret|token)s?|tokens?|[密秘私][钥鑰]|令牌|appsecret|授权码))(?:[ _]?(?:value|值|\(.{0,12}\)))?[\s*_`\"']*\Z"
)
_RULE_ROW: Final = r"\A[\s|:+\-=—]*\Z"
_MAX_COLUMNS: Final = 40


def find_in_tables(text: str) -> Iterator[tuple[str, int, int]]:
    """Find values under a header cell that is a label: pipe tables, and comma- or tab-separated lines."""
    low = lowered(text)
    if not any(stem in low for stem in _HEADER_STEMS):
        return
    headers: dict[int, str] = {}
    mark = ""
    offset = 0
    for line in text.split("\n"):
        here, offset = offset, offset + len(line) + 1
        if not mark or mark not in line:
            mark, headers = _read_header(line)
        elif not compiled(_RULE_ROW).match(line):
            cells = _split_cells(line, mark)
            for column, kind in headers.items():
                if column < len(cells) and _accept_cell(kind, cells[column].strip(" \t\"'`*")):
                    yield _RULES[kind], here, here + len(line)
            headers = _header_columns(cells) or headers


def _split_cells(line: str, mark: str) -> list[str]:
    return line.strip(" \t>").strip("|" if mark == "|" else " ").split(mark)[:_MAX_COLUMNS]


def _read_header(line: str) -> tuple[str, dict[int, str]]:
    """Give what separates the cells of a line that has a label as a cell, and the columns of those."""
    for mark in "|\t,":
        if mark in line and len(line) <= 2000:
            cells = _split_cells(line, mark)
            framed = mark == "|" and len(bare := line.strip(" \t>\r")) > 1 and bare[0] == bare[-1] == "|"
            headers = _header_columns(cells) if len(cells) > 1 or framed else {}
            if headers:
                return mark, headers
    return "", {}


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
