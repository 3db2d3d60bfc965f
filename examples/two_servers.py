"""Two servers behind one balancer, one conversation: what one was told, the other knows. (Needs: cli, server, postgresql)

Run: python examples/two_servers.py postgresql://USER:PASSWORD@HOST/DATABASE     (or the URL in ADVISORCHAIN_MEMORY)
"""

import json
import os
import sys
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from urllib.request import Request, urlopen

from advisorchain import ChatRequest


async def answer(request: ChatRequest) -> str:  # in place of a model
    return f"process {os.getpid()} knows: " + " ".join(
        message.text for message in request.messages if message.role == "user"
    )


def started(stack: ExitStack) -> str:
    options = ("--model", "two_servers:answer", "--port", "0", "--ttl", "1h")
    command = [sys.executable, "-m", "advisorchain.cli", "serve", *options]
    server = stack.enter_context(Popen(command, cwd=Path(__file__).parent, stderr=PIPE, text=True))
    stack.callback(server.terminate)
    return next(line.split()[2] for line in server.stderr or () if line.startswith("Base URL: "))


def post(url: str, body: bytes) -> bytes:
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as response:
        return bytes(response.read())


class Balancer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        with suppress(OSError):
            told = post(next(turns) + "/chat/completions", self.rfile.read(int(self.headers["Content-Length"])))
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + told)


if __name__ == "__main__":
    os.environ["ADVISORCHAIN_MEMORY"] = url = (*sys.argv[1:], os.environ.get("ADVISORCHAIN_MEMORY", ""))[0]
    if "://" not in url:
        sys.exit("give the URL of a database that both servers reach: postgresql://USER:PASSWORD@HOST/DATABASE")
    with ExitStack() as stack, ThreadingHTTPServer(("127.0.0.1", 0), Balancer) as balancer:
        turns, conversation = cycle([started(stack), started(stack)]), {"conversation_id": f"demo {os.urandom(8).hex()}"}
        Thread(target=balancer.serve_forever, daemon=True).start()
        try:
            for question in ("My name is Ada.", "What is my name?"):
                body = {"messages": [{"role": "user", "content": question}], "metadata": conversation}
                told = json.loads(post(f"http://127.0.0.1:{balancer.server_port}", json.dumps(body).encode()))
                print(told["choices"][0]["message"]["content"])
        except OSError:
            sys.exit("a server gave no answer: it did not reach the database of this URL")
