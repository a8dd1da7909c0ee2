"""What a first sync would do, said before there is a database, a key or anything else of ours.

Belongs here: the plan of a vault that nothing is remembered of. Does not: plans beside a store (``planning``).
"""

from __future__ import annotations

import secrets
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vault_memory.adapters.embedding import open_embedder
from vault_memory.ingest import estimates
from vault_memory.ingest.allowances import AllowList
from vault_memory.ingest.keys import KeyedHash
from vault_memory.ingest.planning import VaultPlan
from vault_memory.ingest.prepare import Preparer
from vault_memory.ingest.rules import rules_at
from vault_memory.ingest.source import open_source
from vault_memory.notes import changes

if TYPE_CHECKING:
    from vault_memory.ingest.estimates import Estimate
    from vault_memory.settings import Settings


def first_look(settings: Settings) -> tuple[VaultPlan, Estimate]:
    """Plan a vault against an empty memory; reads the vault and the allow-list, writes and sends nothing.

    Raises:
        ConfigError: The embedder cannot be opened, or a setting is malformed.
        VaultError: The vault cannot be read.
    """
    vault = open_source(settings)
    head = vault.head()
    rules = rules_at(vault, head, settings.scan)
    tree = vault.tree(head) if head else ()
    key = KeyedHash(secrets.token_bytes(32))  # of this moment: nothing that it makes is kept
    work = changes.plan({}, tree, rules, tag=key.tag, now=datetime.now(UTC))
    plan = VaultPlan(commit=head, work=work, gone=(), tree=tree, deletion_share=0.0, searchable=0)
    embedder = open_embedder(settings, None)
    with closing(Preparer(vault, AllowList(settings.allow_list_file, key, vault=settings.vault))) as preparer:
        found = estimates.estimate(work, rules, known=lambda _hashes: (), preparer=preparer, embedder=embedder)
    return plan, found
