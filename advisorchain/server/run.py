"""A server of its own, by uvicorn: until the process is told to stop, and then until the answers under way have ended."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from anyio import create_task_group, move_on_after, sleep

from advisorchain._checked import checked_seconds
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.server._gate import is_loopback
from advisorchain.server._turns import Turns
from advisorchain.server.app import CLOSING_SECONDS, MAX_BODY, MAX_STREAMS, Answering, create_app

__all__ = ["serve"]

_STOPS: Final = (signal.SIGINT, signal.SIGTERM)
_TICK_SECONDS: Final = 0.1  # as uvicorn itself looks whether it shall end
_BACKLOG: Final = 2048  # as uvicorn's own


async def serve(
    chain: Answering,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    model_name: str | None = None,
    max_body: int = MAX_BODY,
    max_streams: int = MAX_STREAMS,
    allow_origins: Sequence[str] = (),
    grace: float = 30.0,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a chain until SIGTERM or Ctrl-C. On asyncio, in the main thread.

    Then no more connections are taken, and the answers under way have `grace` seconds to end; what is left is interrupted,
    as by readers who leave, so that what these have seen is kept. A second signal interrupts at once. What the chain's parts
    own is opened before and closed after.

    Args:
        chain: see `create_app`, also for the arguments that it shares.
        host: where to listen. Without a key only on loopback.
        port: 0: any free one.
        api_key: see `create_app`.
        model_name: see `create_app`.
        max_body: see `create_app`.
        max_streams: see `create_app`.
        allow_origins: see `create_app`.
        grace: seconds.
        on_ready: called with the server's URL once it takes connections.

    Raises:
        ConfigurationError: an argument that cannot work, or an address that cannot be had.
    """
    _check(host, port, grace)
    if api_key is None and not is_loopback(host):
        raise ConfigurationError(f"`host` is `{host}`, which others can reach; give `api_key`, or listen on 127.0.0.1")
    app = create_app(
        chain,
        api_key=api_key,
        model_name=model_name,
        max_body=max_body,
        max_streams=max_streams,
        allow_origins=allow_origins,
    )
    config = uvicorn.Config(
        app,
        lifespan="off",  # it is entered here, so that its errors are the caller's
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(grace) + CLOSING_SECONDS,
    )
    with _listening(host, port) as listener:
        async with app.router.lifespan_context(app):
            if on_ready is not None:
                on_ready(_url(listener))
            await _Server(config, app.state.turns, grace).serve([listener])


class _Server(uvicorn.Server):
    """Ends as `serve` says. uvicorn's own way ends the process before what we opened is closed."""

    def __init__(self, config: uvicorn.Config, turns: Turns, grace: float) -> None:
        super().__init__(config)
        self._turns = turns
        self._grace = grace
        self._told_again = False
        self._former: dict[int, Any] = {}

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Within, signals end the server and nothing else."""
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self.handle_exit) for number in _STOPS}
        try:
            yield
        finally:
            self._restore_signals()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End, at once when it is told again; a third signal ends the process."""
        if self.should_exit:
            self._told_again = True
            self._restore_signals()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the answers under way, but not for longer than `grace`."""
        async with create_task_group() as group:
            group.start_soon(self._interrupt_late)
            await super().shutdown(sockets)
            group.cancel_scope.cancel()

    async def _interrupt_late(self) -> None:
        with move_on_after(self._grace):
            while not self._told_again:  # noqa: ASYNC110  a signal handler may set no event
                await sleep(_TICK_SECONDS)
        self._turns.cancel()

    def _restore_signals(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}


def _check(host: object, port: object, grace: object) -> None:
    if not isinstance(host, str):
        raise ConfigurationError(f"`host` is {kind_of(host)}; give a name or an address")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise ConfigurationError(f"`port` is {port!r}; give a number from 0 (any free one) to 65535")
    checked_seconds("grace", grace, zero=True)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"`{host}:{port}` cannot be listened on: {reason}; give another `host` or `port`") from None


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
