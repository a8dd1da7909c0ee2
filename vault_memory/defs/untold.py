"""Tells Dagster of notes that were written by a run that could not tell of them any more.

Belongs here: finding them. Does not: telling in an ordinary run (``telling``).

A run writes a note and tells Dagster within half a second. If it is killed in between, the note is in memory, no later
run has a reason to write it again, and its partition would be red until the note changes.
"""

from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from vault_memory.defs.partitions import Names
from vault_memory.notes.paths import note_id

if TYPE_CHECKING:
    from vault_memory.ingest.sync import Synchronizer


def tell_of_written(instance: dg.DagsterInstance, names: Names, synchronizer: "Synchronizer") -> list[str]:
    """Mark as good the partitions that are shown as failed, but whose notes are as HEAD says; return their keys.

    Call it when there is nothing left to do: a note that is still to be written is told of by its run.
    """
    keys = list(instance.get_dynamic_partitions(names.partitions))
    shown = instance.get_status_by_partition(names.notes, keys, names.partitions_definition()) or {}
    failed = [key for key, status in shown.items() if status is AssetPartitionStatus.FAILED]
    if not failed:
        return []
    settled = synchronizer.partition_ids() - synchronizer.failed_ids()
    written = [key for key in failed if _note(key) in settled]
    for key in written:
        instance.report_runless_asset_event(
            dg.AssetMaterialization(names.notes, partition=key, metadata={"action": "told later: its run was killed"})
        )
    return written


def _note(key: str) -> str | None:
    try:
        return note_id(key)
    except ValueError:  # not of our making
        return None
