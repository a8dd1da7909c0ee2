"""Names, run tags, and the order of partitions.

Belongs here: what a source set's things are called in Dagster, the tags that runs carry, and how a list of notes
becomes a range of partitions. Does not: what is done with the notes of a range (``assets``).

Dagster has no run over a list of partitions, only over a range, and it resolves the range when the run executes, not
when it is asked for. So the wanted keys are made neighbours first (``make_range``), and every run carries a digest of
the keys it was asked for (``selection_digest``): a start that moved behind its end would otherwise succeed with
nothing, and a moved end would take other notes with it.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

from vault_memory.settings import Settings

VAULT_TAG: Final = "vault-memory/vault"
PLAN_TAG: Final = "vault-memory/plan"
SELECTION_TAG: Final = "vault-memory/selection"
COMMIT_TAG: Final = "vault-memory/commit"
OWNER_TAG: Final = "vault-memory/pid"
AUTHORED_TAG: Final = "vault-memory/authored"
NOTES_TAG: Final = "vault-memory/notes"
OUTCOME_TAG: Final = "vault-memory/outcome"
# Dagster's own, documented; the constants live in a private module.
RANGE_START_TAG: Final = "dagster/asset_partition_range_start"
RANGE_END_TAG: Final = "dagster/asset_partition_range_end"
BACKFILL_TAG: Final = "dagster/backfill"
DATA_VERSION_TAG: Final = "dagster/data_version"

OWNERS: Final = ("team:vault-memory",)
_DEFAULT_SCHEMA: Final = "vault_memory"


@dataclass(frozen=True, slots=True)
class Names:
    """What one source set's things are called; further source sets get a suffix.

    Attributes:
        schema: The schema of the source set, which tells source sets apart.
    """

    schema: str = _DEFAULT_SCHEMA

    @classmethod
    def of(cls, settings: Settings) -> "Names":
        """Return the names of the source set that the settings describe."""
        return cls(settings.schema)

    def named(self, name: str) -> str:
        """Return a name with this source set's suffix; the default one has none."""
        return name if self.schema == _DEFAULT_SCHEMA else f"{name}_{self.schema.removeprefix(_DEFAULT_SCHEMA + '_')}"

    @property
    def partitions(self) -> str:
        """The dynamic partitions: one key a note that is ever read."""
        return self.named("vault_notes")

    @property
    def pool(self) -> str:
        """The pool of everything that writes."""
        return self.named("vault_writer")

    @property
    def vault(self) -> dg.AssetKey:
        """The git repository."""
        return dg.AssetKey(self.named("vault"))

    @property
    def notes(self) -> dg.AssetKey:
        """The notes in memory."""
        return dg.AssetKey(self.named("memory_notes"))

    @property
    def index(self) -> dg.AssetKey:
        """The store as a whole."""
        return dg.AssetKey(self.named("memory_index"))

    @property
    def sync_job(self) -> str:
        """The job that brings notes into memory."""
        return self.named("vault_sync")

    @property
    def index_job(self) -> str:
        """The job that checks the store as a whole."""
        return self.named("memory_index_job")

    @property
    def sensor(self) -> str:
        """The sensor that follows HEAD."""
        return self.named("vault_head")

    @property
    def group(self) -> str:
        """The group of its assets."""
        return self.schema

    @property
    def resource(self) -> str:
        """The key of the resource: two source sets may share one code location."""
        return self.named("vault_memory")

    def partitions_definition(self) -> dg.DynamicPartitionsDefinition:
        """Return the partitions of the notes."""
        return dg.DynamicPartitionsDefinition(name=self.partitions)


def selection_digest(keys: Iterable[str]) -> str:
    """Return a digest of a set of partition keys; keys hold no control characters, so NUL parts them."""
    return hashlib.sha256("\0".join(sorted(set(keys))).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def make_range(instance: dg.DagsterInstance, partitions: str, keys: Sequence[str]) -> tuple[str, str]:
    """Make partition keys neighbours and return the first and the last of them.

    Keys that are neighbours already stay where they are. Otherwise all of them are dropped and added again, which
    puts them at the end; a crash in between loses no note, since the store and not the partitions say what is done.

    Raises:
        ValueError: There are no keys.
    """
    wanted = list(dict.fromkeys(keys))
    if not wanted:
        raise ValueError("no partition keys to make a range of")
    order = {key: position for position, key in enumerate(instance.get_dynamic_partitions(partitions))}
    positions = sorted(order[key] for key in wanted if key in order)
    if len(positions) == len(wanted) and positions[-1] - positions[0] == len(wanted) - 1:
        wanted.sort(key=order.__getitem__)
        return wanted[0], wanted[-1]
    for key in wanted:
        if key in order:
            instance.delete_dynamic_partition(partitions, key)
    instance.add_dynamic_partitions(partitions, wanted)
    return wanted[0], wanted[-1]


def range_tags(
    names: Names, bounds: tuple[str, str], keys: Sequence[str], commit: str | None, *, full: bool = False
) -> dict[str, str]:
    """Return the tags of a run over a range.

    Args:
        names: Whose run.
        bounds: The first and the last key.
        keys: All keys of the range.
        commit: HEAD when the run was asked for.
        full: Write every note again, instead of following the plan.
    """
    return {
        RANGE_START_TAG: bounds[0],
        RANGE_END_TAG: bounds[1],
        VAULT_TAG: names.schema,
        **({} if full else {PLAN_TAG: "follow"}),
        SELECTION_TAG: selection_digest(keys),
        COMMIT_TAG: commit or "",
    }


def postponed_drops(instance: dg.DagsterInstance, names: Names) -> frozenset[str]:
    """Return the keys whose notes are gone, but which a backfill still counted on when they went."""
    name = _postponed_name(names)
    return frozenset(json.loads(instance.daemon_cursor_storage.get_cursor_values({name}).get(name, "[]")))


def set_postponed_drops(instance: dg.DagsterInstance, names: Names, keys: Iterable[str]) -> None:
    """Replace what ``postponed_drops`` returns; the caller holds the writer lock."""
    instance.daemon_cursor_storage.set_cursor_values({_postponed_name(names): json.dumps(sorted(keys))})


def _postponed_name(names: Names) -> str:
    return f"vault-memory/postponed-drops/{names.schema}"
