"""Whether a URL can be taken apart in one way only: otherwise a part of a password might count as a host, which is shown."""

from __future__ import annotations

import re
from typing import Final

from advisorchain.errors import ConfigurationError

__all__ = ["check_url"]

# A name, an address in brackets or an escaped path, with its port; `\` is for an instance of SQL Server.
_HOST: Final = re.compile(r"(?:\[[0-9A-Za-z:.%_-]+\]|[\w.%\\~-]*)(?::[0-9]*)?")
_ENCODE: Final = (
    "; percent-encode special characters in the user and the password: `%40` for `@`, `%2F` for `/`, `%3A` for `:`, `%3F`"
    " for `?`, `%23` for `#`, `%25` for `%` (`urllib.parse.quote(password, safe='')` does it)"
)


def check_url(url: str) -> None:
    """Refuse a URL whose login ends nobody knows where.

    Raises:
        ConfigurationError: it has a further `@`, or what would be a host or a port cannot be one. Nothing of it is shown.
    """
    rest = url.partition("://")[2]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    shown, _, fragment = rest[len(authority) :].partition("#")
    path, _, query = shown.partition("?")
    after = path + fragment
    if not path or "=" not in query.partition("&")[0]:  # no options: what follows a `?` in a login
        after += query
    if authority.count("@") > 1 or (authority and "@" in after):
        raise ConfigurationError(f"`url` has an `@` too many{_ENCODE}")
    if not all(_HOST.fullmatch(host) for host in authority.rpartition("@")[2].split(",")):
        raise ConfigurationError(f"`url` has a host or a port that cannot be one{_ENCODE}")
