"""Requests that are refused: an HTTP status and one line with field, value and remedy."""


class RefusedError(ValueError):
    """A request that is refused; it changed nothing, except a step whose outputs are not finite, which counts.

    Args:
        status: of HTTP: 400 a bad request, 401 no token, 404 no such stream, 409 another state than expected, 410 a
            damaged file, 413 too large, 422 invalid inputs, 500 a broken model, 503 too busy, 507 full.
        line: field, value and remedy.
    """

    def __init__(self, status: int, line: str) -> None:
        # Names in a request may hold halves of characters, which an answer in UTF-8 cannot.
        super().__init__(line.encode(errors="backslashreplace").decode())
        self.status = status
