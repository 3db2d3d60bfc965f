"""Run by Phoenix's own Python: what its client reads of a project, as JSON. `_read_phoenix.py URL PROJECT SPANS`"""

import importlib.util
import json
import sys
import time
import types
from typing import Any


def client_alone() -> None:
    """Let `phoenix.client` be imported without the server, which `import phoenix` loads in 13 s of processor time."""
    found = importlib.util.find_spec("phoenix")
    assert found is not None
    package = types.ModuleType("phoenix")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["phoenix"] = package


def read(url: str, project: str) -> dict[str, Any]:
    from phoenix.client import Client
    from phoenix.client.types.spans import SpanQuery

    client = Client(base_url=url)

    def found(condition: str) -> list[str]:
        query = SpanQuery().where(condition).select("name")
        return sorted(client.spans.get_spans_dataframe(query=query, project_identifier=project).index)

    return {
        "spans": client.spans.get_spans(project_identifier=project, limit=1000, timeout=60),
        "guards": found("advisorchain.advisor.order < 0 and advisorchain.advisor.index == 1"),
        "slow": found("advisorchain.advisor.self_duration > 3600"),
        "cancelled": found("advisorchain.outcome == 'cancelled' and parent_id is None"),
        "sessions": client.sessions.list(project_name=project, timeout=60),
    }


def main(url: str, project: str, spans: str) -> None:
    client_alone()
    for _ in range(120):  # it takes spans before it stores them
        told = read(url, project)
        if len(told["spans"]) >= int(spans):
            break
        time.sleep(0.5)
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
