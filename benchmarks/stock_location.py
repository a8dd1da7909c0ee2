"""The same assets as a first Dagster project would run them: what ``commit_to_searchable`` compares with.

Belongs here: Dagster's stock settings in place of ours. The sensor looks once every 30 s, Dagster's default; steps run
in processes of their own, Dagster's default executor, and hand over what they made through files, its default too.
"""

import dagster as dg

from vault_memory.defs.assets import build_index, build_notes, build_vault
from vault_memory.defs.checks import build_index_checks
from vault_memory.defs.jobs import build_index_job, build_sync_job
from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultMemoryResource
from vault_memory.defs.sensors import build_head_sensor

_names = Names()
_jobs = [build_sync_job(_names), build_index_job(_names)]

defs = dg.Definitions(
    assets=[build_vault(_names), build_notes(_names), build_index(_names)],
    asset_checks=[build_index_checks(_names)],
    jobs=_jobs,
    sensors=[build_head_sensor(_names, _jobs, tick_seconds=0, interval_seconds=30)],
    resources={_names.resource: VaultMemoryResource(), "hand_over": dg.FilesystemIOManager()},
)
