"""Passwords in a sentence that speaks of one, where no sign, verb or place ties the value to its label.

Belongs here: values whose shape alone tells them, once their line says "password": ``the new one for the forum is
Katze7Berg#, the old password does not work any more``; ``我把邮箱的密码换了，现在是 …``. Does not: values that stand by
their label (``secret_labels``), which may have a weaker shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_labels import PASSWORD, PASSWORD_STEMS, find_near, is_talk_about
from vault_memory.notes.secret_values import compiled, is_password, is_placeholder, is_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

_REACH: Final = 120  # characters to both sides of the label, within its line
_TOKEN: Final = r"(?<![!-~])[\"'`(]{0,2}(?P<value>[A-Za-z0-9!@#$%^&*?+~_.-]{8,40}?)[\"'`),.;:]{0,3}(?![!-~])"
# Where passwords are kept or used, and nothing says that one is: a network, an archive, a disk, an account.
_PLACE: Final = (
    r"(?<![a-z])(?:wi-?fi|wlan|ssid|hotspot|zip|rar|7z|luks|bitlocker|veracrypt|filevault|unlocks?|opens[ ]with|log(?:s|ged)?[ -]in|login|sign(?:s|ed)?[ -]in|credentials?|accounts?|router|nas|vpn|smb|steam|netflix|spotify|icloud|paypal|instagram|facebook|linkedin|gmail"
    r"|konto|zugang|compte|cuenta|логин|аккаунт)(?![a-z])|[账帐]号|[账帐]户|帳號|登[录陆錄]|路由器|无线|解压|压缩包|网盘|アカウント|ログイン|계정|로그인"
)
_PLACE_STEMS: Final = (
    "wifi", "wi-fi", "wlan", "ssid", "hotspot", "zip", "rar", "7z", "luks", "bitlocker", "veracrypt", "filevault", "unlock", "opens with", "login", "log in", "log-in", "logs in", "logged in", "logs-in", "logged-in", "sign in", "sign-in", "signs in", "signed in", "signs-in", "signed-in", "credential", "account", "router", "nas", "vpn", "smb", "steam", "netflix", "spotify", "icloud", "paypal", "instagram", "facebook",
    "linkedin", "gmail", "konto", "zugang", "compte", "cuenta", "логин", "аккаунт", "账号", "帐号", "账户", "帐户", "帳號", "登录", "登陆", "登錄", "路由器", "无线", "解压", "压缩包", "网盘", "アカウント", "ログイン", "계정", "로그인",
)  # fmt: skip
_MARKS: Final = frozenset("!@#$%^&*")
_NAMES: Final = r"[\w.+-]+@[\w-]+\.[\w.-]+\Z|.*\d\.\d"  # an address, or something of a version


def find_spoken(text: str) -> Iterator[tuple[str, int, int]]:
    """Find values of all four kinds of characters in a line that names a password, or where one is used.

    Yields:
        Rule, start and end of the value.
    """
    yield from _find_beside(text, PASSWORD, PASSWORD_STEMS)
    yield from _find_beside(text, _PLACE, _PLACE_STEMS)


def _find_beside(text: str, label_pattern: str, stems: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    done = 0
    for label in find_near(rf"(?i){label_pattern}", text, stems):
        start = max(done, text.rfind("\n", 0, label.start()) + 1, label.start() - _REACH)
        if is_talk_about(text, label.start(), label.end()):
            continue
        end = text.find("\n", label.end())
        end = min(len(text) if end < 0 else end, label.end() + _REACH)
        if end <= start:
            continue
        done = end
        for match in compiled(_TOKEN).finditer(text, start, end):
            if is_spoken_password(match["value"]):
                yield "labelled_password", match.start("value"), match.end("value")


def is_spoken_password(value: str) -> bool:
    """Tell a value that is nothing but a password: small and capital letters, digits and a mark, and no name or address."""
    kinds = (str.islower, str.isupper, str.isdigit)
    return (
        all(any(map(kind, value)) for kind in kinds)
        and bool(_MARKS & set(value))
        and not compiled(_NAMES).match(value)
        and not is_reference(value)
        and not is_placeholder(value)
        and is_password(value, firm=False)
    )
