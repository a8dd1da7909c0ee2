"""The jobs: bring notes into memory, and check the store as a whole.

Belongs here: which assets run together. Does not: when they run (``sensors``).
"""

from dagster import AssetSelection, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from vault_memory.defs.partitions import VAULT_TAG, Names


def build_sync_job(names: Names) -> UnresolvedAssetJobDefinition:
    """Return the job of the sensor and of ``vault-memory sync``.

    Its tag makes the run queue admit one run of a vault at a time. Runs from the asset page belong to Dagster's own
    job and lack it; the pool of the ops holds those back.
    """
    return define_asset_job(
        names.sync_job,
        selection=AssetSelection.assets(names.notes).without_checks(),
        tags={VAULT_TAG: names.schema},
        description="Bring a range of notes to what the vault's HEAD says: scan, embed, persist.",
    )


def build_index_job(names: Names) -> UnresolvedAssetJobDefinition:
    """Return the job that counts the store and checks it against HEAD.

    A job of its own: the op that writes notes yields no output, and Dagster skips what comes after such an op.
    """
    return define_asset_job(
        names.index_job,
        selection=AssetSelection.assets(names.index),
        description="Count what is in memory and check it against the vault's HEAD.",
    )
