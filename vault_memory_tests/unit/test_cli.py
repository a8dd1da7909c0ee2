"""Errors that are no fault of ours, as a command shows them."""

import errno

import pytest

from vault_memory.cli import run

NO_MEMORY = (
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("/lib/_x.so: failed to map segment from shared object"),
)


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
def test_no_memory_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """However Python, the loader of libraries or the system says it."""

    def command() -> None:
        raise error

    with pytest.raises(SystemExit, match="3"):
        run(command)
    said = capsys.readouterr().err
    assert 1 == said.count("\n")
    assert "no memory left" in said


@pytest.mark.parametrize("error", [ImportError("no such name"), OSError(errno.EIO, "Input/output error")], ids=str)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    """They go on as they came."""

    def command() -> None:
        raise error

    with pytest.raises(type(error)):
        run(command)
