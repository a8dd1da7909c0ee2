"""Which index a store of some size gets."""

import pytest

from vault_memory.adapters.vector_index import IndexFacts
from vault_memory.ingest.vector_index import is_due, wanted


def facts(mode="exact", chunks=100, *, chosen=None, model="m", chosen_model="m", pgvector=(0, 8, 5)):
    """Facts of a store whose index was chosen at ``chosen`` chunks; None: at today's size."""
    return IndexFacts(
        mode=mode,
        choice="auto",
        chosen_chunks=chunks if chosen is None else chosen,
        chosen_model=chosen_model,
        recall=None,
        chunks=chunks,
        model=model,
        pgvector=pgvector,
    )


@pytest.mark.parametrize(
    ("chunks", "modes"),
    [
        (0, ("exact",)),
        (3_000, ("exact",)),
        (3_001, ("bits", "exact")),
        (50_000, ("bits", "exact")),
        (50_001, ("hnsw", "bits", "exact")),
    ],
)
def test_auto_follows_the_size(chunks, modes):
    """Every mode but exact stands before one that it may fall back to."""
    assert modes == wanted(facts(chunks=chunks), "auto")


def test_auto_builds_no_hnsw_on_an_old_pgvector():
    """Releases before 0.8.4 could write a corrupt graph."""
    assert ("bits", "exact") == wanted(facts(chunks=200_000, pgvector=(0, 8, 3)), "auto")


@pytest.mark.parametrize(("chunks", "mode"), [(4_999, "exact"), (5_000, "ivfflat")])
def test_ivfflat_waits_for_rows(chunks, mode):
    """Lists made from few rows fit nothing that comes later."""
    assert (mode,) == wanted(facts(chunks=chunks), "ivfflat")


@pytest.mark.parametrize(
    ("state", "choice", "due"),
    [
        (facts("exact", 2_900, chosen=0), "auto", False),
        (facts("exact", 3_100, chosen=0), "auto", True),
        # The signs failed their check: not again before there is twice as much, or another model.
        (facts("exact", 3_900, chosen=3_100), "auto", False),
        (facts("exact", 6_200, chosen=3_100), "auto", True),
        (facts("exact", 3_900, chosen=3_100, model="n"), "auto", True),
        (facts("bits", 5_000, chosen=4_000), "auto", False),
        (facts("bits", 5_000, chosen=4_000, model="n"), "auto", True),
        (facts("bits", 2_900, chosen=3_100), "auto", False),
        (facts("bits", 2_300, chosen=3_100), "auto", True),
        (facts("bits", 51_000, chosen=45_000), "auto", True),
        (facts("hnsw", 49_000, chosen=51_000), "auto", False),
        (facts("hnsw", 39_000, chosen=51_000), "auto", True),
        (facts("hnsw", 100), "auto", True),
        (facts("exact", 100), "bits", True),
        (facts("bits", 100), "bits", False),
        (facts("exact", 4_000), "ivfflat", False),
        (facts("exact", 5_000), "ivfflat", True),
        (facts("ivfflat", 9_000, chosen=5_000), "ivfflat", False),
        (facts("ivfflat", 10_000, chosen=5_000), "ivfflat", True),
    ],
)
def test_it_is_thought_over_only_when_something_changed(state, choice, due):
    """Every sync asks; the answer is yes at a border with a margin, for another model, or for twice the vectors."""
    assert due is is_due(state, choice)
