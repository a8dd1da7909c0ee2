"""A worker for tests that cannot be started."""

from typing import BinaryIO, NoReturn


def serve(_requests: BinaryIO, _answers: BinaryIO) -> NoReturn:
    """Die at the start."""
    raise SystemExit(1)
