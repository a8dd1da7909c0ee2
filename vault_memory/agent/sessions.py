"""The name of a session, as the files that belong to it have it.

Belongs here: that name alone, so that a hook which only leaves a request imports nothing else. Does not: what is
written down of a session (``journal``).
"""

from __future__ import annotations

import hashlib
import re

_SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")


def session_name(session_id: str) -> str:
    """Return a session's id if it is a plain word, as it should be; else a hash of it."""
    if _SESSION.fullmatch(session_id):
        return session_id
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:32]
