"""Two servers behind one balancer, one conversation: what one was told, the other knows. (Needs: cli, server, postgresql)

Run: python examples/two_servers.py postgresql://USER:PASSWORD@HOST/DATABASE     (or the URL in ADVISORCHAIN_MEMORY)
"""

import json
import os
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from subprocess import PIPE, Popen
from threading import Thread
from urllib.request import Request, urlopen

from advisorchain import ChatRequest


async def answer(request: ChatRequest) -> str:  # in place of a model
    return f"process {os.getpid()} knows: " + " ".join(said.text for said in request.messages if said.role == "user")


def post(url: str, body: bytes) -> bytes:
    return bytes(urlopen(Request(url, body, {"Content-Type": "application/json"})).read())


class Balancer(BaseHTTPRequestHandler):
    servers = iter(["set below"])

    def do_POST(self) -> None:
        with suppress(OSError, ValueError):  # no answer, or no URL
            answered = post(next(self.servers), self.rfile.read(int(self.headers["Content-Length"])))
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + answered)


if __name__ == "__main__":
    os.environ["ADVISORCHAIN_MEMORY"] = url = (sys.argv[1:] or [os.environ.get("ADVISORCHAIN_MEMORY", "")])[0]
    if "://" not in url or url.startswith("memory:"):
        sys.exit("give the URL of a database that both servers reach: postgresql://USER:PASSWORD@HOST/DATABASE")
    command = [sys.executable, "-m", "advisorchain.cli", "serve", "--model", "two_servers:answer", "--port", "0"]
    with suppress(KeyboardInterrupt):
        servers = [Popen([*command, "--ttl", "1h"], cwd=sys.path[0], stderr=PIPE, text=True) for _ in range(2)]
        try:
            told = [next(line for line in server.stderr or () if line.startswith(("Base", "advisor"))) for server in servers]
            sys.stderr.writelines(line for line in told if line.startswith("advisor"))
            Balancer.servers = cycle(f"{line.split()[2]}/chat/completions" for line in told)
            balancer = ThreadingHTTPServer(("127.0.0.1", 0), Balancer)
            Thread(target=balancer.serve_forever, daemon=True).start()
            conversation = {"conversation_id": f"demo {os.urandom(8).hex()}"}
            for text in ("My name is Ada.", "What is my name?"):
                asked = {"messages": [{"role": "user", "content": text}], "metadata": conversation}
                answered = post(f"http://127.0.0.1:{balancer.server_port}", json.dumps(asked).encode())
                print(json.loads(answered)["choices"][0]["message"]["content"])
        except (OSError, StopIteration):
            sys.exit("a server gave no answer, or did not start")
        finally:
            for server in servers:
                server.terminate()
                sys.stderr.writelines(line for line in server.communicate()[1].splitlines(True) if "advisorchain:" in line)
