"""The viewers, each started once, with all scenes sent to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ._scenes import PROJECT, Scene, Sent, play
from ._servers import mlflow, phoenix, read
from ._shown import Shown, of_mlflow, of_phoenix

pytest.register_assert_rewrite(f"{__package__}._shared_tests")


@pytest.fixture(scope="session")
def phoenix_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with phoenix(tmp_path_factory.mktemp("phoenix")) as url:
        yield url


@pytest.fixture(scope="session")
def mlflow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture(scope="session")
def in_phoenix(phoenix_url: str) -> Shown:
    scenes = _played(Sent(f"{phoenix_url}/v1/traces", capture_content="SPAN_ONLY"))
    spans = sum(len(scene.spans) for scene in scenes.values())
    return of_phoenix(scenes, read("phoenix", phoenix_url, PROJECT, str(spans)))


@pytest.fixture(scope="session")
def in_mlflow(mlflow_url: str) -> Shown:
    sent = Sent(f"{mlflow_url}/v1/traces", {"x-mlflow-experiment-id": "0"}, capture_content="SPAN_ONLY")
    return of_mlflow(_played(sent), read("mlflow", mlflow_url, "0"))


def _played(sent: Sent) -> dict[tuple[str, str], Scene]:
    try:
        return play(sent)
    finally:
        sent.provider.shutdown()
