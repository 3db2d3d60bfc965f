"""A chain behind HTTP, as any OpenAI client or chat page expects a model (extra `server`).

`create_app` gives an ASGI application, for any server or to be mounted in yours; `serve` runs one until the process is told
to stop. `advisorchain serve module:chain` is the same as a command.
"""

from advisorchain.errors import MissingExtraError

try:
    import starlette
    import uvicorn
except ImportError as error:
    raise MissingExtraError(f'a server needs `{error.name}`: pip install "advisorchain[server]"') from error

from advisorchain.server.app import Answering, create_app
from advisorchain.server.run import serve

__all__ = ["Answering", "create_app", "serve"]

del starlette, uvicorn
