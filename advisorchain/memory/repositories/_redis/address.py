"""Where a Redis is, and how a client for it is made."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from anyio import move_on_after
from coredis import Redis, RedisCluster, Sentinel
from coredis.connection import TCPLocation, UnixDomainSocketLocation
from coredis.exceptions import RedisClusterError
from coredis.pool import ConnectionPool
from coredis.retry import NoRetryPolicy

from advisorchain.errors import ConfigurationError
from advisorchain.memory.repositories._redis.connections import (
    TidyClusterConnection,
    TidyClusterPool,
    TidySentinelPool,
    TidyTCPConnection,
    TidyUnixConnection,
)
from advisorchain.memory.repositories._url import check_url

__all__ = ["Address", "AnyClient", "Make", "address_of"]

AnyClient: TypeAlias = "Redis[bytes] | RedisCluster[bytes]"
Make: TypeAlias = Callable[[], AbstractAsyncContextManager[AnyClient]]

_PORT: Final = 6379
_SENTINEL_PORT: Final = 26_379
_CONNECTIONS: Final = 8  # of one client to one server; many calls share one, so it is for a long answer not to stop others
_SECURE: Final = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_KNOWN: Final = (
    "`redis://[user:password@]host[:port][/database]`, the same with `rediss://` for TLS, `unix://[user:password@]/path`,"
    " `redis+cluster://host:port,host:port`, `redis+sentinel://host:port,host:port/name[/database]`; `valkey` for `redis`"
)
_OPTIONS: Final = ("db", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile")


class Address(NamedTuple):
    """A server as a text without secrets, and what makes a client for it.

    `bounded`: none of the client's calls takes longer than twice the timeout.
    """

    shown: str
    make: Make
    bounded: bool


class _Parts(NamedTuple):
    mode: str
    hosts: list[TCPLocation]
    socket: str  # where there are no hosts
    path: list[str]
    options: dict[str, Any]  # of every client
    shown: str

    def __repr__(self) -> str:
        return f"<{self.shown}>"


def address_of(url: str, timeout: float) -> Address:
    """The server that a URL names.

    Raises:
        ConfigurationError: it names none; nothing of the URL but its scheme is shown.
    """
    parts = _parsed(url)
    bounds = {"connect_timeout": timeout, "timeout": timeout, "stream_timeout": timeout, "max_connections": _CONNECTIONS}
    options = {**parts.options, **bounds}
    makers = {"": _one, "unix": _one, "cluster": _cluster, "sentinel": _by_sentinel}
    return Address(parts.shown, lambda: makers[parts.mode](parts, options), parts.mode != "cluster")


def _parsed(url: str) -> _Parts:
    check_url(url)
    try:
        split = urlsplit(url)
        kind, _, mode = split.scheme.partition("+")
        login, _, rest = split.netloc.rpartition("@")
        user, _, password = login.partition(":")
        asked = dict(parse_qsl(split.query, keep_blank_values=True))
        mode = "unix" if kind == "unix" and not mode else mode
        socket = unquote(split.path) if mode == "unix" else ""
        hosts = [] if socket else _hosts(rest, _SENTINEL_PORT if mode == "sentinel" else _PORT)
        path = [] if socket else [unquote(part) for part in split.path.split("/") if part]
    except ValueError:
        raise ConfigurationError(f"`url` cannot be read; known are {_KNOWN}") from None
    unknown = sorted(set(asked) - set(_OPTIONS))
    if unknown or mode not in ("", "unix", "cluster", "sentinel") or (kind not in _SECURE and mode != "unix"):
        what = f"the option `{unknown[0]}`" if unknown else f"the scheme `{split.scheme}`"
        raise ConfigurationError(f"`url` has {what}, which this store does not know; known are {_KNOWN}")
    if not _SECURE.get(kind) and (lost := sorted(name for name in asked if name.startswith("ssl_"))):
        raise ConfigurationError(
            f"`url` has the option `{lost[0]}`, and would be spoken to without TLS; begin it with `rediss` or `valkeys`, or"
            " leave the option out"
        )
    names = {"username": unquote(user) or None, "password": unquote(password) or None}
    places = [str(place.host) if ":" not in place.host else f"[{place.host}]" for place in hosts]
    ports = [f"{name}:{place.port}" for name, place in zip(places, hosts, strict=True)]
    shown = f"{split.scheme}://{','.join(ports)}{socket}"
    shown += "".join(f"/{part}" for part in path)
    database = _database(mode, path, asked)
    tls = {"ssl_context": _tls(asked)} if _SECURE.get(kind) else {}
    return _Parts(mode, hosts, socket, path, {**names, **tls, **({"db": database} if database else {})}, shown)


def _hosts(text: str, port: int) -> list[TCPLocation]:
    hosts = []
    for one in text.split(","):
        place = urlsplit(f"//{one}")
        if not place.hostname:
            raise ValueError("no host")
        hosts.append(TCPLocation(place.hostname, place.port or port))
    return hosts


def _database(mode: str, path: list[str], asked: dict[str, str]) -> int:
    most = {"": 1, "unix": 0, "cluster": 0, "sentinel": 2}[mode]
    if len(path) > most or (mode == "sentinel" and not path):
        raise ConfigurationError(f"`url` has a path that does not fit; known are {_KNOWN}")
    found = path[-1] if len(path) == most and most else asked.get("db", "0")
    if not (found.isascii() and found.isdigit()):
        raise ConfigurationError(f"`url` names a database that is no number; known are {_KNOWN}")
    if mode == "cluster" and int(found):
        raise ConfigurationError("`url` names a database; a cluster has only database 0")
    return int(found)


def _tls(asked: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=asked.get("ssl_ca_certs"))
        if "ssl_certfile" in asked:
            context.load_cert_chain(asked["ssl_certfile"], asked.get("ssl_keyfile"))
    except OSError as error:
        raise ConfigurationError(f"`url` names a certificate that cannot be read ({error.strerror})") from None
    if asked.get("ssl_cert_reqs", "required") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _one(parts: _Parts, options: dict[str, Any]) -> AbstractAsyncContextManager[AnyClient]:
    kind: Any = TidyTCPConnection if parts.hosts else TidyUnixConnection
    place: Any = parts.hosts[0] if parts.hosts else UnixDomainSocketLocation(parts.socket)
    client: AnyClient = Redis(
        connection_pool=ConnectionPool(connection_class=kind, location=place, **options), retry_policy=NoRetryPolicy()
    )
    return client


@asynccontextmanager
async def _cluster(parts: _Parts, options: dict[str, Any]) -> AsyncIterator[AnyClient]:
    pool = TidyClusterPool(
        startup_nodes=await _reachable(parts.hosts, options["connect_timeout"]),
        connection_class=TidyClusterConnection,
        skip_full_coverage_check=True,  # which would read the server's configuration
        max_connections_per_node=True,
        **options,
    )
    async with RedisCluster(connection_pool=pool, retry_policy=NoRetryPolicy()) as client:
        yield client


async def _reachable(hosts: list[TCPLocation], timeout: float) -> list[TCPLocation]:
    """Those nodes that can be connected to, where there are any."""
    found = []
    for host in hosts:
        with move_on_after(timeout / len(hosts)):
            if await host.check():
                found.append(host)
    if not found:
        raise RedisClusterError("no node of the cluster can be reached")
    return found


@asynccontextmanager
async def _by_sentinel(parts: _Parts, options: dict[str, Any]) -> AsyncIterator[AnyClient]:
    bounds = {name: options[name] for name in ("connect_timeout", "stream_timeout")}
    sentinel = Sentinel(parts.hosts, sentinel_kwargs={**bounds, "pool_timeout": options["timeout"]}, **options)
    for watching in sentinel.sentinels:
        watching.connection_pool.connection_class = TidyTCPConnection
    async with sentinel, sentinel.primary_for(parts.path[0], connection_pool_class=TidySentinelPool) as client:
        yield client
