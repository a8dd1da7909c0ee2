import itertools

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_memory.defs.partitions import Names, make_range, selection_digest

NOTES = st.lists(st.sampled_from("abcdefghij"), unique=True)


def test_a_range_holds_the_wanted_keys_and_no_other() -> None:
    """Whatever the order was, the range's first to last key are just the wanted ones, and none is lost."""
    numbers = itertools.count()
    with dg.DagsterInstance.ephemeral() as instance:

        @settings(deadline=None)
        @given(before=NOTES, wanted=NOTES.filter(bool))
        def holds(before: list[str], wanted: list[str]) -> None:
            name = f"notes {next(numbers)}"  # an instance takes too long to make for each example
            instance.add_dynamic_partitions(name, before)
            first, last = make_range(instance, name, wanted)
            after = list(instance.get_dynamic_partitions(name))
            assert set(wanted) == set(after[after.index(first) : after.index(last) + 1])
            assert set(before) | set(wanted) == set(after)
            assert len(after) == len(set(after))

        holds()


def test_neighbours_stay_where_they_are() -> None:
    """Keys that are neighbours already are not moved, in whatever order they are asked for."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("notes", ["a", "b", "c", "d"])
        assert ("b", "c") == make_range(instance, "notes", ["c", "b"])
        assert ["a", "b", "c", "d"] == list(instance.get_dynamic_partitions("notes"))


def test_no_range_without_keys() -> None:
    """An empty range would be a run over nothing."""
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(ValueError):
        make_range(instance, "notes", [])


@given(first=NOTES, second=NOTES)
def test_digests_tell_sets_of_keys_apart(first: list[str], second: list[str]) -> None:
    """Equal digests mean equal sets; order does not count, since a range has its own."""
    assert (set(first) == set(second)) is (selection_digest(first) == selection_digest(second))
    assert selection_digest(first) == selection_digest(reversed(first))


def test_a_second_source_set_shares_no_name_with_the_first() -> None:
    """Two vaults in one Dagster have their own partitions, pool, assets, jobs and sensor."""
    first, second = Names(), Names("vault_memory_work")
    assert "vault_notes" == first.partitions
    assert "vault_notes_work" == second.partitions
    properties = [name for name, value in vars(Names).items() if isinstance(value, property)]
    assert len(properties) >= 9
    assert [] == [name for name in properties if getattr(first, name) == getattr(second, name)]
