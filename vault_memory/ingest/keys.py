"""The keyed hash that stands in for content that must not be recognisable.

Belongs here: the key file and the tags made with it. Does not: ordinary content hashes.

A bare hash of a quarantined note would let anyone who reads the database test guesses of the secret, so the
manifest and the audit hold HMAC-SHA-256 (RFC 2104) under a key that lives outside the database.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """Makes tags that only the holder of the key can compare with a guess."""

    key: bytes = field(repr=False)

    def tag(self, data: str | bytes) -> str:
        """Return the HMAC-SHA-256 of the data, hexadecimal."""
        return hmac.new(self.key, data.encode() if isinstance(data, str) else data, hashlib.sha256).hexdigest()

    @property
    def fingerprint(self) -> str:
        """What the database records to notice another key: 16 hexadecimal digits, not invertible."""
        return self.tag("vault-memory key fingerprint")[:16]


def load_key(path: Path, *, create: bool) -> KeyedHash:
    """Read the key file, or make it (mode 0600) at first use.

    Raises:
        ConfigError: It is missing and ``create`` is false, unreadable, or no key.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        if not create:
            raise ConfigError(
                f"{path}: the keyed-hash key is gone; restore it, or set VAULT_MEMORY_HMAC_KEY_FILE to where it is"
            ) from None
    except OSError as error:
        raise ConfigError(f"{path}: the keyed-hash key cannot be read ({type(error).__name__})") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_KEY_BYTES) + "\n")
        try:
            os.link(temporary, path)  # two first users: the one who links second takes the first one's key
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        return _read(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: the keyed-hash key cannot be written ({type(error).__name__}); set VAULT_MEMORY_HMAC_KEY_FILE"
        ) from None


def _read(path: Path) -> KeyedHash:
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (ValueError, UnicodeDecodeError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path}: not a key (want {2 * _KEY_BYTES} hexadecimal digits); restore it from a backup")
    return KeyedHash(key)
