"""For tests: a scripted model, recorders, a receiver of spans, and the laws that advisors, models and repositories keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from advisorchain._lazy import lazy

if TYPE_CHECKING:
    from advisorchain.testing.advisor_laws import check_advisor
    from advisorchain.testing.model_laws import check_model
    from advisorchain.testing.models import Pause, ScriptedModel, check_prompt
    from advisorchain.testing.otlp import OtlpReceiver
    from advisorchain.testing.recorders import RecordingAdvisor, Seen, labels
    from advisorchain.testing.repository_laws import check_repository
    from advisorchain.testing.traces import assert_trace

__all__ = [
    "OtlpReceiver",
    "Pause",
    "RecordingAdvisor",
    "ScriptedModel",
    "Seen",
    "assert_trace",
    "check_advisor",
    "check_model",
    "check_prompt",
    "check_repository",
    "labels",
]

_MODULES: Final = {
    "OtlpReceiver": "otlp",
    "Pause": "models",
    "RecordingAdvisor": "recorders",
    "ScriptedModel": "models",
    "Seen": "recorders",
    "assert_trace": "traces",
    "check_advisor": "advisor_laws",
    "check_model": "model_laws",
    "check_prompt": "models",
    "check_repository": "repository_laws",
    "labels": "recorders",
}

if not TYPE_CHECKING:  # a type checker shall find a misspelt name
    __getattr__, __dir__ = lazy(__name__, _MODULES)
