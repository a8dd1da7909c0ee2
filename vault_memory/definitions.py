"""What Dagster loads: ``dagster dev -m vault_memory.definitions``, and ``workspace.yaml``.

Belongs here: one line. Everything else is in ``vault_memory.defs``.
"""

from vault_memory.defs.build import build_definitions

defs = build_definitions()
