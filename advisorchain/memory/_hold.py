"""Leases on conversations, as the rules of `advisorchain.memory.concurrency` have them: taken, lost and given back."""

from __future__ import annotations

from typing import Final, Literal
from uuid import uuid4

from anyio import move_on_after

from advisorchain._telemetry.log import log_event
from advisorchain.errors import ChatMemoryError, ConversationBusyError, InvalidInputError
from advisorchain.exchange import MAX_ID_LENGTH
from advisorchain.memory._waiting import Place, Run, wait_in_line, wake_next
from advisorchain.memory.concurrency import Append, ConcurrencyRule, Fork, Reject, Serialize
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.memory.turns import Late

__all__ = ["Hold", "take_hold"]

_GIVE_BACK_SECONDS: Final = 5.0  # a store that hangs must not hold a cancelled task for ever
_DOUBT_SECONDS: Final = 1.0  # of a lease that was taken only to be given back


class Hold:
    """What a turn has of its conversation while it is under way: its lease, and what to do when that is lost.

    Attributes:
        token: the lease's fencing token; None: another turn has the lease, or this one has given it back.
        late: what becomes of a turn whose lease was taken over.
        branch: the id of the branch that the turn goes to; None: to none.
    """

    __slots__ = (
        "_conversation_id", "_name", "_owner", "_repository", "_rule", "_run", "_seconds", "branch", "late", "token",
    )  # fmt: skip

    def __init__(
        self,
        repository: ChatMemoryRepository,
        conversation_id: str,
        owner: str,
        rule: Serialize | Reject | Fork,
        token: int | None,
        run: Run | None,
    ) -> None:
        self._repository = repository
        self._conversation_id = conversation_id
        self._owner = owner
        self._rule = type(rule).__name__
        self._seconds = rule.lease
        self._name = rule.name if isinstance(rule, Fork) else None
        self._run = run
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

    def give_up(self) -> None:
        """The lease was taken over; what becomes of the turn now is `late`."""
        self.token = None
        if self.late == "append":
            log_event("warning", "advisorchain.memory.late_turn", conversation_id=self._conversation_id)

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
        wake_next(_place(self._repository, self._conversation_id), self._run)

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

    async def look() -> int | None:
        return await _acquired(repository, conversation_id, owner, rule.lease)

    if isinstance(rule, Serialize):
        token, run = await wait_in_line(_place(repository, conversation_id), look, rule.wait)
    else:
        token, run = await look(), None
    if token is None and not isinstance(rule, Fork):
        raise ConversationBusyError(_busy(rule))
    hold = Hold(repository, conversation_id, owner, rule, token, run)
    if token is None:
        await hold.branch_off("busy")
    return hold


def _place(repository: ChatMemoryRepository, conversation_id: str) -> Place:
    return id(repository), conversation_id


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
