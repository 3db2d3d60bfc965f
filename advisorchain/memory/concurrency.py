"""What happens when a turn of a conversation begins while another one is under way: the rules.

A rule is given to `ChatMemory`. All but `Append` take a lease on the conversation in the store, so they hold between tasks,
threads and processes. A lease is given back when its turn ends, however it ends; only when the process dies does it stay
until its time is over. Nothing renews it meanwhile: a turn that takes longer than its lease may be overtaken, which does no
harm while nobody else asks. A streamed turn ends when its reader has read or left it, a paused one when it pauses: when it
goes on it begins again, and may find another one under way; one on a branch goes on there.

Two rules on one conversation, in two programs, do not see each other unless both take leases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from advisorchain._checked import checked_one_of, checked_seconds
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.memory.turns import Late

__all__ = ["APPEND", "Append", "ConcurrencyRule", "Fork", "Reject", "Serialize", "checked_rule"]

Lateness: TypeAlias = Literal["refuse", "append"]


@dataclass(frozen=True, slots=True)
class Append:
    """Turns do not wait for each other, and take no lease.

    Each is stored whole, in order of completion, and knows nothing of those that were not stored yet when it began.
    """


@dataclass(frozen=True, slots=True)
class Serialize:
    """Turns of one conversation come one after the other: each waits for the lease before it reads the history.

    Within one event loop they come in the order in which they asked; between processes, threads and repositories on one
    store, whoever looks first. A line of turns in one event loop makes a stop of 0.6 seconds when it has had the lease for
    four turns and two seconds, so that others have their chance. A turn that begins another one of its own conversation, in
    a tool for instance, waits for itself in vain.

    When a holder's process was killed, its lease stays until its time is over. Those who ask meanwhile wait for that, since
    `wait` is above `lease` by default; with a `wait` below it they may fail until then.

    Args:
        lease: seconds that a turn may take before others may go on without it.
        wait: seconds to wait for other turns; then ConversationBusyError, before the model is asked.
        late: what becomes of a turn that took longer than its lease, when another one has taken it over: it is refused with
            LeaseLostError and not stored, or it is stored all the same, as `Append` would ("append").

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    lease: float = 120.0
    wait: float = 150.0
    late: Lateness = "refuse"

    def __post_init__(self) -> None:
        _check_lease(self.lease, self.late)
        checked_seconds("wait", self.wait, zero=True)


@dataclass(frozen=True, slots=True)
class Reject:
    """A turn that begins while another one is under way fails with ConversationBusyError, before the model is asked.

    Args:
        lease, late: as for `Serialize`.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    lease: float = 120.0
    late: Lateness = "refuse"

    def __post_init__(self) -> None:
        _check_lease(self.lease, self.late)


@dataclass(frozen=True, slots=True)
class Fork:
    """A turn that begins while another one is under way goes to a branch: a conversation with an id of its own.

    It reads the history as it is. When it ends, the store copies the conversation up to what this turn had read, and the
    turn is stored behind it; the conversation itself goes on without it. So does a turn whose lease was taken over because
    it took longer: nothing is lost or refused. One exception: where the conversation that it had read is not there any more
    when it ends, since it was deleted or its time to live was over meanwhile, there is nothing to copy: the turn of a branch
    gets ConversationDeletedError then, and is not stored.

    Advisors further in than the memory see a request with the branch's `conversation_id`, and so do their spans, limits and
    caches; those outside see the one that was asked for.

    Where a turn went: `Turn.conversation_id`; `response.context["memory.conversation_id"]`, which is there only when it
    is a branch that was known when the turn began; and the log event "advisorchain.memory.branched", always.

    Args:
        lease: seconds that a turn may take before others may go on without it.
        name: makes a branch's id of the conversation's. An id that is taken gets the ending of the default, which is the
            conversation's id, cut to fit, with "~" and eight random hexadecimal digits.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    lease: float = 120.0
    name: Callable[[str], str] | None = None
    late: ClassVar[Late] = "branch"

    def __post_init__(self) -> None:
        _check_lease(self.lease, "refuse")
        if self.name is not None and not callable(self.name):
            raise ConfigurationError(f"`name` is {kind_of(self.name)}; give a function of a conversation id, or None")


ConcurrencyRule: TypeAlias = Append | Serialize | Reject | Fork


APPEND: Final = Append()


def checked_rule(value: object) -> ConcurrencyRule:
    """A rule; ConfigurationError when `value` is none."""
    if isinstance(value, Append | Serialize | Reject | Fork):
        return value
    raise ConfigurationError(
        f"`concurrency` is {kind_of(value)}; give `Append()`, `Serialize()`, `Reject()` or `Fork()` of advisorchain.memory"
    )


def _check_lease(lease: object, late: object) -> None:
    checked_seconds("lease", lease)
    checked_one_of("late", late, get_args(Lateness))
