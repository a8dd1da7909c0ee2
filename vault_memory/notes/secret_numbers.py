"""Check digits: which digit strings are really identity, card or wallet numbers.

Belongs here: checksum arithmetic on one string. Does not: finding candidates in text.
"""

from __future__ import annotations

import hashlib
from typing import Final

_ID_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECK: Final = "10X98765432"
_ID_PROVINCES: Final = frozenset(
    [
        "11",
        "12",
        "13",
        "14",
        "15",
        "21",
        "22",
        "23",
        "31",
        "32",
        "33",
        "34",
        "35",
        "36",
        "37",
        "41",
        "42",
        "43",
        "44",
        "45",
        "46",
        "50",
        "51",
        "52",
        "53",
        "54",
        "61",
        "62",
        "63",
        "64",
        "65",
        "71",
        "81",
        "82",
        "83",
    ]
)
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_TAIWAN_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVXYWZIO"
_TEST_CARDS: Final = frozenset(
    [
        "4242424242424242",
        "4111111111111111",
        "4012888888881881",
        "4000056655665556",
        "4222222222222",
        "5555555555554444",
        "5105105105105100",
        "2223003122003222",
        "5200828282828210",
        "378282246310005",
        "371449635398431",
        "378734493671000",
        "6011111111111117",
        "6011000990139424",
        "30569309025904",
        "38520000023237",
        "3530111333300000",
        "3566002020360505",
        "6200000000000005",
        "6222021234567890123",
        "6228480402564890018",
        "4000000000000002",
        "5424000000000015",
    ]
)


def is_chinese_id(number: str) -> bool:
    """Tell whether 18 characters are a resident identity number (GB 11643: region, birth date, check digit)."""
    number = number.upper()
    year, month, day = int(number[6:10]), int(number[10:12]), int(number[12:14])
    if number[:2] not in _ID_PROVINCES or not (1900 <= year <= 2035 and 1 <= month <= 12 and 1 <= day <= 31):
        return False
    total = sum(int(digit) * weight for digit, weight in zip(number[:17], _ID_WEIGHTS, strict=True))
    return _ID_CHECK[total % 11] == number[17]


def is_taiwan_id(number: str) -> bool:
    """Tell whether a letter and nine digits are a Taiwanese identity number."""
    code = _TAIWAN_LETTERS.index(number[0].upper()) + 10
    digits = [code // 10, code % 10, *map(int, number[1:])]
    return sum(d * w for d, w in zip(digits, (1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1), strict=True)) % 10 == 0


def passes_luhn(digits: str) -> bool:
    """Tell whether the last digit checks the others (ISO/IEC 7812)."""
    total = sum(int(digit) for digit in digits[-1::-2])
    return (total + sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])) % 10 == 0


def is_card(digits: str) -> bool:
    """Tell whether digits are a payment card's number, and no test card that manuals print."""
    if digits in _TEST_CARDS or len(set(digits)) < 4 or not 13 <= len(digits) <= 19:
        return False
    return passes_luhn(digits)


def is_base58_check(text: str) -> bool:
    """Tell whether a base-58 string ends in the right four bytes of its double SHA-256."""
    number = 0
    for char in text:
        number = number * 58 + _BASE58.index(char)
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return len(data) > 4 and hashlib.sha256(hashlib.sha256(data[:-4]).digest()).digest()[:4] == data[-4:]
