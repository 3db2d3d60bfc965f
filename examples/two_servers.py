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
from queue import SimpleQueue
from subprocess import PIPE, Popen
from threading import Thread
from urllib.request import Request, urlopen

from advisorchain import ChatRequest


async def answer(request: ChatRequest) -> str:  # in place of a model
    return f"process {os.getpid()} knows: " + " ".join(said.text for said in request.messages if said.role == "user")


def listen(server: Popen[str]) -> None:
    with server:
        for line in server.stderr or ():
            told, _, rest = line.partition(": ")
            urls.put(rest.split()[0]) if told == "Base URL" else sys.stderr.write(line * (told == "advisorchain"))
    urls.put("")  # it has ended


class Balancer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError, ValueError), urlopen(Request(next(turns) + "/chat/completions", asked, kind)) as told:
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + told.read())


if __name__ == "__main__":
    os.environ["ADVISORCHAIN_MEMORY"] = url = (*sys.argv[1:], os.environ.get("ADVISORCHAIN_MEMORY", ""))[0]
    if "://" not in url or url.startswith("memory:"):
        sys.exit("give the URL of a database that both servers reach: postgresql://USER:PASSWORD@HOST/DATABASE")
    urls, kind = SimpleQueue[str](), {"Content-Type": "application/json"}
    command = (sys.executable, "-m", "advisorchain.cli", "serve", "--model", "two_servers:answer", "--port", "0")
    with suppress(KeyboardInterrupt), ExitStack() as stack, ThreadingHTTPServer(("127.0.0.1", 0), Balancer) as balancer:
        for _ in range(2):
            server = Popen((*command, "--ttl", "1h"), cwd=Path(__file__).parent, stderr=PIPE, text=True)
            stack.callback(server.terminate)
            Thread(target=listen, args=(server,)).start()
        turns, conversation = cycle([urls.get(), urls.get()]), {"conversation_id": f"demo {os.urandom(8).hex()}"}
        Thread(target=balancer.serve_forever, daemon=True).start()
        try:
            for text in ("My name is Ada.", "What is my name?"):
                body = json.dumps({"messages": [{"role": "user", "content": text}], "metadata": conversation}).encode()
                with urlopen(Request(f"http://127.0.0.1:{balancer.server_port}", body, kind)) as told:
                    print(json.load(told)["choices"][0]["message"]["content"])
        except OSError:
            sys.exit("a server gave no answer, or did not start")
