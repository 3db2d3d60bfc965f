"""What happens when a turn of a conversation begins while another one is under way: the rules, and the leases behind them.

A rule is given to `ChatMemory`. All but `Append` take a lease on the conversation in the store, so they hold between tasks,
threads and processes. A lease is given back when its turn ends, however it ends; only when the process dies does it stay
until its time is over. Nothing renews it meanwhile: a turn that takes longer than its lease may be overtaken, which does no
harm while nobody else asks. Two rules on one conversation, in two programs, do not see each other unless both take leases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import uniform
from typing import ClassVar, Final, Literal, TypeAlias, get_args
from uuid import uuid4

from anyio import Event, current_time, move_on_after
from anyio.lowlevel import RunVar

from advisorchain._checked import checked_one_of, checked_seconds
from advisorchain.errors import ChatMemoryError, ConfigurationError, ConversationBusyError, InvalidInputError, kind_of
from advisorchain.exchange import MAX_ID_LENGTH
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.memory.turns import Late
from advisorchain.telemetry import log_event

__all__ = ["APPEND", "Append", "ConcurrencyRule", "Fork", "Hold", "Reject", "Serialize", "checked_rule", "take_hold"]

Lateness: TypeAlias = Literal["refuse", "append"]

_FIRST_PAUSE: Final = 0.02  # seconds between two looks at a lease that somebody else has
_LONGEST_PAUSE: Final = 0.5
_GIVE_BACK_SECONDS: Final = 5.0  # a store that hangs must not hold a cancelled task for ever
_DOUBT_SECONDS: Final = 1.0  # of a lease that was taken only to be given back


@dataclass(frozen=True, slots=True)
class Append:
    """Turns do not wait for each other, and take no lease.

    Each is stored whole, in order of completion, and knows nothing of those that were not stored yet when it began.
    """


@dataclass(frozen=True, slots=True)
class Serialize:
    """Turns of one conversation come one after the other: each waits for the lease before it reads the history.

    Within one event loop they come in the order in which they asked; between processes, threads and repositories on one
    store, whoever looks first. A turn that begins another one of its own conversation, in a tool for instance, waits for
    itself in vain.

    When a holder's process was killed, its lease stays until its time is over. Those who ask meanwhile wait no longer than
    `wait`, so with a `wait` below `lease`, as by default, they may fail until then.

    Args:
        lease: seconds that a turn may take before others may go on without it.
        wait: seconds to wait for other turns; then ConversationBusyError, before the model is asked.
        late: what becomes of a turn that took longer than its lease, when another one has taken it over: it is refused with
            LeaseLostError and not stored, or it is stored all the same, as `Append` would ("append").

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    lease: float = 120.0
    wait: float = 60.0
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

    Limits and caches that count by conversation, further in than the memory, take a branch for one of its own.

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


class Hold:
    """What a turn has of its conversation while it is under way: its lease, and what to do when that is lost.

    Attributes:
        token: the lease's fencing token; None: another turn has the lease, or this one has given it back.
        late: what becomes of a turn whose lease was taken over.
        branch: the id of the branch that the turn goes to; None: to none.
    """

    __slots__ = ("_conversation_id", "_name", "_owner", "_repository", "_rule", "_seconds", "branch", "late", "token")

    def __init__(
        self,
        repository: ChatMemoryRepository,
        conversation_id: str,
        owner: str,
        rule: Serialize | Reject | Fork,
        token: int | None,
    ) -> None:
        self._repository = repository
        self._conversation_id = conversation_id
        self._owner = owner
        self._rule = type(rule).__name__
        self._seconds = rule.lease
        self._name = rule.name if isinstance(rule, Fork) else None
        self.late: Late = rule.late
        self.token = token
        self.branch: str | None = None

    async def renew(self) -> bool:
        """Whether the lease is this turn's, for its whole length from now on. One that ran out is taken anew if free."""
        if self.token is not None:
            self.token = await _acquired(self._repository, self._conversation_id, self._owner, self._seconds)
        return self.token is not None

    def overtaken(self) -> str:
        """What is told of a turn that is refused because its lease was taken over."""
        return (
            f"the turn took longer than its `lease` of {self._seconds:g} seconds and another one has taken over; nothing was"
            f' stored. Give `{self._rule}(lease=…)` a longer one, or `late="append"`'
        )

    def lost(self) -> Late:
        """The lease was taken over; what becomes of the turn now."""
        self.token = None
        if self.late == "append":
            log_event("warning", "advisorchain.memory.late_turn", conversation_id=self._conversation_id)
        return self.late

    async def release(self) -> None:
        """Give the lease back, also in a task that is being cancelled. If the store fails, it runs out by itself."""
        token, self.token = self.token, None
        if token is None:
            return
        error: Exception | None = None
        with move_on_after(_GIVE_BACK_SECONDS, shield=True) as scope:
            try:
                await self._repository.release(self._conversation_id, token)
            except ChatMemoryError as failure:
                error = failure
        if error is not None or scope.cancelled_caught:
            name = "TimeoutError" if error is None else type(error).__qualname__
            log_event("warning", "advisorchain.memory.release_failed", error_type=name)
        _wake_next(self._repository, self._conversation_id)

    async def branch_off(self, reason: Literal["busy", "late", "taken"]) -> str:
        """Choose the id of a branch, another one than before, that no conversation has."""
        name = self._branch_name(self.branch)
        while (await self._repository.recall(name, 0)).revision:
            name = self._branch_name(name)
        self.branch = name
        level = "info" if reason == "busy" else "warning"  # otherwise nobody could be told in the response
        ids = {"conversation_id": self._conversation_id, "branch": name}
        log_event(level, "advisorchain.memory.branched", **ids, reason=reason)
        return name

    def _branch_name(self, tried: str | None) -> str:
        base = self._conversation_id
        if self._name is not None:
            if tried is None:
                return self._name(base)
            base = tried
        ending = f"~{uuid4().hex[:8]}"
        return base[: MAX_ID_LENGTH - len(ending)] + ending


