"""Serve a model of a run or a folder: load it, and run the application with uvicorn until Ctrl-C or SIGTERM."""

import re
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

from torch import nn

from recollect.agents.model_sources import ask_hub_again
from recollect.config import require
from recollect.runs.interrupts import Interrupts
from recollect.serving.config import ServingConfig
from recollect.training.saved_models import load_model

LOOPBACK = "127.0.0.1"


def serve(
    source: str | PathLike[str],
    config: ServingConfig | None = None,
    *,
    host: str = LOOPBACK,
    port: int = 8000,
    token: str | None = None,
    origins: Sequence[str] = (),
    load_options: dict[str, Any] | None = None,
    announce: Callable[[str, str], None] = lambda address, token: None,
) -> None:
    """Serve live streams of a model until Ctrl-C, SIGTERM or SIGHUP; what waits is answered first.

    Args:
        source: run directory, model folder, ``model:NAME`` or ``hub:OWNER/NAME``; ``POST /weights`` loads it again.
        config: limits.
        host: address to listen on; the loopback address is seen by this machine alone.
        port: 0 for a free one.
        token: that requests must send; a random one when None.
        origins: pages of other servers that may ask.
        load_options: of :func:`recollect.load`: device, best, trust.
        announce: called with address and token when the port is open.

    Raises:
        ValueError: there is no such model, it takes no single steps, or the port is in use; or starlette or uvicorn is
            missing.
    """
    try:
        import uvicorn

        from recollect.serving.app import make_app
    except ImportError as error:
        raise ValueError(f"serve needs {error.name}: pip install recollect-torch[serve]") from None
    from recollect.serving.store import StreamStore

    is_sent = token is None or re.fullmatch("[!-~]+", token) is not None  # as a header: no space, no line break
    require(is_sent, "token", token, "give ASCII characters without spaces, or leave it out for a random one")
    token = secrets.token_urlsafe(24) if token is None else token
    options = load_options or {}
    config = ServingConfig() if config is None else config
    listener = _listen(host, port)
    with listener:
        store = StreamStore(load_model(source, **options), config)

        def reload() -> nn.Module:
            ask_hub_again()
            return load_model(source, **options)

        app = make_app(store, token=token, reload=reload, origins=origins)
        settings = uvicorn.Config(
            app, log_level="warning", access_log=False, ws_max_size=config.most_bytes, timeout_graceful_shutdown=5
        )
        announce(http_address(host, listener.getsockname()[1]), token)
        server = uvicorn.Server(settings)
        with _ended_by_signals(server):
            server.run(sockets=[listener])


def http_address(host: str, port: int) -> str:
    """Return the URL of a host and a port; an IPv6 address is in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def _ended_by_signals(server: Any) -> Iterator[None]:
    """Let signals end a server, and nothing else: uvicorn raises them again when it has ended, to end the process.

    Outside the main thread Python delivers no signals, and the context does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    chosen = [number for number in Interrupts.SIGNALS if is_main and signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, server.handle_exit) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    """Open a port before the model is loaded, so that one in use is known at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"host={host!r}, port={port}: {reason}; give another --host or --port; port 0 is a free one"
        ) from None
    return listener
