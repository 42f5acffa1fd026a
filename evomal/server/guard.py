"""Which requests the server accepts (hosts, origins, token), and the headers that restrict what its pages may do."""

import hmac
import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-evomal-token"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Pages may load only the server's own files, and no page of another site may embed or read them."""
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:/@\s]+)(:[0-9]{1,5})?")


def is_allowed_host(value: str, names: Iterable[str]) -> bool:
    """Whether a Host header is an IP address, `localhost` or one of the names.

    Another site can let its own name resolve to this machine, and its pages could then read ours (DNS rebinding); with
    an IP address it cannot.
    """
    found = _HOST.fullmatch(value)
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    if name in {"localhost", *(one.lower() for one in names)}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_same_token(given: str, token: str) -> bool:
    """Whether the token is right, in a time that does not depend on where it differs."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


class Guard:
    """Refuses requests from other sites, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, tuple(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        answer = self._app if refusal is None else PlainTextResponse(*refusal)
        await answer(scope, receive, sending)

    def _refusal(self, method: str, headers: Headers) -> tuple[str, int] | None:
        host = headers.get("host", "")
        if not is_allowed_host(host, self._names):
            return "This host name is not served; allow it with --name.\n", 421
        if method in ("GET", "HEAD"):
            return None
        is_same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not is_same_site or _is_foreign(headers.get("origin"), host):
            return "Requests from other sites are refused.\n", 403
        return None


def _is_foreign(origin: str | None, host: str) -> bool:
    """Whether an Origin header names another site, or nothing that could be this one."""
    try:
        return origin is not None and urlsplit(origin).netloc != host
    except ValueError:
        return True