async def take_hold(
    rule: ConcurrencyRule, repository: ChatMemoryRepository, conversation_id: str, owner: str
) -> Hold | None:
    """What `rule` gives to a turn that begins now; None: nothing is needed.

    Raises:
        ConversationBusyError: another turn is under way, and the rule says that this one may not begin.
    """
    if isinstance(rule, Append):
        return None
    if isinstance(rule, Serialize):
        token = await _waited_for(rule, repository, conversation_id, owner)
    else:
        token = await _acquired(repository, conversation_id, owner, rule.lease)
    if token is None and not isinstance(rule, Fork):
        raise ConversationBusyError(_busy(rule))
    hold = Hold(repository, conversation_id, owner, rule, token)
    if token is None:
        await hold.branch_off("busy")
    return hold


def _busy(rule: Serialize | Reject) -> str:
    busy = "another turn of this `conversation_id` is under way; nothing was asked or stored"
    if isinstance(rule, Reject):
        return f"{busy}. Ask again when it has ended"
    return f"{busy}, after a `wait` of {rule.wait:g} seconds. Ask again later, or give `Serialize` a longer `wait`"


async def _acquired(repository: ChatMemoryRepository, conversation_id: str, owner: str, seconds: float) -> int | None:
    try:
        return await repository.acquire(conversation_id, owner, seconds)
    except (GeneratorExit, InvalidInputError):
        raise
    except BaseException:  # it may be ours, and we do not know its token; to ask for it again tells
        with move_on_after(_GIVE_BACK_SECONDS, shield=True):
            await _in_doubt(repository, conversation_id, owner)
        raise


async def _in_doubt(repository: ChatMemoryRepository, conversation_id: str, owner: str) -> None:
    try:
        token = await repository.acquire(conversation_id, owner, _DOUBT_SECONDS)
        if token is not None:
            await repository.release(conversation_id, token)
    except ChatMemoryError:
        pass  # told already, by the error that brought us here


# -- waiting in line


class _Waiter:
    """A turn that waits for a lease."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = Event()

    def wake(self) -> None:
        self._event.set()

    async def sleep(self, seconds: float) -> None:
        """Until the time is over or somebody wakes it."""
        with move_on_after(seconds):
            await self._event.wait()
        if self._event.is_set():
            self._event = Event()


_Lines: TypeAlias = dict[tuple[int, str], deque[_Waiter]]
_LINES: Final[RunVar[_Lines]] = RunVar("advisorchain.memory.lines")  # of one event loop; gone when nobody waits


async def _waited_for(rule: Serialize, repository: ChatMemoryRepository, conversation_id: str, owner: str) -> int | None:
    """The token, or None when it was not to be had in time. Only the first in line looks at the store."""
    deadline, pause = current_time() + rule.wait, _FIRST_PAUSE
    with _in_line(repository, conversation_id) as (line, waiter):
        while True:
            first = line[0] is waiter
            if first and (token := await _acquired(repository, conversation_id, owner, rule.lease)) is not None:
                return token
            left = deadline - current_time()
            if left <= 0:
                return None
            await waiter.sleep(min(left, uniform(pause / 2, pause)) if first else left)
            pause = min(pause * 1.5, _LONGEST_PAUSE) if first else pause


@contextmanager
def _in_line(repository: ChatMemoryRepository, conversation_id: str) -> Iterator[tuple[deque[_Waiter], _Waiter]]:
    lines = _LINES.get({})
    _LINES.set(lines)
    place = id(repository), conversation_id
    line, waiter = lines.setdefault(place, deque()), _Waiter()
    line.append(waiter)
    try:
        yield line, waiter
    finally:
        line.remove(waiter)
        if line:
            line[0].wake()
        else:
            del lines[place]


def _wake_next(repository: ChatMemoryRepository, conversation_id: str) -> None:
    """Let who waits in this event loop look at once; those of others look by themselves."""
    if line := _LINES.get({}).get((id(repository), conversation_id)):
        line[0].wake()
