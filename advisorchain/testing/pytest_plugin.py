"""A pytest plugin for stores of your own: one test for each law of a chat memory repository, on asyncio and on trio.

    pytest_plugins = ["advisorchain.testing.pytest_plugin"]


    def test_my_store(repository_law, tmp_path):
        path = tmp_path / "chat.db"
        repository_law(lambda: MyRepository(path), reopen=lambda repository: MyRepository(path))

The first line stands in this test module, or in the conftest.py of the root folder. A law whose means were not given
(`reopen`, `disconnect`; see `check_repository`) is a skipped test that says so, and so are the tests on trio where trio is
not installed; `pytest -rs` lists them. Of a store that lacks methods one law fails, on each backend, and names them all;
other laws that it does not keep are skipped until it has them. Nothing is registered in pytest itself: a run that does not
ask for this plugin does not load it.

PYTEST_DONT_REWRITE: there is no assertion here, and a test may import `LawTest`, for its types, before it names the plugin.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import anyio
import pytest

from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.testing._law_checks import LacksMethodsError
from advisorchain.testing.repository_laws import REPOSITORY_LAWS, Means, Repository, RepositoryLaw

__all__ = ["LawTest", "repository_law"]

_BACKENDS: Final = ("asyncio", "trio")


class LawTest:
    """One law on one backend, to be called with a store.

    Attributes:
        name: the law, a sentence.
        backend: "asyncio" or "trio".
    """

    def __init__(self, law: RepositoryLaw, backend: str) -> None:
        self._law = law
        self.name = law.name
        self.backend = backend

    def __call__(
        self,
        make: Callable[[], Repository],
        *,
        wait: Callable[[float], Awaitable[None]] = anyio.sleep,
        reopen: Callable[[ChatMemoryRepository], Repository] | None = None,
        disconnect: Callable[[ChatMemoryRepository], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Check the law, in an event loop of its own; the arguments are those of `check_repository`.

        `make` is called in that loop, once. The test is skipped when the law needs means that are not given, trio is not
        installed, or the store breaks the law and lacks methods.

        Raises:
            AssertionError: the law is broken; the text names it and says what was found.
        """
        __tracebackhide__ = True
        means = Means(make, wait, reopen, disconnect)
        missing = self._law.missing(means)
        if missing:
            pytest.skip(f"law `{self.name}` was not checked: it needs {' and '.join(f'`{name}=`' for name in missing)}")
        if importlib.util.find_spec(self.backend) is None:
            pytest.skip(f"law `{self.name}` was not checked on {self.backend}, which is not installed")
        try:
            anyio.run(self._law.run, means, backend=self.backend)
        except LacksMethodsError as error:
            pytest.skip(str(error))

    def __repr__(self) -> str:
        return f"<law `{self.name}` on {self.backend}>"


def _tests() -> list[Any]:
    """Law by law, so that the first failure in a file is that of the simplest law that is broken."""
    return [
        pytest.param(LawTest(law, backend), id=f"{law.name.replace(' ', '-')}-{backend}")
        for law in REPOSITORY_LAWS
        for backend in _BACKENDS
    ]


@pytest.fixture(params=_tests())
def repository_law(request: pytest.FixtureRequest) -> LawTest:
    """A law of chat memory repositories on a backend; a test that takes it becomes one test for each."""
    law: LawTest = request.param
    return law
