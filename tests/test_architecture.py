"""The plan of the house: who may import whom, what importing loads, what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import advisorchain

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "advisorchain"

# A module imports only from lines above its own; those on one line do not import each other.
LAYERS = """
_version _lazy errors conventions _event_loops _warned _telemetry _explain _span_data _chain _client _lint
_checked
_values
messages options
chunk marks _named
exchange
_media
openai_dicts
aggregate
_output_prompt _strict_schema
model
advisor
_telemetry.log _telemetry.clock _telemetry.content _telemetry.metrics _telemetry.settings
_telemetry.recorder _telemetry.providers
telemetry
_chain.steps prices
_chain.run
_telemetry.entry _telemetry.labels _telemetry.operation
_chain.progress
_chain.sources
_telemetry.watched
_telemetry.around_span _telemetry.model_span _telemetry.probe
_telemetry.trace
_chain.unwind
_chain.frames
_chain.stream
_explain.rows
_lint.rule_book
_lint.order_rules
lint
_explain.onion_path _explain.text_table
_explain.mermaid _explain.onion_svg _explain.onion_html _explain.rich_table _explain.difference
explain
chain
advisorchain
output hooks prompt_template tools
memory.repository
memory._branch memory._waiting
memory.policies memory.repositories memory.turns
memory.recalling memory.snapshots memory.concurrency
memory._hold
memory.urls memory.chat_memory
memory
advisors
models
_client.arguments _client.answers
_client.worker
_client.sync_stream
client
sync_client
_span_data.data
_span_data.own_time _span_data.otlp _span_data.otlp_protobuf
_span_data.tree
_span_data.files
testing
server
cli
"""
PLACE = {name: place for place, line in enumerate(LAYERS.split("\n")) for name in line.split()}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "advisorchain"


def layer(name: str) -> str:
    """The entry of LAYERS that a module belongs to: itself, or the folder that is on one line."""
    while name not in PLACE:
        name = name.rpartition(".")[0]
        assert name, "a module that has no place in LAYERS"
    return name


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> set[str]:
    """Our own modules that a module imports when it is run, so not under TYPE_CHECKING."""
    tree = tree_of(path)
    found: set[str] = set()
    blocks = list(tree.body)
    while blocks:
        node = blocks.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "advisorchain":
            module = node.module.removeprefix("advisorchain").lstrip(".")
            names = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
            found |= {name if is_module(name) else module or "advisorchain" for name in names}
        blocks += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_a_module_imports_only_from_above() -> None:
    for path in MODULES:
        own = layer(name_of(path))
        for other in imported(path):
            if layer(other) != own:
                assert PLACE[layer(other)] < PLACE[own], f"{name_of(path)} imports {other}"


def test_no_module_needs_itself_to_be_imported() -> None:
    """Also within a folder, which is one entry of LAYERS."""
    needs = {name_of(path): imported(path) - {name_of(path)} for path in MODULES}
    free: set[str] = set()
    while ready := {name for name, others in needs.items() if name not in free and others <= free}:
        free |= ready
    assert not needs.keys() - free, "these import each other in a circle"


def test_only_telemetry_knows_opentelemetry_and_structlog() -> None:
    vendors = {"opentelemetry", "structlog"}
    for path in MODULES:
        tree = tree_of(path)
        froms = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        known = vendors & {name.partition(".")[0] for name in (*froms, *plain)}
        allowed = ("telemetry", "_span_data.otlp_protobuf", "cli.trace_view")
        assert not known or path.parts[0] == "_telemetry" or name_of(path) in allowed, f"{name_of(path)} imports {known}"


def test_folders_of_siblings_do_not_import_each_other() -> None:
    for folder in ("advisors", "models"):
        files = {name_of(path) for path in MODULES if path.parent == Path(folder) and not path.name.startswith("_")}
        for path in MODULES:
            if name_of(path) in files:
                assert not (imported(path) & files) - {name_of(path)}, path


def test_no_module_is_two_things() -> None:
    for path in MODULES:
        assert len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) <= 400, path
        assert not {"utils", "helpers", "manager"} & {part.removesuffix(".py").strip("_") for part in path.parts}, path


def test_importing_the_package_loads_its_four_dependencies_and_no_vendor() -> None:
    code = """
import sys
import anyio, pydantic, pydantic.dataclasses, structlog
import opentelemetry.trace, opentelemetry.context, opentelemetry.metrics, opentelemetry._logs
anyio.run(anyio.sleep, 0)
import dataclasses
pydantic.dataclasses.dataclass(slots=True)(type("M", (), {"__annotations__": {"x": int}}))
before = set(sys.modules)
import advisorchain
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - sys.stdlib_module_names))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = set(ast.literal_eval(ran.stdout))
    assert "advisorchain" in added
    of_pydantic = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
    assert added - {"advisorchain"} <= of_pydantic


def test_what_is_public_is_there_once() -> None:
    assert len(set(advisorchain.__all__)) == len(advisorchain.__all__)
    assert all(hasattr(advisorchain, name) for name in advisorchain.__all__)


def test_every_module_tells_what_it_is_for() -> None:
    for path in MODULES:
        assert ast.get_docstring(tree_of(path)), path


def test_each_extra_serves_a_module_and_all_has_them_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    assert {name.split(">")[0].split("=")[0] for name in project["dependencies"]} == {
        "anyio",
        "opentelemetry-api",
        "pydantic",
        "structlog",
    }
    (everything,) = project["optional-dependencies"]["all"]
    assert set(everything.removeprefix("advisorchain[").removesuffix("]").split(",")) == extras - {"all"}
    sources = "".join((PACKAGE / path).read_text(encoding="utf-8") for path in MODULES)
    assert all(f"[{extra}]" in sources for extra in extras - {"all"})  # in an error or a docstring that says what to install


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def test_nothing_else_lies_at_the_top(tracked: list[str]) -> None:
    top = {name.partition("/")[0] for name in tracked if not name.startswith(".")}
    assert top == {"advisorchain", "tests", "examples", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}


def test_nothing_names_a_machine_or_a_registry(tracked: list[str]) -> None:
    for name in tracked:
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        assert not [word for word in ("/wo" + "rk/", "pythonhos" + "ted", "/ro" + "ot/") if word in text], name
