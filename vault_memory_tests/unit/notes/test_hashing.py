"""The offline embedder."""

import hashlib
import math
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.notes import hashing


def cosine(one, other):
    """Return the cosine of two unit vectors."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


@given(st.text().filter(lambda text: text.strip()))
def test_every_text_has_a_unit_vector(text):
    """1,536 finite floats of length 1, whatever the text."""
    vector = hashing.embed(text)
    assert hashing.DIMENSIONS == len(vector)
    assert math.isclose(1.0, math.fsum(value * value for value in vector), rel_tol=1e-9)


@pytest.mark.parametrize("text", ["", "  \n\t", "\u3000"])
def test_blank_text_is_refused(text):
    """A blank text has no direction; it must not become a vector of zeros."""
    with pytest.raises(ValueError, match="blank"):
        hashing.embed(text)


def test_the_vector_is_the_same_in_another_process():
    """Stored vectors and a question's vector come from different processes with different hash seeds."""
    code = (
        "import hashlib,struct;from vault_memory.notes.hashing import embed;v=embed('数据库 connection pool');"
        "print(hashlib.sha256(struct.pack('<1536f',*v)).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    here = hashing.embed("数据库 connection pool")
    assert other == hashlib.sha256(struct.pack("<1536f", *here)).hexdigest()


def test_model_1_stays_what_it_is():
    """The recorded name stands for these numbers: a change of the vectors needs a new name."""
    vector = hashing.embed("The connection pool was too small. 连接池太小了。")
    assert "hashing-1" == hashing.MODEL
    assert FIRST_VALUES == [round(value, 5) for value in vector[:6]]


def test_shared_spelling_makes_neighbours():
    """A text is nearer to its variation than to another subject, in both languages."""
    text = hashing.embed("we moved the search index to pgvector")
    assert cosine(text, hashing.embed("moving search indexes to pgvector")) > 0.3
    assert abs(cosine(text, hashing.embed("a recipe for red lentil soup"))) < 0.15
    chinese = hashing.embed("数据库连接池耗尽")
    assert cosine(chinese, hashing.embed("连接池耗尽的原因")) > 0.3
    assert abs(cosine(chinese, hashing.embed("红扁豆汤的做法"))) < 0.15


def test_the_rotation_keeps_angles_and_spreads_signs():
    """One place becomes 1,536 comparable values: the signs alone then say something."""
    one, other = [0.0] * hashing.DIMENSIONS, [0.0] * hashing.DIMENSIONS
    one[5] = other[900] = 1.0
    turned, turned_other = hashing._rotate(one), hashing._rotate(other)
    norm = math.fsum(value * value for value in turned)
    assert math.isclose(norm, math.fsum(value * value for value in turned_other))
    assert abs(cosine(turned, turned_other)) < 1e-9 * norm
    assert max(abs(value) for value in turned) ** 2 < 30 * norm / hashing.DIMENSIONS
    assert 0.4 < sum(value > 0 for value in turned) / sum(value != 0 for value in turned) < 0.6


FIRST_VALUES = [0.00267, -0.00935, -0.01809, -0.00205, -0.01695, 0.03968]
