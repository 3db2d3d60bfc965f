"""Takes the README's pictures of Phoenix and MLflow anew: a turn with memory, a guard and two rounds of tools.

    npm install --prefix /tmp/playwright playwright-core && apt-get install chromium pngquant optipng
    ADVISORCHAIN_VIEWERS=.viewers python -m tests.viewers.pictures /tmp/playwright

Look at them before they are committed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from . import _scenes, _servers

IMAGES: Final = Path(__file__).parent.parent.parent / "examples" / "images"
TOOLS: Final[Mapping[str, tuple[Any, Mapping[str, str]]]] = {
    "phoenix": (_servers.phoenix, {}),
    "mlflow": (_servers.mlflow, {"x-mlflow-experiment-id": "0"}),
}


def main(playwright: str) -> None:
    """Take both."""
    _scenes.pace = 0.02
    IMAGES.mkdir(exist_ok=True)
    for tool, (server, headers) in TOOLS.items():
        with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as url:
            sent = _scenes.Sent(f"{url}/v1/traces", headers, capture_content="SPAN_ONLY")
            scene: Any = anyio.run(partial(_scenes.looped, sent, "ada"))
            sent.flush()
            sent.provider.shutdown()
            _take(playwright, tool, url, scene.trace_id)


def _take(playwright: str, tool: str, url: str, trace: str) -> None:
    file = IMAGES / f"{tool}.png"
    script = Path(__file__).with_name("pictures.mjs")
    _run("node", script, Path(playwright).absolute() / "node_modules", tool, url, trace, file)
    _run("pngquant", "--force", "--output", file, "48", file)
    _run("optipng", "-quiet", "-o5", file)
    print(file, file.stat().st_size)


def _run(*arguments: object) -> None:
    subprocess.run([str(argument) for argument in arguments], check=True, timeout=300)


if __name__ == "__main__":
    main(*sys.argv[1:])
