"""`advisorchain conversations`, in this process by typer's runner."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner, Result

from advisorchain.cli import conversation_commands as commands
from advisorchain.cli.app import app
from advisorchain.cli.named_parts import _impatient as impatient
from advisorchain.errors import (
    ChatMemoryError,
    ConfigurationError,
    ConversationConflictError,
    InvalidInputError,
    StorageError,
)
from advisorchain.memory import ChatMemory, SqliteChatMemoryRepository
from advisorchain.memory.urls import open_repository
from advisorchain.messages import AssistantMessage, ImagePart, Message, TextPart, ToolCall, UserMessage, load_message

pytestmark = pytest.mark.slow  # starts the command

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SAID: dict[str, list[Message]] = {
    "ada": [UserMessage("My name is Ada."), AssistantMessage("Hello, A", partial=True)],
    "tools\x1b[2J": [
        UserMessage((TextPart("Look"), ImagePart("http://localhost/a.png"))),
        AssistantMessage(tool_calls=(ToolCall("c1", "look", '{"at": 1}'),)),
    ],
    "many": [UserMessage(f"número {number}") for number in range(450)],
}


@pytest.fixture
def kept(home: Path) -> str:
    """A store in which three conversations are kept."""

    async def fill() -> None:
        async with open_repository("sqlite:///kept.db") as repository:
            for conversation_id, messages in SAID.items():
                await ChatMemory(repository=repository).add(conversation_id, messages)

    anyio.run(fill)
    return str(home / "kept.db")


def invoke(*args: str, input: str = "") -> Result:
    return CliRunner().invoke(app, ["conversations", *args], input=input)


def test_list(kept: str) -> None:
    result = invoke("list", "--memory", kept)
    assert result.exit_code == 0
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["LAST", "USED", "MESSAGES", "ID"]
    assert [line.split()[2:] for line in lines] == [["2", "ada"], ["450", "many"], ["2", "tools�[2J"]]


def test_nothing_was_ever_said(home: Path) -> None:
    result = invoke("list")
    assert (result.exit_code, result.output) == (0, "")
    assert not (home / "data").exists()


def test_show(kept: str) -> None:
    text = invoke("show", "ada", "--memory", kept).stdout
    assert [line.partition(" ")[2][6:] for line in text.splitlines() if line.endswith(":")] == [
        "user:",
        "assistant (stopped):",
    ]
    assert "My name is Ada." in text
    assert "Hello, A" in text
    shown = invoke("show", "tools\x1b[2J", "--memory", kept).stdout
    assert "Look\n[image]" in shown
    assert '[calls look {"at": 1}]' in shown
    assert invoke("show", "many", "--memory", kept).stdout.count("user:") == 450


def test_export_all_to_standard_output(kept: str) -> None:
    lines = [json.loads(line) for line in invoke("export", "--memory", kept).stdout.splitlines()]
    told: dict[str, list[Message]] = {}
    for line in lines:
        told.setdefault(line["conversation_id"], []).append(load_message(line["message"]))
    assert told == SAID
    assert [line["sequence"] for line in lines if line["conversation_id"] == "ada"] == [1, 2]


def test_export_some_to_a_file(kept: str, home: Path) -> None:
    result = invoke("export", "ada", "--memory", kept, "--output", "out.jsonl")
    assert (result.exit_code, result.output) == (0, "exported 1 conversation with 2 messages to `out.jsonl`\n")
    assert len((home / "out.jsonl").read_text().splitlines()) == 2
    assert isinstance(invoke("export", "--memory", kept, "-o", "nowhere/out.jsonl").exception, StorageError)
    assert isinstance(invoke("export", "bob", "--memory", kept, "-o", "bob.jsonl").exception, ChatMemoryError)
    assert sorted(path.name for path in home.glob("*.jsonl*")) == ["out.jsonl"]
    assert list(home.glob(".*.part")) == []


def test_what_is_written_anew_meanwhile_is_exported_as_it_was_at_one_moment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, left = SqliteChatMemoryRepository.page, [True]

    async def page_and_replace(self: SqliteChatMemoryRepository, conversation_id: str, **how: Any) -> Any:
        found = await page(self, conversation_id, **how)
        if found.next and left and left.pop():
            await self.replace(conversation_id, [UserMessage("anew")])
        return found

    async def fill() -> None:
        async with open_repository("sqlite:///kept.db") as repository:
            await ChatMemory(repository=repository).add("c", [UserMessage(str(number)) for number in range(501)])

    anyio.run(fill)
    monkeypatch.setattr(SqliteChatMemoryRepository, "page", page_and_replace)
    lines = [json.loads(line) for line in invoke("export", "--memory", "kept.db").stdout.splitlines()]
    assert [line["message"]["content"] for line in lines] == ["anew"]


def test_nothing_was_ever_said_and_more(home: Path) -> None:
    assert (invoke("export").exit_code, invoke("export").output) == (0, "")
    assert "there is no conversation `ada`" in str(invoke("show", "ada").exception)
    assert "there is no conversation `ada`" in str(invoke("delete", "ada", "--yes").exception)
    assert not (home / "data").exists()


@pytest.mark.parametrize("place", ["none.db", "sqlite:///none.db", "SQLite:///none.db", "~/none.db"])
@pytest.mark.parametrize("command", [["list"], ["export"], ["show", "ada"], ["delete", "ada", "--yes"]], ids=" ".join)
def test_a_place_that_was_given_must_be_there(home: Path, command: list[str], place: str) -> None:
    result = invoke(*command, "--memory", place)
    assert isinstance(result.exception, StorageError)
    assert ("none.db` is not there; check --memory" in str(result.exception), result.output) == (True, "")
    assert list(home.glob("none.db*")) == []


def test_a_place_given_by_the_environment_must_be_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISORCHAIN_MEMORY", "none.db")
    assert isinstance(invoke("list").exception, StorageError)


def test_urls_name_stores_too(kept: str) -> None:
    assert len(invoke("list", "--memory", f"sqlite:///{kept}").stdout.splitlines()) == 4
    assert (invoke("list", "--memory", "memory://").exit_code, invoke("list", "--memory", "memory://").output) == (0, "")


def test_what_was_said_does_not_steer_the_reader_and_is_exported_as_it_was(home: Path) -> None:
    said = "a\x1b]0;title\x07b\x9b31m\r\n\tc"

    async def fill() -> None:
        async with open_repository("sqlite:///kept.db") as repository:
            await ChatMemory(repository=repository).add("ada", [UserMessage(said)])

    anyio.run(fill)
    assert "a�]0;title�b�31m\n\tc\n" in invoke("show", "ada", "--memory", "kept.db").stdout
    line = json.loads(invoke("export", "--memory", "kept.db").stdout)
    assert line["message"]["content"] == said


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_that_has_not_all_letters(encoding: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of Windows, where it goes to a file: there were a traceback, and half of an export."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)

    async def fill() -> None:
        async with open_repository("sqlite:///kept.db") as repository:
            await ChatMemory(repository=repository).add("名", [UserMessage("número 名"), AssistantMessage("sí")])

    def written(*args: str) -> bytes:
        command = [sys.executable, "-m", "advisorchain.cli", "conversations", *args, "--memory", "kept.db"]
        return subprocess.run(command, cwd=home, stdout=subprocess.PIPE, check=True).stdout

    anyio.run(fill)
    assert written("list").split()[-1] == b"?"
    assert "número ?".encode(encoding, "replace") in written("show", "名")
    assert written("export", "-o", "out.jsonl") == b""
    exported = (home / "out.jsonl").read_bytes()
    assert "名" in exported.decode("utf-8")
    assert written("export").splitlines() == exported.splitlines()


@pytest.mark.parametrize("folder", [".", "..", "/", "", "data"])
def test_an_export_into_a_folder_is_refused(kept: str, home: Path, folder: str) -> None:
    (home / "data").mkdir()
    result = invoke("export", "--memory", kept, "-o", folder)
    assert isinstance(result.exception, InvalidInputError)
    assert str(result.exception) == f"`--output` is `{folder}`, which is a folder; give a file in it"


def test_delete_without_a_terminal_and_yes_deletes_nothing(kept: str) -> None:
    result = invoke("delete", "ada", "--memory", kept, input="y\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "advisorchain: there is no terminal to ask at, so nothing was deleted; give --yes\n"
    assert invoke("show", "ada", "--memory", kept).exit_code == 0


def test_delete_all_or_none(kept: str) -> None:
    assert isinstance(invoke("delete", "many", "bob", "--yes", "--memory", kept).exception, ChatMemoryError)
    assert invoke("delete", "many", "ada", "--yes", "--memory", kept).exit_code == 0
    assert len(invoke("list", "--memory", kept).stdout.splitlines()) == 2


def test_unknown_ids_and_stores_are_one_line_and_status_1(run: Run, kept: str) -> None:
    ended = run("conversations", "show", "bob", "--memory", kept)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "advisorchain: there is no conversation `bob`; see: conversations list\n"
    ended = run("conversations", "list", "--memory", "none.db")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "`none.db` is not there" in ended.stderr


def test_show_with_numbers(kept: str) -> None:
    lines = invoke("show", "ada", "--numbers", "--memory", kept).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.endswith(":")] == ["1", "2"]


def test_list_by_prefix(kept: str) -> None:
    assert len(invoke("list", "--prefix", "a", "--memory", kept).stdout.splitlines()) == 2


# -- rename, fork, delete by prefix


def ids(kept: str) -> list[str]:
    return [line.split()[3] for line in invoke("list", "--memory", kept).stdout.splitlines()[1:]]


def test_rename(kept: str) -> None:
    assert isinstance(invoke("rename", "bob", "bert", "--memory", kept).exception, ChatMemoryError)
    assert isinstance(invoke("rename", "ada", "many", "--memory", kept).exception, ConversationConflictError)
    assert invoke("rename", "ada", "ada 2", "--memory", kept).exit_code == 0
    assert "Hello, A" in invoke("show", "ada 2", "--memory", kept).stdout
    assert "there is no conversation `ada`" in str(invoke("show", "ada", "--memory", kept).exception)


def test_fork(kept: str) -> None:
    assert isinstance(invoke("fork", "bob", "bert", "--memory", kept).exception, ChatMemoryError)
    assert isinstance(invoke("fork", "many", "ada", "--memory", kept).exception, ConversationConflictError)
    assert invoke("fork", "many", "few", "--at", "3", "--memory", kept).exit_code == 0
    assert invoke("fork", "many", "all", "--memory", kept).exit_code == 0
    assert invoke("show", "few", "--memory", kept).stdout.count("user:") == 3
    assert invoke("show", "all", "--memory", kept).stdout.count("user:") == 450
    assert invoke("fork", "many", "none", "--at", "0", "--memory", kept).exit_code == 2


def test_delete_by_prefix(kept: str) -> None:
    for name in ("user:1", "user:2", "used"):
        invoke("fork", "ada", name, "--memory", kept)
    assert isinstance(invoke("delete", "--prefix", "", "--yes", "--memory", kept).exception, InvalidInputError)
    assert isinstance(invoke("delete", "--yes", "--memory", kept).exception, InvalidInputError)
    missing = invoke("delete", "--prefix", "none", "--yes", "--memory", kept)
    assert "whose id begins with `none`" in str(missing.exception)
    assert len(ids(kept)) == 6
    assert invoke("delete", "ada", "--prefix", "user:", "--yes", "--memory", kept).exit_code == 0
    assert ids(kept) == ["many", "tools�[2J", "used"]


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_deletion_and_pruning_ask(kept: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    age(kept, "ada", days=31)
    monkeypatch.setattr("advisorchain.cli.conversation_commands._asking", lambda done, yes: asked(answer))
    questions.clear()
    for command in (["prune", "--older-than", "30d"], ["delete", "--prefix", "m"]):
        result = invoke(*command, "--memory", kept)
        assert result.exit_code == (0 if answer == "y" else 1)
        assert ("nothing was" in result.stderr) == (answer != "y")
    assert questions[0].startswith("Remove 1 conversation with 2 messages, last used before ")
    assert questions[1] == "Delete 1 conversation (`many`) with 450 messages for good?"
    assert ids(kept) == (["tools�[2J"] if answer == "y" else ["ada", "many", "tools�[2J"])


questions: list[str] = []


def asked(answer: str) -> Callable[[str], bool]:
    def ask(question: str) -> bool:
        questions.append(question)
        return answer == "y"

    return ask


# -- prune


def age(kept: str, conversation_id: str, *, days: int) -> None:
    """Let a conversation be written to so many days ago."""
    with closing(sqlite3.connect(kept)) as db, db:
        (changed,) = db.execute(
            "UPDATE conversations SET updated = updated - ? * 86400000000 WHERE id = ? RETURNING 1", (days, conversation_id)
        ).fetchone()
    assert changed


def test_prune_tells_what_it_would_remove_and_removes_it(kept: str) -> None:
    age(kept, "ada", days=31)
    age(kept, "many", days=29)
    result = invoke("prune", "--older-than", "30d", "--dry-run", "--memory", kept)
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["ID", "ada"]
    assert result.stderr.startswith("would remove 1 conversation with 2 messages, last used before 2")
    assert len(ids(kept)) == 3
    assert invoke("prune", "--older-than", "30d", "--memory", kept).exit_code == 2
    assert len(ids(kept)) == 3
    result = invoke("prune", "--older-than", "30d", "--yes", "--memory", kept)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "removed 1 conversation\n")
    assert ids(kept) == ["many", "tools�[2J"]
    result = invoke("prune", "--older-than", "4w", "--prefix", "t", "--yes", "--memory", kept)
    assert result.stderr == "removed 0 conversations\n"
    assert invoke("prune", "--older-than", "4w", "--yes", "--memory", kept).stderr == "removed 1 conversation\n"


def test_prune_removes_what_has_expired(home: Path, run: Run) -> None:
    for name in ("short", "long"):
        ttl = ("--ttl", "1h") if name == "short" else ("--ttl", "2w")
        assert run("chat", "hi", "--conversation", name, "--memory", "kept.db", *ttl).returncode == 0
    with closing(sqlite3.connect("kept.db")) as db:
        assert db.execute("SELECT ttl / 3600000000 FROM conversations ORDER BY id").fetchall() == [(336,), (1,)]
    with closing(sqlite3.connect("kept.db")) as db, db:
        db.execute("UPDATE conversations SET ends = 1, updated = 1 WHERE id = 'short'")
    assert ids("kept.db") == ["long"]
    result = invoke("prune", "--dry-run", "--memory", "kept.db")
    assert result.stderr == "would remove 0 conversations with 0 messages; and what has expired, which is shown nowhere\n"
    assert invoke("prune", "--memory", "kept.db").stderr == "removed 1 conversation\n"
    with closing(sqlite3.connect("kept.db")) as db:
        assert db.execute("SELECT id FROM conversations").fetchall() == [("long",)]


@pytest.mark.parametrize("bad", ["30", "d", "0d", "-1d", "30y", "1.5d", "30 days", "9999999d"])
def test_a_time_that_is_none_is_wrong_usage(kept: str, bad: str) -> None:
    result = invoke("prune", "--older-than", bad, "--yes", "--memory", kept)
    assert result.exit_code == 2
    assert "such as 30d" in result.stderr
    assert len(ids(kept)) == 3


def test_a_time_longer_than_the_calendar_prunes_nothing(kept: str) -> None:
    assert invoke("prune", "--older-than", "999999w", "--yes", "--memory", kept).stderr == "removed 0 conversations\n"


# -- import


def test_what_was_exported_is_imported_exactly(kept: str, home: Path) -> None:
    invoke("export", "--memory", kept, "-o", "out.jsonl")
    result = invoke("import", "out.jsonl", "--memory", "new.db")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "imported 3 conversations with 454 messages\n"
    assert invoke("export", "--memory", "new.db").stdout == (home / "out.jsonl").read_text(encoding="utf-8")


def test_import_from_standard_input_and_between_memories(kept: str, run: Run) -> None:
    lines = "\n" + invoke("export", "ada", "--memory", kept).stdout.replace("\n", "\r\n")
    ended = run("conversations", "import", "-", "--memory", "new.db", input=lines)
    assert (ended.returncode, ended.stderr) == (0, "imported 1 conversation with 2 messages\n")
    assert "Hello, A" in invoke("show", "ada", "--memory", "new.db").stdout


GOOD = {
    "conversation_id": "new", "sequence": 1, "turn_id": "t", "created": "2024-01-01T00:00:00+00:00", "kind": "message",
    "covers": None, "message": {"role": "user", "content": "secret"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("7", "it is no JSON object"),
        (b"\xff{}", "it is no JSON"),
        ({}, "`conversation_id` is missing"),
        ({**GOOD, "conversation_id": " "}, "`conversation_id` is blank"),
        ({**GOOD, "conversation_id": "first"}, "`first` goes on after another conversation"),
        ({**GOOD, "conversation_id": "second"}, "`sequence` is not above"),
        ({key: value for key, value in GOOD.items() if key != "turn_id"}, "`turn_id` is missing"),
        ({**GOOD, "turn_id": ""}, "`turn_id` must be"),
        ({**GOOD, "created": "2024-01-01T00:00:00"}, "`created` is no time with a zone"),
        ({**GOOD, "created": "today"}, "`created` is no time"),
        ({**GOOD, "kind": "secret"}, "`kind` is neither"),
        ({**GOOD, "sequence": "1"}, "`sequence` must be a whole number"),
        ({**GOOD, "covers": "x"}, "`covers` must be a whole number"),
        ({**GOOD, "message": {"role": "nobody", "content": "secret"}}, "role"),
        ({**GOOD, "message": "secret"}, ""),
    ],
    ids=lambda case: str(case)[:60],
)
def test_a_bad_line_is_told_by_its_number_and_nothing_is_imported(home: Path, kept: str, line: Any, told: str) -> None:
    before = [json.dumps({**GOOD, "conversation_id": name}) for name in ("first", "second")]
    data = line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
    (home / "in.jsonl").write_bytes("\n".join(before).encode() + b"\n" + data + b"\n")
    for options in ([], ["--replace"]):
        result = invoke("import", "in.jsonl", "--memory", kept, *options)
        assert isinstance(result.exception, InvalidInputError)
        assert str(result.exception).startswith("line 3 cannot be imported: ")
        assert told in str(result.exception)
        assert "secret" not in str(result.exception)
        assert ids(kept) == ["ada", "many", "tools�[2J"]


def test_conversations_that_are_there_stop_an_import_or_are_replaced(kept: str, home: Path) -> None:
    lines = [json.dumps({**GOOD, "conversation_id": name}) for name in ("a new one", "ada")]
    (home / "in.jsonl").write_text("\n".join(lines))
    result = invoke("import", "in.jsonl", "--memory", kept)
    assert isinstance(result.exception, ConversationConflictError)
    assert "`ada`" in str(result.exception)
    assert "--replace" in str(result.exception)
    assert len(ids(kept)) == 3
    assert invoke("import", "in.jsonl", "--memory", kept, "--replace").exit_code == 0
    assert invoke("export", "ada", "--memory", kept).stdout.count("\n") == 1
    assert "secret" in invoke("show", "ada", "--memory", kept).stdout


def test_a_store_that_fails_half_way_keeps_whole_conversations(
    kept: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("export", "--memory", kept, "-o", "out.jsonl")
    replace = SqliteChatMemoryRepository.replace

    async def failing(self: SqliteChatMemoryRepository, conversation_id: str, *args: Any, **how: Any) -> int:
        if conversation_id == "many":
            raise StorageError("the disk is full")
        return await replace(self, conversation_id, *args, **how)

    monkeypatch.setattr(SqliteChatMemoryRepository, "replace", failing)
    result = invoke("import", "out.jsonl", "--memory", "new.db")
    assert isinstance(result.exception, StorageError)
    assert result.stderr == "1 conversation had been imported when this happened:\n"
    assert ids("new.db") == ["ada"]


def test_a_file_that_cannot_be_read_is_told(home: Path) -> None:
    result = invoke("import", "none.jsonl", "--memory", "new.db")
    assert isinstance(result.exception, StorageError)
    assert "`none.jsonl` cannot be read" in str(result.exception)
    assert not (home / "new.db").exists()


def test_an_empty_file_imports_nothing(home: Path) -> None:
    (home / "in.jsonl").write_text("\n\n")
    told = invoke("import", "in.jsonl", "--memory", "new.db")
    assert (told.exit_code, told.stderr) == (0, "`in.jsonl` has no messages; nothing was imported\n")
    assert invoke("import", "-", "--memory", "new.db").stderr == "standard input has no messages; nothing was imported\n"
    assert not (home / "new.db").exists()


@pytest.mark.parametrize("command", ["list", "show", "rename", "fork", "export", "import", "delete", "prune"])
def test_help_names_every_kind_of_memory_and_no_password(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISORCHAIN_MEMORY", "postgresql://me:hunter2@nowhere/x")
    told = invoke(command, "--help").stdout
    for name in ("ADVISORCHAIN_MEMORY", "sqlite:///PATH", "postgresql://", "redis://", "mongodb://"):
        assert name in told
    assert "hunter2" not in told


def test_a_password_is_never_shown(run: Run) -> None:
    for url in ("postgresql://me:hunter2@127.0.0.1:1/x", "redis://me:hunter2@127.0.0.1:1/0", "nosuch://me:hunter2@x"):
        for command in (["conversations", "list"], ["chat", "hi", "--debug"]):
            ended = run(*command, "--memory", url)
            assert ended.returncode == 1
            assert ended.stderr
            assert "hunter2" not in ended.stderr + ended.stdout


# -- what a new user met


@pytest.mark.parametrize("command", [["list"], ["export"], ["import", "-"], ["delete", "ada", "-y"]], ids=" ".join)
@pytest.mark.parametrize(
    "place",
    [
        "postgresql:postgres:S3CRET@127.0.0.1",
        "PostgreSQL+psycopg:/postgres:S3CRET@127.0.0.1/x",
        "postgresql//postgres:S3CRET@127.0.0.1/x",
        "redis:S3CRET",
        "postgres:S3CRET@127.0.0.1",
        "postgresql://postgres:S3C@S3CRET@127.0.0.1/nodb",
        "mysql://root:a/S3CRET@127.0.0.1/nodb",
        "redis://:a#S3CRET@127.0.0.1",
        "mongodb://me:a?S3CRET@127.0.0.1/x",
        "postgresql://postgres:S3CRET",
        "me:S3CRET@x://y",
        "mysql://root:S3CRET@127.0.0.1/",
        "",
        " ",
    ],
)
def test_a_place_that_is_neither_path_nor_url_is_refused_and_not_shown(home: Path, place: str, command: list[str]) -> None:
    line = json.dumps(GOOD)
    result = invoke(*command, "--memory", place, input=line)
    assert isinstance(result.exception, ConfigurationError)
    told = str(result.exception)
    assert told.startswith("`--memory` ")
    assert "S3C" not in told + result.output
    assert list(home.iterdir()) == [home / "scripted.py"]


def test_a_path_may_hold_what_urls_do(home: Path) -> None:
    for place in ("./a:b@c.db", str(home / "redis:x.db"), "a@b.db"):
        assert invoke("import", "-", "--memory", place, input=json.dumps(GOOD)).exit_code == 0
    assert {"a:b@c.db", "redis:x.db", "a@b.db"} <= {path.name for path in home.iterdir()}


def test_errors_of_a_store_name_the_option_and_no_argument_of_python(home: Path) -> None:
    told = str(invoke("list", "--memory", "mongodb://127.0.0.1:1/x?nosuch").exception)
    assert told.startswith("`--memory` ")
    assert "url_or_client" not in told


def test_a_mongodb_that_is_not_there_is_waited_for_ten_seconds() -> None:
    asked = "serverSelectionTimeoutMS=10000"
    assert impatient("mongodb://h:1") == f"mongodb://h:1/?{asked}"
    assert impatient("mongodb://h:1/x") == f"mongodb://h:1/x?{asked}"
    assert impatient("MongoDB+srv://h/x?tls=true") == f"MongoDB+srv://h/x?tls=true&{asked}"
    for url in ("mongodb://h/?serverselectiontimeoutms=1", "redis://h", "postgresql://h/x"):
        assert impatient(url) == url
    result = invoke("list", "--memory", "mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=100")
    assert "`db`) was not reached within 0.1 seconds" in str(result.exception)


def test_a_database_without_tables_is_an_empty_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "sqlite+pysqlite:///file.db"  # of SQLAlchemy, which makes tables on request
    result = invoke("list", "--memory", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("nothing was ever kept in the database that --memory names; `chat`")
    assert "there is no conversation `ada`" in str(invoke("show", "ada", "--memory", url).exception)
    assert invoke("export", "--memory", url).stdout == ""
    assert invoke("import", "-", "--memory", url, input=json.dumps(GOOD)).exit_code == 0
    result = invoke("list", "--memory", url)
    assert (result.stdout.count("\n"), result.stderr) == (2, "")


def test_a_taken_id_is_named(kept: str) -> None:
    for command in ("fork", "rename"):
        error = invoke(command, "ada", "many", "--memory", kept).exception
        assert isinstance(error, ConversationConflictError)
        assert str(error).startswith("there is a conversation `many` already")


def test_a_fork_beyond_the_end_is_refused_and_all_commands_tell_what_they_did(kept: str) -> None:
    result = invoke("fork", "ada", "ada 2", "--at", "99", "--memory", kept)
    assert "`ada` ends with message number 2, before 99" in str(result.exception)
    assert ids(kept) == ["ada", "many", "tools�[2J"]
    assert invoke("fork", "many", "few", "--at", "3", "--memory", kept).stderr == "copied 3 messages of `many` to `few`\n"
    assert invoke("rename", "few", "less", "--memory", kept).stderr == "renamed `few` to `less`\n"
    told = invoke("delete", "less", "-y", "--memory", kept)
    assert (told.stdout, told.stderr) == ("", "deleted `less` with 3 messages\n")


def test_times_to_live_go_through_a_file_and_are_listed(home: Path, run: Run) -> None:
    lines = [json.dumps({**GOOD, "conversation_id": name, "ttl": ttl}) for name, ttl in (("a", 90.5), ("b", None))]
    (home / "in.jsonl").write_text("\n".join([*lines, json.dumps({**GOOD, "conversation_id": "old"})]))
    assert invoke("import", "in.jsonl", "--memory", "new.db").exit_code == 0
    first, *rest = invoke("list", "--memory", "new.db").stdout.splitlines()[1:]
    assert "  a  (expires 20" in first
    assert [line.split()[3:] for line in rest] == [["b"], ["old"]]
    exported = [json.loads(line) for line in invoke("export", "--memory", "new.db").stdout.splitlines()]
    assert [line["ttl"] for line in exported] == [90.5, None, None]
    assert invoke("import", "in.jsonl", "--memory", "new.db", "--replace", "--ttl", "15m").exit_code == 0
    assert times_to_live("new.db") == [900, 900, 900]
    assert invoke("import", "in.jsonl", "--memory", "new.db", "--replace").exit_code == 0
    assert times_to_live("new.db") == [90.5, None, 900]  # as they were told; an old file tells nothing


def times_to_live(kept: str) -> list[float | None]:
    return [json.loads(line)["ttl"] for line in invoke("export", "--memory", kept).stdout.splitlines()]


@pytest.mark.parametrize("ttl", [0, -1, "1h", True, 1e300])
def test_a_time_to_live_that_is_none_is_told_by_its_line(home: Path, ttl: Any) -> None:
    result = invoke("import", "-", "--memory", "new.db", input=json.dumps({**GOOD, "ttl": ttl}))
    assert str(result.exception).startswith("line 1 cannot be imported: `ttl` must be a number of seconds")


def test_ctrl_c_at_the_question_ends_the_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commands._confirm("Delete?")
    assert capsys.readouterr().err == "Delete? [y/N]: \n"
