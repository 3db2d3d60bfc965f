"""A server for the tests that speaks MCP badly, in the way that its argument names: `python _bad_mcp_server.py HOW`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

HOW = sys.argv[1]
ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Echo.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
OK: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}
NOISE = "listening on stdio\n\n{]\n\x00\n"
asked_to_list = called = 0


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def send(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def deep() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def tools() -> list[dict[str, Any]]:
    changed = asked_to_list > 2  # once when it is opened, once for each turn
    if HOW == "deep":
        return [ECHO, {**ECHO, "name": "deep", "inputSchema": deep()}]
    if HOW == "turns deep" and changed:
        return [{**ECHO, "inputSchema": deep()}]
    if HOW == "others later" and changed:
        return [{**ECHO, "name": "speak"}]
    return [ECHO]


def on_initialize(id_: Any, version: str) -> None:
    if HOW == "no server":
        send(id=id_, result={"nonsense": 1})
        return
    told = {"protocolVersion": "1999-01-01" if HOW == "old" else version, "capabilities": {"tools": {}}}
    send(id=id_, result={**told, "serverInfo": {"name": "bad", "version": "1"}})
    if HOW == "ends at once":
        sys.exit(0)


def on_list(id_: Any) -> None:
    global asked_to_list
    asked_to_list += 1
    match HOW:
        case "lists nothing":
            pass
        case "no list":
            send(id=id_, result={"tools": "none"})
        case "endless list":
            send(id=id_, result={"tools": [{**ECHO, "name": "echo"}], "nextCursor": "again"})
        case _:
            send(id=id_, result={"tools": tools()})


def on_call(id_: Any, name: str) -> None:
    match HOW:
        case "no answer":
            return
        case "closes its output":
            os.close(1)
            time.sleep(60)
        case "wrong id":
            send(id="other", result=OK)
        case "no result":
            send(id=id_, result={"content": "private text"})
        case "unknown part":
            send(id=id_, result={"content": [{"type": "hologram"}]})
        case "half of a character":
            write(f'{{"jsonrpc":"2.0","id":{id_},"result":{{"content":[{{"type":"text","text":"a\\ud83d"}}]}}}}\n')
        case "nan":
            write(f'{{"jsonrpc":"2.0","id":{id_},"result":{{"content":[],"structuredContent":{{"a":NaN}}}}}}\n')
        case "asks back":
            for method in ("sampling/createMessage", "elicitation/create", "roots/list", "no/such"):
                send(id=method, method=method, params={})
            send(id=id_, result=OK)
        case "others later" if asked_to_list > 2 and name == "echo":
            send(id=id_, error={"code": -32602, "message": "Unknown tool: echo"})
        case _:
            if HOW == "noise":
                write(NOISE)
            send(id=id_, result=OK)


def main() -> None:
    if HOW == "noise":
        write(NOISE)
    if HOW == "does not end":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
        match method:
            case "initialize":
                on_initialize(id_, params["protocolVersion"])
            case "tools/list":
                on_list(id_)
            case "tools/call":
                on_call(id_, params["name"])
            case _ if method and id_ is not None:
                send(id=id_, error={"code": -32601, "message": "no such method"})
    if HOW == "does not end":
        time.sleep(60)


main()
