"""`@tool` on all that can be called, and how a tool runs."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from time import monotonic
from typing import Any

import anyio
import pytest
from anyio import from_thread, to_thread

from advisorchain.errors import AdvisorContractError, ConfigurationError, ToolArgumentsError
from advisorchain.options import ToolDefinition
from advisorchain.tools import FunctionTool, Tool, ToolContext, ToolResult, as_tool, checked_tools, tool

CONTEXT = ToolContext(tool_name="t", call_id="k1")
who: ContextVar[str] = ContextVar("who", default="nobody")


class Shop:
    """A shop."""

    def __init__(self, stock: str) -> None:
        self.stock = stock

    @tool
    def search(self, text: str) -> str:
        """Search the shop."""
        return f"{self.stock} {text}"

    @tool(name="order", timeout=3)
    async def buy(self: Shop, text: str) -> str:
        return f"bought {self.stock} {text}"

    @tool
    @classmethod
    def open(cls, day: str) -> str:
        return f"{cls.__name__} {day}"

    @tool
    @staticmethod
    def greet(name: str) -> str:
        return f"hello {name}"

    @staticmethod
    @tool
    def leave(name: str) -> str:
        return f"bye {name}"

    def plain(self, text: str) -> str:
        return f"plain {self.stock} {text}"

    async def __call__(self, text: str) -> str:
        """Call the shop."""
        return f"called {self.stock} {text}"


async def test_a_tool_is_made_of_a_plain_and_of_an_async_function() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    @tool(name="later", description="Add, later.")
    async def add_later(a: int) -> int:
        return a + 1

    assert await add.run('{"a": 2}', CONTEXT) == ToolResult("3", 3)
    assert await add_later.run('{"a": 2}', CONTEXT) == ToolResult("3", 3)
    assert (add.name, add.definition.description) == ("add", "Add.")
    assert (add_later.name, add_later.definition.description) == ("later", "Add, later.")
    assert (add.sequential, add.timeout, add.return_direct, add.needs_approval) == (False, None, False, False)


async def test_the_decorated_function_is_called_as_before() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    @tool
    async def later(a: int) -> int:
        return a

    assert add(2) == 3
    assert add(a=2, b=5) == 7
    assert await later(4) == 4
    assert (add.__name__, add.__doc__, list(inspect.signature(add).parameters)) == ("add", "Add.", ["a", "b"])


@pytest.mark.parametrize("name", ["search", "buy", "open", "greet", "leave"])
async def test_methods_are_used_through_an_object(name: str) -> None:
    shop, other = Shop("tea"), Shop("ale")
    argument = {"search": "text", "buy": "text", "open": "day", "greet": "name", "leave": "name"}[name]
    expected = {
        "search": "tea x",
        "buy": "bought tea x",
        "open": "Shop x",
        "greet": "hello x",
        "leave": "bye x",
    }[name]
    made = getattr(shop, name)
    assert list(made.definition.parameters["properties"]) == [argument]
    assert (await as_tool(made).run(f'{{"{argument}": "x"}}', CONTEXT)).content == expected
    called = made("x")
    assert (await called if inspect.isawaitable(called) else called) == expected
    assert (await getattr(other, name).run(f'{{"{argument}": "x"}}', CONTEXT)).content == expected.replace("tea", "ale")


def test_settings_go_with_the_bound_tool() -> None:
    bound = Shop("tea").buy
    assert (bound.name, bound.timeout) == ("order", 3)
    assert Shop("tea").search.definition.description == "Search the shop."


async def test_a_method_without_its_object_is_refused() -> None:
    for use in (as_tool, lambda unbound: checked_tools([unbound])):
        with pytest.raises(ConfigurationError, match="tool `search` is a method; use it through an object"):
            use(Shop.search)
    with pytest.raises(ConfigurationError, match="is a method"):
        await Shop.search.run('{"text": "x"}', CONTEXT)
    assert Shop.search(Shop("tea"), "x") == "tea x"
    assert as_tool(Shop.open).name == "open"


async def test_bound_methods_partials_and_objects_that_can_be_called() -> None:
    shop = Shop("tea")
    made = checked_tools([shop.plain, functools.partial(shop.buy, "y"), tool(shop, name="shop")])
    assert [each.name for each in made] == ["plain", "buy", "shop"]
    arguments = ['{"text": "x"}', "", '{"text": "x"}']
    results = [await each.run(given, CONTEXT) for each, given in zip(made, arguments, strict=True)]
    assert [result.content for result in results] == ["plain tea x", "bought tea y", "called tea x"]
    assert made[2].definition.description == "Call the shop."
    assert as_tool(shop).name == "Shop"


async def test_a_wrapped_function_is_read_through_its_wrapper() -> None:
    def twice(function: Any) -> Any:
        @functools.wraps(function)
        def both(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * 2

        return both

    @tool
    @twice
    def echo(text: str, times: int = 1) -> str:
        """Echo."""
        return text * times

    @tool
    @functools.lru_cache
    def cached(n: int) -> int:
        return n

    assert list(echo.definition.parameters["properties"]) == ["text", "times"]
    assert (await echo.run('{"text": "a"}', CONTEXT)).content == "aa"
    assert (await cached.run('{"n": 3}', CONTEXT)).content == "3"


@pytest.mark.parametrize("name", ["a b", "", "größe", "x" * 65, "a.b", "<lambda>", "a\n"])
def test_a_name_that_a_provider_would_refuse_is_refused_when_the_tool_is_made(name: str) -> None:
    def f() -> None: ...

    with pytest.raises(ConfigurationError, match="that providers refuse"):
        tool(f, name=name)
    f.__name__ = name
    with pytest.raises(ConfigurationError, match="that providers refuse"):
        tool(f)
    assert tool(f, name="x" * 64).name == "x" * 64


def yields() -> Any:
    yield 1


async def yields_later() -> Any:
    yield 1


async def async_approval(arguments: Mapping[str, Any], context: ToolContext) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tool(5), "a tool is made of a function, not of an int"),
        (lambda: tool(Shop), "not of the class `Shop`"),
        (lambda: tool(tool(print_it)), "not of a FunctionTool"),
        (lambda: tool(yields), "tool `yields` yields; return a list"),
        (lambda: tool(yields_later), "tool `yields_later` yields"),
        (lambda: tool(print_it, name=5), "`name` of a tool is an int"),
        (lambda: tool(print_it, description="\ud800"), "`print_it` cannot be told to a model: .*lone surrogate"),
        (lambda: tool(print_it, timeout=0), "`timeout` of tool `print_it` is 0; give seconds, more than 0"),
        (lambda: tool(print_it, timeout=True), "`timeout` of tool `print_it`"),
        (lambda: tool(print_it, timeout=float("nan")), "`timeout` of tool `print_it`"),
        (lambda: tool(print_it, needs_approval="yes"), "`needs_approval` of tool `print_it`"),
        (lambda: tool(print_it, needs_approval=async_approval), "`needs_approval` of tool `print_it`"),
        (lambda: checked_tools("print"), "`tools` is a str; give a list"),
        (lambda: checked_tools(5), "`tools` is an int; give a list"),
        (lambda: checked_tools([print_it, tool(print_it)]), "two tools have the name `print_it`"),
        (lambda: checked_tools([5]), "a tool is made of a function"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


def print_it(text: str) -> str:
    return text


def test_checked_tools_are_tools_in_their_order() -> None:
    mine = tool(print_it, name="mine")
    first, second = checked_tools(iter([print_it, mine]))
    assert isinstance(first, FunctionTool)
    assert first.name == "print_it"
    assert second is mine
    assert checked_tools([]) == ()


def test_tools_of_another_kind_subclass_tool() -> None:
    class Remote(Tool):
        def values(self, arguments: str) -> Mapping[str, Any]:
            return {}

        async def run(self, arguments: str, context: ToolContext) -> ToolResult:
            return ToolResult("far away")

    remote = Remote(ToolDefinition("remote"), needs_approval=True)
    assert as_tool(remote) is remote
    assert remote.asks_approval("{}", CONTEXT) is True
    assert repr(remote) == "<Remote remote>"
    with pytest.raises(ConfigurationError, match="that providers refuse"):
        Remote(ToolDefinition("a b"))


def test_approval_may_depend_on_arguments_and_context() -> None:
    @tool(needs_approval=lambda arguments, context: arguments["amount"] > 100 and "admin" not in context.context)
    def pay(amount: int, to: str = "me") -> None: ...

    assert pay.asks_approval('{"amount": "150"}', CONTEXT) is True
    assert pay.asks_approval('{"amount": 5}', CONTEXT) is False
    assert pay.asks_approval('{"amount": 150}', ToolContext(tool_name="pay", context={"admin": 1})) is False
    with pytest.raises(ToolArgumentsError, match="`amount`"):
        pay.asks_approval('{"amount": "many"}', CONTEXT)


def test_nobody_is_asked_to_approve_arguments_that_do_not_fit() -> None:
    always = tool(print_it, needs_approval=True)
    assert always.asks_approval('{"text": "x"}', CONTEXT) is True
    with pytest.raises(ToolArgumentsError, match="`text`: Field required"):
        always.asks_approval("{}", CONTEXT)
    assert tool(print_it).asks_approval("{}", CONTEXT) is False


def test_an_approval_that_is_no_bool_is_an_error() -> None:
    odd = tool(print_it, needs_approval=lambda arguments, context: "yes")
    with pytest.raises(AdvisorContractError, match="`needs_approval` of tool `print_it` returned a str"):
        odd.asks_approval('{"text": "x"}', CONTEXT)


async def test_tool_042_the_context_reaches_a_tool_that_asks_for_it() -> None:
    seen: list[Any] = []

    @tool
    def plain(text: str = "") -> None:
        seen.append(text)

    @tool
    async def with_context(context: ToolContext) -> None:
        seen.append((context.context["key"], context.conversation_id, context.call_id, context.tool_name, context.round))

    given = ToolContext(tool_name="with_context", call_id="k2", conversation_id="c1", context={"key": "value"}, round=2)
    await plain.run("{}", given)
    await with_context.run("{}", given)
    assert seen == ["", ("value", "c1", "k2", "with_context", 2)]


def test_a_context_shows_nothing_of_what_it_holds() -> None:
    context = ToolContext(tool_name="pay", conversation_id="hush", context={"key": "hush"})
    assert repr(context) == str(context) == "<ToolContext of pay>"


async def test_a_running_tool_adds_tools_through_its_context() -> None:
    added: list[Any] = []

    @tool
    def find(context: ToolContext) -> str:
        context.add_tools(print_it)
        context.add_tools(print_it, Shop("tea").search)
        return "found"

    await find.run("{}", ToolContext(tool_name="find", adding=added.append))
    assert [len(each) for each in added] == [1, 2]
    with pytest.raises(ConfigurationError, match="tool `find` runs outside a tool loop"):
        await find.run("{}", ToolContext(tool_name="find"))


async def test_a_tools_own_exception_passes_as_it_is() -> None:
    error = KeyError("no luck")

    @tool
    def fails() -> None:
        raise error

    @tool
    async def fails_later() -> None:
        raise error

    for made in (fails, fails_later):
        with pytest.raises(KeyError) as caught:
            await made.run("{}", CONTEXT)
        assert caught.value is error


async def test_a_coroutine_that_a_plain_function_returns_is_an_error() -> None:
    async def later() -> None: ...

    @tool
    def sooner() -> Any:
        return later()

    with pytest.raises(AdvisorContractError, match="tool `sooner` returned a coroutine"):
        await sooner.run("{}", CONTEXT)


async def test_plain_functions_run_in_worker_threads_and_async_ones_in_the_task() -> None:
    @tool
    def plain() -> bool:
        return threading.current_thread() is threading.main_thread()

    @tool
    async def later() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await plain.run("{}", CONTEXT)).structured is False
    assert (await later.run("{}", CONTEXT)).structured is True


async def test_B093_tools_in_threads_have_the_callers_context_each_its_own_copy() -> None:
    together = threading.Barrier(3, timeout=10)
    seen: dict[str, tuple[str, str]] = {}

    @tool
    def work(name: str) -> None:
        before = who.get()
        who.set(name)
        together.wait()
        seen[name] = (before, who.get())

    who.set("caller")
    async with anyio.create_task_group() as group:
        for name in ("a", "b", "c"):
            group.start_soon(work.run, f'{{"name": "{name}"}}', CONTEXT)
    assert seen == {name: ("caller", name) for name in ("a", "b", "c")}
    assert who.get() == "caller"


async def test_tools_that_hang_keep_nobody_elses_threads_waiting() -> None:
    go = threading.Event()
    others = to_thread.current_default_thread_limiter()

    @tool
    def hang() -> None:
        go.wait(10)

    async with anyio.create_task_group() as group:
        try:
            for _ in range(45):
                group.start_soon(hang.run, "{}", CONTEXT)
            with anyio.fail_after(10):
                assert await to_thread.run_sync(lambda: "free") == "free"
            assert others.borrowed_tokens == 0
        finally:
            go.set()


async def test_cancelling_waits_for_a_thread_that_has_no_timeout_and_it_can_see_it() -> None:
    started = threading.Event()
    ended: list[str] = []

    @tool
    def work() -> None:
        started.set()
        until = monotonic() + 10
        try:
            while monotonic() < until:
                from_thread.check_cancelled()
        except BaseException:
            ended.append("work")
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(work.run, "{}", CONTEXT)
        await to_thread.run_sync(started.wait, 10)
        group.cancel_scope.cancel()
    assert ended == ["work"]


@pytest.mark.parametrize("timeout", [1, None], ids=["of its own", "around it"])
async def test_a_thread_with_a_timeout_is_left_to_itself(timeout: float | None) -> None:
    started, go = threading.Event(), threading.Event()
    ended: list[str] = []

    @tool(timeout=timeout)
    def work() -> None:
        started.set()
        go.wait(10)
        ended.append("work")

    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(work.run, "{}", CONTEXT)
                await to_thread.run_sync(started.wait, 10)
                group.cancel_scope.cancel()
        assert ended == []
    finally:
        go.set()


def test_without_its_package_the_error_spells_the_pip_command() -> None:
    code = "import sys; sys.modules['docstring_parser'] = None; import advisorchain; import advisorchain.tools"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'MissingExtraError: tools need docstring-parser: pip install "advisorchain[tools]"' in ran.stderr


async def test_a_cancelled_async_tool_has_ended() -> None:
    started = anyio.Event()
    ended: list[str] = []

    @tool
    async def work() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("work")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(work.run, "{}", CONTEXT)
            await started.wait()
            group.cancel_scope.cancel()
    assert ended == ["work"]
