"""Codes: PINs, recovery codes, seeds of second factors and the passwords given to programs.

Belongs here: short numbers and grouped letters that only their label tells from dates and order numbers.
Does not: passwords, keys and tokens (``secret_labels``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_labels import find_near, is_other_label
from vault_memory.notes.secret_values import (
    compiled,
    is_placeholder,
    is_random,
    is_sample_word,
    is_trivial_number,
    wordiness,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER: Final = r"(?P<value>\d{3}[ -]\d{3}|\d{3,12})(?![\d\w]|[-/.]\d|[ \t]{0,2}(?:[年月日位个次条天种元号分秒页章人台套份款歲岁]|[%％](?!%)|bits?|char|digit|times|days|seconds?|minutes?|hours?|years?|users?|token|[KMG]B))"
# What a lock, an alarm or a telephone opens with.
_DOOR: Final = (
    r"(?i:(?<![a-z])(?:door|gate|garage(?:[ ]door)?|alarm(?:[ ]panel)?|entry|entrance|front[ ]door|lobby|elevator|lift|locker|lock|safe|key[ ]?(?:box|safe)|lock[ ]?box|keypad|panel|padlock"
    r"|suitcase|luggage|unlock|disarm|duress|voice[ ]?mail|parental(?:[ ]control)?|screen[ ]time)[ -]?(?:entry[ ])?(?:pin|code|(?:combination|combo)(?![ ]of))(?![a-z])"
    r"|(?:haus)?t[üu]r-?code|(?:garagen|tor|alarm|safe|tresor|schloss|zahlenschloss|entsperr)-?(?:code|kombination)|digicode|code[ ](?:de[ ](?:la[ ]porte|l['’](?:alarme|immeuble|ascenseur)|la[ ]carte)|d['’]entrée|porte|alarme|immeuble)"
    r"|c[óo]digo[ ](?:de[ ](?:la[ ])?)?(?:puerta|alarma|entrada|caja[ ]fuerte|port[ãa]o)|codice[ ](?:del(?:la)?[ ]|dell['’])?(?:porta|portone|allarme|cancello|cassaforte)|код[ ](?:от[ ])?(?:двери|домофона|подъезда|сейфа|сигнализации))"
    r"|(?:门禁|门锁|开门|大门|单元门|电子锁|报警|撤防|門禁|門鎖)[码碼]"
)
_PIN: Final = r"(?:(?<![A-Za-z_#])(?:PIN|Pin[ -]?(?:code|number)|pin[ -](?:code|number)|PUK|CVV2?|CVC2?)(?![A-Za-z_])(?:[ \t]?[码碼])?|(?:取款|支付|锁屏|解锁|开机|门[锁禁]|银行卡|信用卡|保险[箱柜]|行李箱|手机|交易|提款|卡)[ \t]?(?:的)?(?:密[码碼]|PIN)|(?:[账帐]号|[账帐]户|查询|登录|开机|公积金)密[码碼](?=[ \t:：是为]{1,3}\d{6}(?!\d))|(?i:пин-?код)|(?i:code[ ]carte(?:[ ]bleue)?)|安全码|解锁码|取件码|門鎖密碼|提款密碼)"
_PIN_TIE: Final = r"[ ](?:of|for|to|on|der|des|vom|von|für|de|da|del|du|pour|para|от|карты)[ ](?:[^\n.:=|;,!?]{1,30}?)??(?:[ ]?(?:is|was|ist|est|es)[ ]|[ ]?[:：=][ ]?|(?<=карты[ ]))|[\s*_`\"'）)]{0,6}(?:[:：=|]|is|was|est(?:[ ]le)?|es|ist|lautet|è|é|это|是|为|為|改成了?|改为|->|→|[ \t]|(?<=[码碼]))[ \t*_`\"'（(「]{0,6}"
_CARD_CODE: Final = r"CVV|CVC|安全码"
_GPIO: Final = r"(?i)gpio|board|header|arduino|connector|pinout|led|vcc|gnd|uart|spi"
_PIN_STEMS: Final = (
    "pin",
    "puk",
    "cvv",
    "cvc",
    "code",
    "comb",
    "código",
    "codigo",
    "codice",
    "код",
    "码",
    "碼",
    "令",
    "番号",
)
_CODE_STEMS: Final = ("tan", "backup", "code", "key", "token", "pass", "码", "碼", "密")
_OTP_STEMS: Final = ("2fa", "totp", "mfa", "otp", "authenticator", "two", "验证", "認證", "驗證", "认证", "因", "动态")
_APP_STEMS: Final = ("app", "应用", "专用", "專用", "授", "gmail", "smtp")


def find_pins(text: str) -> Iterator[tuple[str, int, int]]:
    """Find short numbers that a card, a phone or a door opens with."""
    for match in find_near(rf"{_PIN}|{_DOOR}", text, _PIN_STEMS):
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
    for match in compiled(r"(?:密[ \t]{0,4}[码碼]|口令|暗[证証]番号|パスコード|비밀번호|비번)").finditer(text):
        tie = compiled(r"[\s*_`）)]{0,4}(?:[:：=]|[是为為はが는은]|改成了?|改为|->|→)[ \t*_`「（(]{0,4}").match(
            text, match.end(), match.end() + 20
        )
        number = compiled(_NUMBER).match(text, tie.end(), tie.end() + 40) if tie else None
        if (
            number
            and number["value"].isdigit()
            and len(number["value"]) >= 4
            and not is_trivial_number(number["value"])
            and not is_other_label(text, match.start())
        ):
            yield "labelled_pin", match.start(), number.end()


_CODES_LABEL: Final = (
    r"(?i)(?<![a-z])TAN(?:s|[ -]?list[ea]?)(?![a-z])|2fa[ -]?backups?(?![a-z])|(?:recovery|backup|back-up|scratch|rescue|emergency|one[ -]time|2fa|mfa|备用|備用|恢复|恢復|救援|应急|紧急|一次性|备份)[ \t_-]{0,3}(?:access[ ]|verification[ ]|login[ ]|登录|验证|驗證)?"
    r"[ \t_-]{0,2}(?:codes?|keys?|tokens?|passcodes?|passwords?|验证[码碼]|驗證碼|代[码碼]|[码碼]|密[钥码碼])"
)
_CODE: Final = r"(?<![\w.-])(?:\d{3,5}[ -]\d{3,5}|\d{8,10}|\d{6}|[a-z0-9]{4,6}(?:-[a-z0-9]{4,6}){1,7}|[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){1,7}|[a-z0-9]{8,16}|[A-Z0-9]{8,32}|[a-f0-9]{4,5} [a-f0-9]{4,5})(?![\w.-])"
_MIN_CODES: Final = 3


def find_recovery_codes(text: str) -> Iterator[tuple[str, int, int]]:
    """Find lists of one-time codes under their label; one alone counts if it is long and random."""
    for match in find_near(_CODES_LABEL, text, _CODE_STEMS):
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
            first = match.end() + (window.find(codes[0]) if codes else 0)
            yield "recovery_codes", first, first + 1


_LICENCE_LABEL: Final = r"(?i)(?:product|licen[cs]e|activation|serial|registration)[ _-]?(?:key|code|number)|(?:filevault|recovery)(?:[ _-]key)?|产品[密秘][钥鑰]|激活[码碼]|序列[号號]|注册[码碼]"
_LICENCE_STEMS: Final = ("filevault", "recovery", "key", "code", "number", "产品", "激活", "序列", "注册")
_LICENCE: Final = r"(?<![\w-])(?:[A-Z0-9]{4,6}-){3,7}[A-Z0-9]{4,6}(?![\w-])"
_LICENCE_REACH: Final = 60


def find_licence_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """Find what a program is unlocked with: groups of capital letters and digits behind their label."""
    for label in find_near(_LICENCE_LABEL, text, _LICENCE_STEMS):
        match = compiled(_LICENCE).search(text, label.end(), label.end() + _LICENCE_REACH)
        packed = match.group().replace("-", "") if match else ""
        if match and is_random(packed, 16) and not is_placeholder(match.group()):
            yield "labelled_secret", match.start(), match.end()


_OTP_LABEL: Final = r"(?i)(?<![a-z])(?:2fa|totp|mfa|otp|authenticator|two[ -]factor|two[ -]step)(?![a-z])|两步验证|二步验证|雙重驗證|两步认证|双因[素子]|二次验证|谷歌验证器|身份验证器|动态[口密][令码]"
_BASE32: Final = r"(?<![A-Za-z0-9+/=_-])(?:[A-Z2-7]{16,64}|[a-z2-7]{16,64}|(?:[A-Za-z2-7]{4}[ -]){3,15}[A-Za-z2-7]{4})={0,6}(?![A-Za-z0-9+/_-])"
_APP_LABEL: Final = r"(?i)app(?:lication)?(?:[ -]specific)?[ -]?passwords?|应用(?:专用|程序)?密[码碼]|專用密碼|专用密码|(?:邮箱|smtp|imap|qq|163|客户端)?[ ]?授[权權][码碼]|gmail|smtp"
_APP: Final = r"(?<![A-Za-z0-9-])(?:[a-z]{4}([ -])[a-z]{4}\1[a-z]{4}\1[a-z]{4}|[a-z]{16}|[A-Z]{16})(?![A-Za-z0-9-])"
_NEAR: Final = 80


def find_second_factors(text: str) -> Iterator[tuple[str, int, int]]:
    """Find seeds of one-time passwords and the passwords that mail and Apple accounts give to programs."""
    for match in find_near(_OTP_LABEL, text, _OTP_STEMS):
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
    for match in find_near(_APP_LABEL, text, _APP_STEMS):
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
