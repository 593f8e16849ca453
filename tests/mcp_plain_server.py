"""An MCP server over pipes, of the protocol before 2026, which starts at once and fails as it is told.

It is a program: `mcp_plain_server.py LIVES`. The first line of that file is a JSON list with the behaviour of
each of its lives, the last one holding for all further ones. Each life adds a line.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, TypedDict


class Behaviour(TypedDict, total=False):
    """What this life does: which tools it has, at which message it dies: before, amid or after its answer.

    Before it says anything it `meets` others, each at the end of a named pipe that it opens to read or write.
    One that `only_says` something says it for ever, and reads nothing.
    """

    tools: list[dict[str, Any]]
    die_at: int
    die: str
    garbage: str
    only_says: str
    silent: list[str]
    words: str
    meets: list[tuple[str, str]]


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


class Plain:
    """One life."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.tools = behaviour.get("tools", [tool("say", "Say it.", text={"type": "string"})])

    def serve(self) -> None:
        """Answer until the input ends."""
        for pipe, mode in self.behaviour.get("meets", []):
            Path(pipe).open(mode).close()  # returns when the other end is open too
        while words := self.behaviour.get("only_says"):
            sys.stdout.write(words)
        for number, line in enumerate(sys.stdin, 1):
            asked = json.loads(line)
            if "method" not in asked:  # an answer to what its garbage asks
                continue
            dies = self.behaviour.get("die_at") == number
            how = self.behaviour.get("die", "before")
            if dies and how == "before":
                self.die()
            if garbage := self.behaviour.get("garbage"):
                sys.stdout.write(garbage)
            if "id" in asked and asked["method"] not in self.behaviour.get("silent", []):
                text = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **self.answer(asked)})
                sys.stdout.write(text[: len(text) // 2] if dies and how == "amid" else f"{text}\n")
            sys.stdout.flush()
            if dies:
                self.die()

    def die(self) -> None:
        """End as one that has failed."""
        print(self.behaviour.get("words", "Fatal: no more"), file=sys.stderr, flush=True)
        os._exit(7)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What is said to a request."""
        given = asked.get("params", {})
        match asked["method"]:
            case "initialize":
                about = {"name": "plain", "version": "1"}
                able = {"tools": {"listChanged": True}}
                return {
                    "result": {"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about}
                }
            case "tools/list":
                return {"result": {"tools": self.tools}}
            case "tools/call" if given["name"] == "grow":
                self.tools = [*self.tools, tool("grown")]
                print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
                return self.said("it has grown")
            case "tools/call" if given["name"] == "environment":
                return self.said(json.dumps({**os.environ}))
            case "tools/call" if given["name"] == "process":
                return self.said(str(os.getpid()))
            case "tools/call":
                return self.said(json.dumps(given["arguments"]))
        return {"error": {"code": -32601, "message": "Method not found"}}

    def said(self, text: str) -> dict[str, Any]:
        """A result with this text."""
        return {"result": {"content": [{"type": "text", "text": text}]}}


def main() -> None:
    """Be the next life."""
    with Path(sys.argv[1]).open("r+") as file:
        behaviours, life = json.loads(file.readline()), len(file.readlines())
        file.write("x\n")
    Plain(behaviours[min(life, len(behaviours) - 1)]).serve()


if __name__ == "__main__":
    main()
