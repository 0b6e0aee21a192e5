"""The HTTP front of a store of live streams, an ASGI application: routes, JSON, WebSockets, a token.

    app = make_app(StreamStore(model, config), token="...", reload=lambda: recollect.load("runs/t-maze-hcam-seed0"))

| request | answer |
|---|---|
| ``GET /health``, without a token | ``{"status": "ok", "weights": ...}`` |
| ``GET /metrics`` | Prometheus text |
| ``GET /model`` | inputs and outputs of a step |
| ``POST /streams`` ``{"id"}`` | a new stream; a random id without one |
| ``GET``, ``DELETE /streams/ID`` | what is known of it; its end |
| ``POST /streams/ID/step`` ``{"inputs", "is_first", "at"}`` | ``{"id", "outputs", "steps", "weights"}`` |
| ``POST /step`` ``{"steps": [{"id", "inputs", ...}]}`` | ``{"answers": [...]}``, of several streams |
| ``POST /streams/ID/fork`` ``{"id"}`` | a copy |
| ``POST /streams/ID/rollback`` ``{"steps"}`` | the stream so many steps ago |
| ``POST /streams/ID/evict``, ``/restore`` | to disk, and back |
| ``POST /weights`` | load the weights again from where they came from, under the live streams |
| WebSocket ``/streams/ID/frames`` | a message for each step, as above, or the bytes of the only input |

Every error is ``{"error": line}``, with field, value and remedy.
"""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from torch import nn

from recollect.serving.batcher import Batcher, Outcomes, settle
from recollect.serving.metrics import render_metrics
from recollect.serving.refusal import RefusedError
from recollect.serving.store import Answer, Step, StreamStore

PROTOCOL = "recollect"
"""Subprotocol of WebSockets; a browser sends it with ``token.TOKEN``, because it cannot set headers."""
Reload = Callable[[], nn.Module]


