"""For tests: a scripted model, recorders, a receiver of spans, and the laws that advisors, models and repositories keep."""

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
