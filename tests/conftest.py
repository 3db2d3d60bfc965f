"""Every async test runs on asyncio and on trio."""

import gc
import signal
import ssl
from collections.abc import Iterator

import hypothesis  # before anything is frozen: trio's plugin for it asks the collector for referrers
import pytest

hypothesis.settings.register_profile(
    "quick",
    max_examples=50,  # new ones each time: what one run does not find, others do
    deadline=None,  # a busy machine may stop for as long as it likes
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("quick")


def pytest_configure() -> None:
    """A shell starts what is in its background with Ctrl-C ignored, and tests that press it would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `only_on` for the other loop."""
    left_out = {item for item in items if _is_on_another_loop(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _is_on_another_loop(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("only_on")
    loop = item.callspec.params.get("anyio_backend") if isinstance(item, pytest.Function) and mark else None
    return mark is not None and loop not in (None, *mark.args)


def pytest_collection_finish() -> None:
    """Tests that collect garbage need not look through the thousands that were collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each HTTP client reads all authorities of the system, which takes 40 ms; the servers of tests speak without TLS."""
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    with pytest.MonkeyPatch.context() as environment:
        if authorities:
            path = tmp_path_factory.mktemp("tls") / "one.pem"
            path.write_text(ssl.DER_cert_to_PEM_cert(authorities[0]))
            environment.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)
