"""Run by MLflow's own Python: what its client reads of an experiment, as JSON. `_read_mlflow.py URL ID [SESSION]`

Of one session the traces alone, or else all traces and what queries find.
"""

import json
import sys
from typing import Any

from mlflow import MlflowClient


def main(url: str, experiment: str, session: str | None = None) -> None:
    client = MlflowClient(url)

    def found(condition: str) -> list[str]:
        traces = client.search_traces(locations=[experiment], filter_string=condition, include_spans=False, max_results=500)
        return sorted(trace.info.trace_id.removeprefix("tr-") for trace in traces)

    remembering = "span.name LIKE 'advisor memory'"
    traces = found(remembering if session is None else f"metadata.`mlflow.trace.session` = '{session}'")
    told: dict[str, Any] = {"traces": {trace: as_data(client.get_trace(f"tr-{trace}")) for trace in traces}}
    if session is None:
        told["cancelled"] = found("span.attributes.advisorchain.outcome LIKE '%cancelled%'")
    print(json.dumps(told, default=str))


def as_data(trace: Any) -> dict[str, Any]:
    return {
        "state": trace.info.state.value,
        "metadata": trace.info.trace_metadata,
        "request": trace.info.request_preview,
        "response": trace.info.response_preview,
        "spans": [
            {
                "name": span.name,
                "id": span.span_id,
                "parent": span.parent_id,
                "type": span.span_type,
                "status": span.status.status_code.value,
                "start": span.start_time_ns,
                "end": span.end_time_ns,
                "attributes": span.attributes,
            }
            for span in trace.data.spans
        ],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
