"""Client of `recollect serve` in Python, with the standard library alone: copy this file to where it is needed.

client = Client("http://127.0.0.1:8000", token)
robot = client.create("robot-7")
answer = robot.step({"observation": [0.1, 0.2], "reward": 0.0})
answer["outputs"]["action"], answer["steps"], answer["weights"]
"""

import http.client
import json
import time
from typing import Any
from urllib.parse import quote, urlsplit

IDLE = 4.0
"""Seconds without a request after which a new connection is opened: the server closes idle ones after five."""


class ServerError(ValueError):
    """A refused request; ``status`` is that of HTTP."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class Client:
    """A connection to a server, of one thread. One that was closed is opened again; no request is sent twice."""

    def __init__(self, address: str, token: str, timeout: float = 30.0) -> None:
        parts = urlsplit(address)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=timeout)
        self._prefix = parts.path.rstrip("/")  # of a server behind a proxy, http://host/robots
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._used = time.monotonic()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request, and return its JSON data (the text, for metrics)."""
        if time.monotonic() - self._used > IDLE:
            self._connection.close()
        try:
            self._connection.request(
                method, self._prefix + path, None if body is None else json.dumps(body), self._headers
            )
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        self._used = time.monotonic()
        is_json = response.headers.get_content_type() == "application/json"
        data: Any = json.loads(text) if is_json else text
        if response.status >= 400:
            raise ServerError(response.status, data["error"] if is_json else text)
        return data

    def close(self) -> None:
        """Close the connection; the streams stay."""
        self._connection.close()

    def create(self, id: str | None = None) -> "RemoteStream":
        """Begin a stream on the server and return it."""
        return RemoteStream(self, self.ask("POST", "/streams", {} if id is None else {"id": id})["id"])

    def step_all(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take a step of each of several streams, ``{"id", "inputs", "is_first", "at"}``: some answers have "error"."""
        return self.ask("POST", "/step", {"steps": steps})["answers"]


class RemoteStream:
    """A stream on a server."""

    def __init__(self, client: Client, id: str) -> None:
        self.id, self._client, self._path = id, client, f"/streams/{quote(id, safe='')}"

    def step(self, inputs: Any, **options: Any) -> dict[str, Any]:
        """Take one step; options: ``is_first``, and ``at``, the steps before it, so that none is taken twice."""
        return self._client.ask("POST", f"{self._path}/step", {"inputs": inputs, **options})

    def fork(self, id: str | None = None) -> "RemoteStream":
        """Return a copy of the stream, which goes on by itself."""
        body = {} if id is None else {"id": id}
        return RemoteStream(self._client, self._client.ask("POST", f"{self._path}/fork", body)["id"])

    def roll_back(self, steps: int) -> dict[str, Any]:
        """Undo the last steps of the stream."""
        return self._client.ask("POST", f"{self._path}/rollback", {"steps": steps})

    def evict(self) -> dict[str, Any]:
        """Send it to disk; its next request brings it back."""
        return self._client.ask("POST", f"{self._path}/evict")

    def about(self) -> dict[str, Any]:
        """Return what the server knows of it."""
        return self._client.ask("GET", self._path)

    def delete(self) -> None:
        """End the stream, and free its memory on the server."""
        self._client.ask("DELETE", self._path)
