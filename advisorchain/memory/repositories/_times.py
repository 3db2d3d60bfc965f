"""Times as whole microseconds since 1970, which every store can count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def ticks(seconds: float) -> int:
    """What a clock tells, in whole microseconds."""
    return round(seconds * 1_000_000)


def microseconds(moment: datetime) -> int:
    """An aware time as whole microseconds since 1970, UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(microseconds: int) -> datetime:
    """The aware time in UTC that `microseconds` was made of."""
    return _EPOCH + timedelta(0, 0, microseconds)


def now() -> datetime:
    """The time of a new entry."""
    return datetime.now(UTC)
