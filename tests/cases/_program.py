"""Runs one case: its steps in order, each held against what is expected of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from ._expecting import Result, check_error, expected_error
from ._reading import Fields, UnknownInCaseError
from ._stores import Store

Operation = Callable[[Fields], Awaitable[Any]]
_IGNORED = ("id", "area", "title", "note", "source", "severity", "needs")  # told to a reader, not to be run
_OWN = ("expect", "expect_count", "expect_set", "capture")  # of a step, beside what its operation takes


class Program:
    """What the four kinds of cases have in common. A subclass knows its operations and what can be expected.

    Args:
        store: where conversations are kept.
    """

    operations: ClassVar[tuple[str, ...]] = ()

    def __init__(self, store: Store) -> None:
        self.store = store
        self.captured: dict[str, Any] = {}

    async def run(self, case: Mapping[str, Any]) -> None:
        """Run it; AssertionError when it does not hold.

        Raises:
            UnknownInCaseError: the runner does not know an operation or a key.
        """
        with Fields(case, str(case.get("id"))) as fields:
            for key in _IGNORED:
                fields.take(key, None)
            given, do, expect = fields.take("given", None) or {}, fields.take("do"), fields.take("expect", None)
        with Fields(given, "`given`") as settings:
            await self.set_up(settings)
        await self._run_steps(do if isinstance(do, list) else [do], dict(expect or {}))

    async def set_up(self, given: Fields) -> None:
        """Take what the case gives."""

    async def check(self, result: Result, expect: Fields) -> None:
        """Hold what came of a step against an expectation; take the keys that are known."""

    async def _run_steps(self, steps: list[Any], expect: dict[str, Any]) -> None:
        each, listed = expect.pop("each_step", None), expect.pop("steps", None)
        assert listed is None or len(listed) == len(steps), "`steps` expects something of each step"
        result = Result()
        for place, step in enumerate(steps):
            wanted = [each, listed[place] if listed else None]
            if place == len(steps) - 1:
                wanted.append({"error": expect["error"]} if "error" in expect else None)
            result = await self._run_step(step, wanted)
        await self._hold(result, expect)

    async def _run_step(self, step: Any, wanted: list[Any]) -> Result:
        fields = Fields(step, f"step `{step.get('op') if isinstance(step, Mapping) else step}`")
        own = {key: fields.take(key) for key in _OWN if key in fields}
        wanted = [*wanted, own.get("expect")]
        if "expect_count" in own:
            wanted.append({"count": own["expect_count"]})
        if "expect_set" in own:
            wanted.append({"set": own["expect_set"]})
        result = await self._attempt(fields)
        if result.error is not None and not any(expected_error(one) for one in wanted):
            raise result.error
        for one in wanted:
            await self._hold(result, one)
        if "capture" in own:
            self.captured[own["capture"]] = result.value
        return result

    async def _attempt(self, step: Fields) -> Result:
        name = step.take("op")
        if name not in (*self.operations, "repeat", "for_each_id", "wait"):
            raise UnknownInCaseError(f"unknown `op`: {name}")
        operation: Operation = getattr(self, f"do_{name}")
        try:
            result = Result(await operation(step))
        except UnknownInCaseError:
            raise
        except Exception as error:
            result = Result(error=error)
        step.end()  # an operation takes its keys before it does anything that may fail
        return result

    async def _hold(self, result: Result, expect: Any) -> None:
        if expect is None or expect == "ok":
            return
        if isinstance(expect, list):
            expect = {"messages": expect}
        with Fields(expect, "`expect`") as fields:
            if "error" in fields:
                check_error(fields.take("error"), result)
            await self.check(result, fields)

    # -- operations of every kind

    async def do_repeat(self, step: Fields) -> Any:
        result, steps = Result(), step.take("steps")
        for _ in range(step.take("times")):
            for one in steps:
                result = await self._run_step(one, [])
        return result.value

    async def do_for_each_id(self, step: Fields) -> Any:
        """The same steps with each id; gives what the last one gave, for each."""
        results, steps = [], step.take("steps")
        for conversation_id in step.take("ids"):
            result = Result()
            for one in steps:
                result = await self._run_step({**one, "conversation_id": conversation_id}, [])
            results.append(result.value)
        return results

    async def do_wait(self, step: Fields) -> None:
        self.store.clock.now += step.take("seconds")