class Front:
    """Handlers of all routes of the HTTP server.

    Args:
        store: of the streams; this object's thread owns it from the start to the end of the application.
        token: that requests must send, as ``Authorization: Bearer TOKEN``; None asks for none.
        reload: loads the model again for ``POST /weights``; None: it has no other weights.
    """

    def __init__(self, store: StreamStore, token: str | None, reload: Reload | None) -> None:
        self.store, self.token, self.reload = store, token, reload
        self.began = time.monotonic()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the store's thread while the application runs."""
        loop = asyncio.get_running_loop()

        def deliver(outcomes: Outcomes) -> None:
            loop.call_soon_threadsafe(settle, outcomes)

        self.batcher = Batcher(self.store, deliver)
        yield
        await asyncio.to_thread(self.batcher.close)

    async def take(self, step: Step) -> Answer:
        """Take one step."""
        ticket: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.batcher.step(step, ticket)
        return await ticket

    async def call(self, work: Callable[[StreamStore], Any], *ids: str) -> Any:
        """Call a function of the store, in the order of the requests of these streams."""
        ticket: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.batcher.call(work, ticket, ids or None)
        return await ticket

    def parse(self, given: Any, id: str | None = None) -> Step:
        """Return the step that a JSON object describes."""
        if not isinstance(given, Mapping):
            raise RefusedError(400, f"body: it is {type(given).__name__}; give an object with inputs")
        for name in given:
            if name not in ("id", "inputs", "is_first", "at"):
                raise RefusedError(400, f"{name[:80]}: there is no such field; give id, inputs, is_first or at")
        id, is_first, at = given.get("id") if id is None else id, given.get("is_first", False), given.get("at")
        if not isinstance(id, str):
            raise RefusedError(400, f"id={id!r}: name a stream")
        if not isinstance(is_first, bool):
            raise RefusedError(400, f"is_first={is_first!r}: give true or false")
        if at is not None and (isinstance(at, bool) or not isinstance(at, int)):
            raise RefusedError(400, f"at={at!r}: give the number of steps that the stream has taken")
        if "inputs" not in given:
            raise RefusedError(422, f"inputs: they are missing; give {', '.join(self.store.interface.inputs)}")
        return Step(id, self.store.interface.parse(given["inputs"]), is_first, at)

    async def health(self, request: Request) -> Response:
        """Answer whether steps are taken."""
        is_alive = self.batcher.is_alive
        status = {"status": "ok" if is_alive else "the thread of the model has ended", "weights": self.store.version}
        return JSONResponse(status, 200 if is_alive else 503)

    async def metrics(self, request: Request) -> Response:
        """Answer all figures."""
        text = render_metrics(self.store, self.batcher, time.monotonic() - self.began)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def model(self, request: Request) -> Response:
        """Answer what a step reads and answers."""
        config = self.store.config
        limits = {name: getattr(config, name) for name in ("capacity", "rollback", "most_rows", "most_bytes")}
        return JSONResponse(self.store.interface.describe() | {"weights": self.store.version, "limits": limits})

    async def create(self, request: Request) -> Response:
        """Begin a stream."""
        id = (await self.body(request, "id")).get("id")
        return JSONResponse(await self.call(lambda store: store.about(store.create(id))), 201)

    async def stream(self, request: Request) -> Response:
        """Answer what is known of a stream, or end it."""
        id = request.path_params["id"]
        if request.method == "DELETE":
            await self.call(lambda store: store.delete(id), id)
            return Response(status_code=204)
        return JSONResponse(await self.call(lambda store: store.about(id), id))

    async def step(self, request: Request) -> Response:
        """Take one step of a stream."""
        step = self.parse(await self.body(request), request.path_params["id"])
        return JSONResponse(to_data(await self.take(step)))

    async def steps(self, request: Request) -> Response:
        """Take one step of each of several streams; one that is refused does not stop the others."""
        wanted = (await self.body(request, "steps")).get("steps")
        if not isinstance(wanted, list) or len(wanted) > self.store.config.most_waiting:
            raise RefusedError(400, f"steps: give a list of at most {self.store.config.most_waiting} steps")

        async def one(given: Any) -> dict[str, Any]:
            try:
                return to_data(await self.take(self.parse(given)))
            except RefusedError as refusal:
                return {"error": str(refusal), "status": refusal.status}

        return JSONResponse({"answers": await asyncio.gather(*map(one, wanted))})

    async def act(self, request: Request) -> Response:
        """Fork a stream, roll it back, or send it to disk and back."""
        id, action = request.path_params["id"], request.path_params["action"]
        if action == "fork":
            new = (await self.body(request, "id")).get("id")
            ids = (id,) if new is None else (id, str(new))
            return JSONResponse(await self.call(lambda store: store.about(store.fork(id, new)), *ids), 201)
        if action == "rollback":
            steps = (await self.body(request, "steps")).get("steps")
            if isinstance(steps, bool) or not isinstance(steps, int):
                raise RefusedError(400, f"steps={steps!r}: give the number of steps to undo")
            work: Callable[[StreamStore], Any] = lambda store: store.roll_back(id, steps)  # noqa: E731
        elif action in ("evict", "restore"):
            work = lambda store: getattr(store, action)(id)  # noqa: E731
        else:
            raise RefusedError(404, f"{action}: there is no such request; use step, fork, rollback, evict or restore")

        def act(store: StreamStore) -> dict[str, Any]:
            work(store)
            return store.about(id)

        return JSONResponse(await self.call(act, id))

    async def weights(self, request: Request) -> Response:
        """Load the model again, while steps go on, and continue all streams under its weights."""
        if self.reload is None:
            raise RefusedError(
                409, "weights: this server has no source of other weights; start one with a run or a folder"
            )
        try:
            model = await asyncio.to_thread(self.reload)
        except (ValueError, OSError) as error:
            raise RefusedError(409, f"weights: the old ones stay, {error}") from error
        return JSONResponse({"weights": await self.call(lambda store: store.swap(model))})

    async def client(self, request: Request) -> Response:
        """Answer the source of a client."""
        name = request.path_params["name"]
        kinds = {"client.py": "text/x-python", "client.mjs": "text/javascript"}
        if name not in kinds:
            raise RefusedError(404, f"{name[:80]}: there is no such page")
        return Response(files("recollect.serving").joinpath(name).read_text(), media_type=kinds[name])

    async def frames(self, socket: WebSocket) -> None:
        """Take a step of one stream for every message; a client that vanishes leaves the stream as it is."""
        offered = socket.scope.get("subprotocols", [])
        tokens = [offer.removeprefix("token.") for offer in offered if offer.startswith("token.")]
        if not self.is_allowed(socket.headers.get("authorization"), tokens):
            await socket.close(4401, "no token, or another one")
            return
        await socket.accept(PROTOCOL if PROTOCOL in offered else None)
        is_first = False
        try:
            while (message := await socket.receive())["type"] == "websocket.receive":
                try:
                    step = self.parse_message(message, socket.path_params["id"], is_first)
                    if step is None:
                        is_first = True
                        continue
                    answer = await self.take(step)
                    is_first = False  # not where it was refused: then the next step begins the episode
                    await socket.send_text(json.dumps(to_data(answer), allow_nan=False))
                except RefusedError as refusal:
                    await socket.send_text(json.dumps({"error": str(refusal), "status": refusal.status}))
        except (WebSocketDisconnect, ClientDisconnect, RuntimeError):
            return  # it has vanished

    def parse_message(self, message: Mapping[str, Any], id: str, is_first: bool) -> Step | None:
        """Return the step of a message; None for one that only says that an episode begins with the next."""
        raw = message.get("bytes")
        if raw is not None:
            return Step(id, self.parse_bytes(raw), is_first)
        given = from_json(message.get("text") or "")
        if given == {"is_first": True}:
            return None
        step = self.parse(given, id)
        return step._replace(is_first=step.is_first or is_first)

    def parse_bytes(self, raw: bytes) -> dict[str, np.ndarray]:
        """Return the inputs in a binary message: the only input that no step before has, little-endian, row by row."""
        interface = self.store.interface
        named = [port for port in interface.inputs.values() if port not in interface.carried]
        if len(named) != 1:
            raise RefusedError(422, f"inputs: this model reads {', '.join(interface.inputs)}; send them as JSON")
        port = named[0]
        dtype = np.dtype(str(port.dtype).removeprefix("torch.")).newbyteorder("<")
        if len(raw) != (size := dtype.itemsize * int(np.prod(port.shape))):
            raise RefusedError(
                422, f"{port.name}: a frame of {len(raw)} bytes; give {size}, {dtype.name} {list(port.shape)}"
            )
        return interface.parse({port.name: np.frombuffer(raw, dtype).reshape(port.shape)})

    async def body(self, request: Request, *fields: str) -> dict[str, Any]:
        """Return a JSON object with no other fields than these (any, if none is named); an empty body is an empty one.

        Raises:
            RefusedError: 413 too large, 400 not such an object.
        """
        most, found = self.store.config.most_bytes, bytearray()
        async for part in request.stream():
            found += part
            if len(found) > most:
                raise RefusedError(413, f"body: more than {most} bytes; send less, or raise the server's most_bytes")
        data = from_json(bytes(found)) if found else {}
        if not isinstance(data, dict):
            raise RefusedError(400, f"body: it is {type(data).__name__}; give an object")
        for name in data:
            if fields and name not in fields:
                raise RefusedError(400, f"{name[:80]}: there is no such field; give {', '.join(fields)}")
        return data

    def is_allowed(self, header: str | None, tokens: Sequence[str] = ()) -> bool:
        """Whether one of the tokens of a request is the server's."""
        if self.token is None:
            return True
        given = [*tokens, *([header[7:]] if header and header[:7].lower() == "bearer " else [])]
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given)

    def guarded(self, handler: Callable[[Request], Any], *, is_open: bool = False) -> Callable[[Request], Any]:
        """Return a handler that asks for the token, and answers refusals and errors as JSON."""

        async def handle(request: Request) -> Response:
            try:
                if not is_open and not self.is_allowed(request.headers.get("authorization")):
                    raise RefusedError(401, "token: none, or another one; send the header Authorization: Bearer TOKEN")
                return await handler(request)
            except RefusedError as refusal:
                headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(refusal.status)
                return JSONResponse({"error": str(refusal)}, refusal.status, headers)
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody reads

        return handle


