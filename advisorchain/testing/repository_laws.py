"""What every chat memory repository must do, as a suite that needs no test framework.

    async def test_my_repository():
        unchecked = await check_repository(lambda: MyRepository())

Each law gets a fresh repository; the first one that is broken raises AssertionError with a sentence that says how. A few
need more than a repository (a second one on the same store, a connection that breaks); those whose means are not given are
not checked, and told. `advisorchain.testing.pytest_plugin` makes a test of each law.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import anyio

from advisorchain.memory.repository import ChatMemoryRepository, missing_methods
from advisorchain.testing._law_checks import LacksMethodsError, check_law
from advisorchain.testing._repository_laws import branches as branches
from advisorchain.testing._repository_laws import ids as ids
from advisorchain.testing._repository_laws import interruptions as interruptions
from advisorchain.testing._repository_laws import leases as leases
from advisorchain.testing._repository_laws import limits as limits
from advisorchain.testing._repository_laws import messages as messages
from advisorchain.testing._repository_laws import reading as reading
from advisorchain.testing._repository_laws import refusals as refusals
from advisorchain.testing._repository_laws import replacing as replacing
from advisorchain.testing._repository_laws import retention as retention
from advisorchain.testing._repository_laws import sharing as sharing
from advisorchain.testing._repository_laws import writers as writers
from advisorchain.testing._repository_laws import writing as writing

__all__ = ["REPOSITORY_LAWS", "Means", "RepositoryLaw", "check_repository"]

Repository: TypeAlias = ChatMemoryRepository | AbstractAsyncContextManager[ChatMemoryRepository]
_PATIENCE: Final = 120  # seconds, after which a law that has not ended counts as broken


@dataclass(frozen=True, slots=True)
class Means:
    """What a kind of repository is checked with.

    Attributes:
        make: gives a new repository on a new, empty store: either the repository itself, which is closed after the law by
            its `aclose`, or an async context manager that gives it.
        wait: lets so many seconds pass on the store's clock, by which leases and conversations run out.
        reopen: gives another repository on the store of the given one, as another process would make it.
        disconnect: breaks the connections of the given repository, as a server that restarts or a network does; whoever
            calls it next may see StorageError, and the repository connects anew.
    """

    make: Callable[[], Repository]
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    reopen: Callable[[ChatMemoryRepository], Repository] | None = None
    disconnect: Callable[[ChatMemoryRepository], Coroutine[Any, Any, None]] | None = None

    def reopened(self, repository: ChatMemoryRepository) -> AbstractAsyncContextManager[ChatMemoryRepository]:
        """As `reopen`, which must be there."""
        assert self.reopen is not None
        return _opened(self.reopen(repository))


@dataclass(frozen=True, slots=True)
class RepositoryLaw:
    """A law and how it is tried.

    Attributes:
        name: a sentence.
        needs: which means it needs beside `make`.
    """

    name: str
    check: Callable[..., Awaitable[None]]
    needs: tuple[str, ...] = ()

    def missing(self, means: Means) -> tuple[str, ...]:
        """The means that it needs and that are not given."""
        return tuple(name for name in self.needs if getattr(means, name) is None)

    async def run(self, means: Means) -> None:
        """Try it on a fresh repository; AssertionError when it is broken."""
        __tracebackhide__ = True  # pytest shows the law itself
        given = {"reopen": means.reopened, "disconnect": means.disconnect, "wait": means.wait}
        await check_law(self.name, partial(self._try, means, [given[name] for name in self.needs]))

    async def _try(self, means: Means, given: list[Any]) -> None:
        with anyio.move_on_after(_PATIENCE) as patience:
            async with _opened(means.make()) as repository:
                try:
                    await self.check(repository, *given)
                except Exception as error:
                    if self.check is not _every_method_is_there and (missing := missing_methods(repository)):
                        raise LacksMethodsError(f"not checked, since the store has no {_listed(missing)}") from error
                    raise
        assert not patience.cancelled_caught, f"it did not end within {_PATIENCE} seconds"


@asynccontextmanager
async def _opened(given: Repository) -> AsyncIterator[ChatMemoryRepository]:
    if isinstance(given, AbstractAsyncContextManager):
        async with given as repository:
            yield repository
        return
    try:
        yield given
    finally:
        if "aclose" not in missing_methods(given):
            await given.aclose()


async def _every_method_is_there(repository: ChatMemoryRepository) -> None:
    missing = missing_methods(repository)
    assert not missing, f"`{type(repository).__name__}` has no {_listed(missing)}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


_WAIT: Final = ("wait",)
_REOPEN: Final = ("reopen",)
_DISCONNECT: Final = ("disconnect",)

REPOSITORY_LAWS: Final = (
    RepositoryLaw("every method is there", _every_method_is_there),
    RepositoryLaw("batches are appended in order", writing.appended_in_order),
    RepositoryLaw("a batch of fifty keeps its order", writing.a_batch_of_fifty_keeps_its_order),
    RepositoryLaw("a batch of thousands is whole", writing.a_batch_of_thousands_is_whole),
    RepositoryLaw("a repeated turn is stored once", writing.a_repeated_turn_is_stored_once),
    RepositoryLaw("an empty append does nothing", writing.an_empty_append_does_nothing),
    RepositoryLaw("a writer that read another revision is refused", writing.a_writer_that_read_another_revision_is_refused),
    RepositoryLaw("a turn of a deleted life is refused", writing.a_turn_of_a_deleted_life_is_refused),
    RepositoryLaw("refusals come in their order", writing.refusals_come_in_their_order),
    RepositoryLaw("delete leaves nothing", writing.delete_leaves_nothing),
    RepositoryLaw("replace keeps what stays", replacing.replace_keeps_what_stays),
    RepositoryLaw("replace by nothing is delete", replacing.replace_by_nothing_is_delete),
    RepositoryLaw("a replacement of a deleted life is refused", replacing.a_replacement_of_a_deleted_life_is_refused),
    RepositoryLaw("a summary covers what it covered", replacing.a_summary_covers_what_it_covered),
    RepositoryLaw("times keep their microseconds", replacing.times_keep_their_microseconds),
    RepositoryLaw("texts come back", messages.texts_come_back),
    RepositoryLaw("long texts come back", messages.long_texts_come_back),
    RepositoryLaw("tool traffic comes back", messages.tool_traffic_comes_back),
    RepositoryLaw("images and files come back", messages.images_and_files_come_back),
    RepositoryLaw("metadata comes back", messages.metadata_comes_back),
    RepositoryLaw("ids are exact", ids.ids_are_exact),
    RepositoryLaw("ids hold every character", ids.ids_hold_every_character),
    RepositoryLaw("turn ids are exact", ids.turn_ids_are_exact),
    RepositoryLaw("conversations are found by prefix", ids.conversations_are_found_by_prefix),
    RepositoryLaw("a list tells count and times", ids.a_list_tells_count_and_times),
    RepositoryLaw("lists go on while others write", ids.lists_go_on_while_others_write),
    RepositoryLaw("recall gives the newest", reading.recall_gives_the_newest),
    RepositoryLaw("recall ends before an entry", reading.recall_ends_before_an_entry),
    RepositoryLaw("recall knows the systems in force", reading.recall_knows_the_systems_in_force),
    RepositoryLaw("pages give every entry once", reading.pages_give_every_entry_once),
    RepositoryLaw("pages stay the same while others write", reading.pages_stay_the_same_while_others_write),
    RepositoryLaw("a cursor ends with its conversation", reading.a_cursor_ends_with_its_conversation),
    RepositoryLaw("a fork has the same entries", branches.a_fork_has_the_same_entries),
    RepositoryLaw("a fork ends at an entry", branches.a_fork_ends_at_an_entry),
    RepositoryLaw("a fork has the systems of its cut", branches.a_fork_has_the_systems_of_its_cut),
    RepositoryLaw("a fork goes its own way", branches.a_fork_goes_its_own_way),
    RepositoryLaw("a fork takes no id that is there", branches.a_fork_takes_no_id_that_is_there),
    RepositoryLaw("a renamed conversation is the same", branches.a_renamed_conversation_is_the_same),
    RepositoryLaw("a rename takes no id that is there", branches.a_rename_takes_no_id_that_is_there),
    RepositoryLaw("a turn under an old id is refused", branches.a_turn_under_an_old_id_is_refused),
    RepositoryLaw("leases stay with their ids", branches.leases_stay_with_their_ids),
    RepositoryLaw("an ended conversation is not there", retention.an_ended_conversation_is_not_there, _WAIT),
    RepositoryLaw("an ended id is free again", retention.an_ended_id_is_free_again, _WAIT),
    RepositoryLaw("every write begins the time anew", retention.every_write_begins_the_time_anew, _WAIT),
    RepositoryLaw("reading does not prolong", retention.reading_does_not_prolong, _WAIT),
    RepositoryLaw("the time to live is remembered", retention.the_time_to_live_is_remembered, _WAIT),
    RepositoryLaw("a list tells the end", retention.a_list_tells_the_end),
    RepositoryLaw("a late turn begins a new life", retention.a_late_turn_begins_a_new_life, _WAIT),
    RepositoryLaw("prune removes what ended", retention.prune_removes_what_ended, _WAIT),
    RepositoryLaw("prune removes what is old", retention.prune_removes_what_is_old, _WAIT),
    RepositoryLaw("prune keeps to prefix and limit", retention.prune_keeps_to_prefix_and_limit, _WAIT),
    RepositoryLaw("the oldest turns go", limits.the_oldest_turns_go),
    RepositoryLaw("whole turns go", limits.whole_turns_go),
    RepositoryLaw("the newest turn never goes", limits.the_newest_turn_never_goes),
    RepositoryLaw("systems and summary stay", limits.systems_and_summary_stay),
    RepositoryLaw("a limit is of one write", limits.a_limit_is_of_one_write),
    RepositoryLaw("leases exclude others", leases.leases_exclude_others),
    RepositoryLaw("tokens grow", leases.tokens_grow),
    RepositoryLaw("a stale token is refused", leases.a_stale_token_is_refused),
    RepositoryLaw("leases run out", leases.leases_run_out, _WAIT),
    RepositoryLaw("a lease counts until it is taken", leases.a_lease_counts_until_it_is_taken, _WAIT),
    RepositoryLaw("one of many takes a lease", leases.one_of_many_takes_a_lease),
    RepositoryLaw("concurrent tasks lose nothing", sharing.tasks_lose_nothing),
    RepositoryLaw("concurrent threads lose nothing", sharing.threads_lose_nothing),
    RepositoryLaw("readers see whole turns", sharing.readers_see_whole_turns),
    RepositoryLaw("a turn sent twice at once is stored once", sharing.a_turn_sent_twice_at_once_is_stored_once),
    RepositoryLaw("one of many writers at a revision is stored", sharing.one_of_many_writers_at_a_revision_is_stored),
    RepositoryLaw("one of many takes an id", sharing.one_of_many_takes_an_id),
    RepositoryLaw("a deletion stands against turns under way", sharing.a_deletion_stands_against_turns_under_way),
    RepositoryLaw("a cancelled append is whole or nothing", interruptions.a_cancelled_append_is_whole_or_nothing),
    RepositoryLaw("a cancelled replacement is whole or nothing", interruptions.a_cancelled_replacement_is_whole_or_nothing),
    RepositoryLaw("a cancelled move is whole or nothing", interruptions.a_cancelled_move_is_whole_or_nothing),
    RepositoryLaw("cancelled reads take nothing away", interruptions.cancelled_reads_take_nothing_away),
    RepositoryLaw("two repositories see one log", writers.two_repositories_see_one_log, _REOPEN),
    RepositoryLaw("two repositories lose nothing", writers.two_repositories_lose_nothing, _REOPEN),
    RepositoryLaw("two repositories keep the rules", writers.two_repositories_keep_the_rules, _REOPEN),
    RepositoryLaw("two repositories share leases", writers.two_repositories_share_leases, _REOPEN),
    RepositoryLaw("what was acknowledged outlives its writer", writers.what_was_acknowledged_outlives_its_writer, _REOPEN),
    RepositoryLaw(
        "a lease ends with its time when its holder is gone",
        writers.a_lease_ends_with_its_time_when_its_holder_is_gone,
        ("reopen", "wait"),
    ),
    RepositoryLaw("a lost connection is mended", interruptions.a_lost_connection_is_mended, _DISCONNECT),
    RepositoryLaw(
        "a connection lost under way leaves whole turns",
        interruptions.a_connection_lost_under_way_leaves_whole_turns,
        _DISCONNECT,
    ),
    RepositoryLaw("bad ids are refused", refusals.bad_ids_are_refused),
    RepositoryLaw("bad messages are refused", refusals.bad_messages_are_refused),
    RepositoryLaw("bad arguments are refused", refusals.bad_arguments_are_refused),
    RepositoryLaw("a closed repository refuses", refusals.a_closed_repository_refuses),
)


async def check_repository(
    make: Callable[[], Repository],
    *,
    wait: Callable[[float], Awaitable[None]] = anyio.sleep,
    reopen: Callable[[ChatMemoryRepository], Repository] | None = None,
    disconnect: Callable[[ChatMemoryRepository], Coroutine[Any, Any, None]] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Check a kind of repository against all laws that these means allow.

    Args:
        make: gives a new repository on a new, empty store: either the repository itself, which is closed after the law by
            its `aclose`, or an async context manager that gives it.
        wait: lets so many seconds pass on the store's clock, by which leases and conversations run out. With a clock that
            cannot be moved the laws take about 25 seconds more.
        reopen: gives another repository on the store of the given one, as another process would make it.
        disconnect: breaks the connections of the given repository, as a server that restarts or a network does.

    Returns:
        The laws that were not checked, with the means that they need; empty: all of them were.

    Raises:
        AssertionError: a law is broken; the text names the law and says what was found.
    """
    means = Means(make, wait, reopen, disconnect)
    unchecked: dict[str, tuple[str, ...]] = {}
    for law in REPOSITORY_LAWS:
        missing = law.missing(means)
        if missing:
            unchecked[law.name] = missing
        else:
            await law.run(means)
    return unchecked
