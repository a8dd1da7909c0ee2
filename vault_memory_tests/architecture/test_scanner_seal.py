"""Only the scanner makes clean notes, and only the screening may hand it a foreign verdict."""

import ast
from pathlib import Path

import pytest

import vault_memory
from vault_memory.notes.model import SCANNER_SEAL, CleanNote, Document
from vault_memory.notes.paths import NotePath

PACKAGE = Path(vault_memory.__file__).parent


def modules_that_name(*names: str) -> set[str]:
    """Return the modules whose code (not prose) uses one of the names in any way, strings for getattr included."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            used = {
                ast.Name: lambda node: node.id,
                ast.Attribute: lambda node: node.attr,
                ast.alias: lambda node: node.name,
                ast.ClassDef: lambda node: node.name,
                ast.Constant: lambda node: node.value,
            }.get(type(node), lambda _node: None)(node)
            if used in names or (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)):
                found.add(file.relative_to(PACKAGE).as_posix())
    return found


def test_the_seal_is_used_by_the_scanner_alone():
    """Nobody but the model that defines it and the scanner that uses it knows the seal's name."""
    assert {"notes/model.py", "notes/scanner.py"} == modules_that_name("SCANNER_SEAL", "_ScannerSeal")


def test_a_verdict_is_concluded_by_the_scanner_and_the_screening_alone():
    """A clean note can come from a foreign verdict only where the worker that gave it was started."""
    assert {"notes/scanner.py", "ingest/screening.py"} == modules_that_name("conclude", "Verdict")


def test_a_clean_note_cannot_be_made_without_the_seal():
    """A look-alike of the seal is refused at run time as well."""
    document = Document("t", title_is_sent=False, front_matter={}, tags=(), links=(), sections=())
    with pytest.raises(TypeError, match="scan_note alone"):
        CleanNote(NotePath.from_text("a.md"), "b", "text", "hash", document, type(SCANNER_SEAL)())