def make_app(
    store: StreamStore, *, token: str | None, reload: Reload | None = None, origins: Sequence[str] = ()
) -> Starlette:
    """Return the ASGI application of a store.

    Args:
        store: of the streams; nobody else may call it from now on.
        token: that requests must send; None asks for none, for tests and behind a proxy that does.
        reload: loads the model again for ``POST /weights``.
        origins: pages of other servers that may ask, such as ``https://robots.example.org``.
    """
    front = Front(store, token, reload)
    routes = [
        Route("/health", front.guarded(front.health, is_open=True)),
        Route("/metrics", front.guarded(front.metrics)),
        Route("/model", front.guarded(front.model)),
        Route("/weights", front.guarded(front.weights), methods=["POST"]),
        Route("/step", front.guarded(front.steps), methods=["POST"]),
        Route("/streams", front.guarded(front.create), methods=["POST"]),
        Route("/streams/{id}", front.guarded(front.stream), methods=["GET", "DELETE"]),
        Route("/streams/{id}/step", front.guarded(front.step), methods=["POST"]),
        Route("/streams/{id}/{action}", front.guarded(front.act), methods=["POST"]),
        WebSocketRoute("/streams/{id}/frames", front.frames),
        Route("/{name}", front.guarded(front.client, is_open=True)),
    ]
    cors = Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    handlers: Any = {HTTPException: _http_error}
    middleware = [cors] if origins else []
    return Starlette(routes=routes, lifespan=front.lifespan, middleware=middleware, exception_handlers=handlers)


def from_json(text: str | bytes) -> Any:
    """Return JSON data, in which NaN is none.

    Raises:
        RefusedError: 400.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RefusedError):
            raise
        raise RefusedError(400, f"body: no JSON ({error}); send an object") from None


def to_data(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON data.

    Raises:
        RefusedError: 500, the model computed NaN or infinity.
    """
    for name, output in answer.outputs.items():
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            line = "the stream's memory or the weights are broken; begin an episode with is_first, or roll it back"
            raise RefusedError(500, f"outputs.{name} are not finite at step {answer.steps} of {answer.id!r}: {line}")
    outputs = {name: output.tolist() for name, output in answer.outputs.items()}
    return {"id": answer.id, "outputs": outputs, "steps": answer.steps, "weights": answer.weights}


def _refuse_constant(name: str) -> Any:
    raise RefusedError(422, f"inputs: {name} is no number of JSON; send finite numbers, or leave the step out")


async def _http_error(request: Request, error: HTTPException) -> Response:
    line = f"{request.method} {request.url.path[:80]}: {error.detail}; see the table of requests in docs/serve.md"
    return JSONResponse({"error": line}, error.status_code, error.headers)
