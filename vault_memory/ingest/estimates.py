"""What a plan would cost, said before anything is sent.

Belongs here: counting texts, tokens and price. Does not: sending (``provider``) or prices (``adapters.embedding``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vault_memory.adapters.batching import estimated_tokens
from vault_memory.ingest.prepare import PreparedNote, Refused
from vault_memory.notes import changes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from vault_memory.adapters.embedding import Embedder
    from vault_memory.ingest.model_change import Rebuild
    from vault_memory.ingest.planning import VaultPlan
    from vault_memory.ingest.prepare import Preparer
    from vault_memory.ingest.provider import Provider
    from vault_memory.notes.changes import Plan
    from vault_memory.notes.exclusion import Ruleset


@dataclass(frozen=True, slots=True)
class Estimate:
    """What carrying out a plan would send to the embedding API.

    Attributes:
        texts: Texts without a vector.
        reused: Texts with one.
        estimated_tokens: Tokens of the former, as far as they can be told without the model's own tokenizer.
        tokens: Upper bound of them.
        price_usd: What the estimate would cost; None where no price is known.
        refused: Notes that would be quarantined or excluded.
    """

    texts: int
    reused: int
    estimated_tokens: int
    tokens: int
    price_usd: float | None
    refused: int


def estimate_rebuild(rebuild: Rebuild, plan: VaultPlan, provider: Provider) -> Estimate:
    """Say what making every vector anew would send; scans the notes, writes and sends nothing."""
    embedder = provider.required()
    all_texts: set[str] = set()
    sent = tokens = bound = 0
    for part in rebuild.slices(plan):
        all_texts.update(*part.hashes.values())
        sent += len(part.texts)
        tokens += sum(estimated_tokens(text.text) for text in part.texts)
        bound += sum(text.token_bound for text in part.texts)
    return Estimate(sent, len(all_texts) - sent, tokens, bound, embedder.price_usd(tokens), 0)


def estimate(
    plan: Plan,
    rules: Ruleset,
    *,
    known: Callable[[list[str]], Collection[str]],
    preparer: Preparer,
    embedder: Embedder | None,
) -> Estimate:
    """Say what carrying out a plan would send; scans the notes, writes and sends nothing.

    Args:
        plan: What is to be done.
        rules: Those in force.
        known: Says which texts have a vector, by their hashes.
        preparer: Reads the notes.
        embedder: Knows the price; None: it is not known.
    """
    hashes: dict[str, tuple[int, int]] = {}
    refused = 0
    wanted = [(action.path, action.blob_id) for action in plan.actions if not isinstance(action, changes.Forget)]
    for note in preparer.prepare(wanted, rules):
        if isinstance(note, PreparedNote):
            hashes.update(
                {
                    part.text_hash: (estimated_tokens(part.embed_text), part.token_bound)
                    for part in note.chunks
                    if part.embed_text
                }
            )
        elif isinstance(note, Refused):
            refused += 1
    there = known(sorted(hashes))
    missing = [hashes[text_hash] for text_hash in hashes if text_hash not in there]
    tokens = sum(likely for likely, _ in missing)
    price = embedder.price_usd(tokens) if embedder else None
    return Estimate(len(missing), len(there), tokens, sum(bound for _, bound in missing), price, refused)
