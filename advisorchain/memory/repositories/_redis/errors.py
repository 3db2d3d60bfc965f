"""What the errors of Redis and of its client mean, said without anything that a message or a password could stand in."""

from __future__ import annotations

from typing import Final

from coredis import exceptions as redis

from advisorchain.errors import StorageError

__all__ = ["LOST", "explained"]

# Before the server did anything, or with its answer lost: a script that is asked again does its work once.
LOST: Final = (redis.ConnectionError, redis.ClusterDownError, redis.ReadOnlyError, redis.StalePrimaryError)

_OLD: Final = "is too old: this store needs Redis 7, Valkey 7 or later"
_KINDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    (redis.BusyLoadingError, "is still loading its data; try again in a moment"),
    (redis.AuthenticationError, "refused the login; check the user and the password"),
    (
        redis.AuthorizationError,
        "does not let this user run its scripts, or use its keys; grant `+@all -@admin -@dangerous` on `~PREFIX:*`",
    ),
    (redis.ReadOnlyError, "is a replica, which takes no writes; give the address of the primary, or of sentinels"),
    (
        (redis.PrimaryNotFoundError, redis.StalePrimaryError),
        "have no primary of that name; check it, or wait for the failover",
    ),
    (redis.ClusterDownError, "is a cluster that is down or in the middle of a failover; try again in a moment"),
    ((redis.MovedError, redis.AskError), "is a node of a cluster; give its URL with `redis+cluster://`"),
    (redis.WrongTypeError, "has keys of another program under this `prefix`; give another one"),
    ((redis.UnknownCommandError, redis.CommandNotSupportedError), _OLD),
    (
        redis.RedisClusterError,
        "is a cluster that cannot be reached, or has slots without a node",
    ),
    ((redis.ConnectionError, OSError), "cannot be reached, or the connection was lost"),
)
_CODES: Final = {
    "DB": "has no database of the number that its address ends with; give one from 0 on, below the server's `databases` (16,"
    " if nobody changed it)",
    "OOM": "has no memory left (`maxmemory`); nothing was stored. Make room, or give it more",
    "MISCONF": "cannot write its snapshots to disk, so it refuses writes; nothing was stored. See the server's log",
    "NOREPLICAS": "has fewer replicas than `min-replicas-to-write`, so it refuses writes; nothing was stored",
    "MASTERDOWN": "is a replica without its primary; give the address of the primary, or of sentinels",
    "BUSY": "is busy with another program's script; try again in a moment",
    "NOSCRIPT": "forgets scripts at once; nothing was stored",
    "CROSSSLOT": "is a node of a cluster; give its URL with `redis+cluster://`",
}
_UNKNOWN: Final = "; a turn may be stored or not, and repeating it with its turn id is harmless"


def explained(server: str, error: Exception, timeout: float, *, reads: bool) -> StorageError:
    """A StorageError that names the server and says what to do.

    Args:
        server: its address without a password.
        error: what the client raised; its text is not repeated, since it may quote the command.
        timeout: seconds that were waited at most.
        reads: nothing was to be written.
    """
    unknown = _UNKNOWN if isinstance(error, OSError | redis.ConnectionError) and not reads else ""
    return StorageError(f"Redis at `{server}` {_advice(server, error, timeout)}{unknown} ({_name(error)})")


def _advice(server: str, error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {timeout:g} seconds (`timeout`)"
    for kinds, text in _KINDS:
        if isinstance(error, kinds):
            return f"is no sentinel, or {text}" if text is _OLD and "+sentinel://" in server else text
    return _CODES.get(_code(error), "refused a command; a write has its whole effect or none")


def _code(error: Exception) -> str:
    """The word in capitals that an error of the server begins with."""
    word = str(error).partition(" ")[0]
    return word if word.isascii() and word.isalpha() and word.isupper() else ""


def _name(error: Exception) -> str:
    return " ".join(filter(None, (type(error).__name__, _code(error) if isinstance(error, redis.ResponseError) else "")))
