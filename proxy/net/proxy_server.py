"""Base class of our proxies: the listening address, and the naming of sessions."""

from __future__ import annotations

from pathlib import Path

from stillweb.proxy.net.addresses import DEFAULT_SESSION, host_port, with_session
from stillweb.proxy.net.ca import Authority


class ProxyServer:
    """A proxy server. `port` 0 stands for the port that it gets on start.

    `challenge` is True if clients without a user name get a 407; None means: as soon as `proxy_url` has been
    called with a name other than "default".
    """

    def __init__(self, authority: Authority | None, host: str, port: int, challenge: bool | None) -> None:
        self.authority = authority or Authority.load_or_create()
        self._host = host
        self._port = port
        self._challenge = challenge

    def _ask_for_names(self) -> None:
        """Send 407 to clients that don't name their session, from now on. May be called again."""
        raise NotImplementedError

    def set_default_session(self, session: str) -> None:
        """Assign clients without proxy credentials to `session`, and don't send 407.

        This is for the proxy of one program: many clients can't send credentials. Call it once, before the
        first request.
        """
        raise NotImplementedError

    @property
    def port(self) -> int:
        return self._port

    @property
    def place(self) -> tuple[str, int]:
        return self._host, self._port

    @property
    def url(self) -> str:
        """Return the proxy's address, without a session."""
        return f"http://{host_port(self._host, self._port)}"

    def proxy_url(self, session: str = DEFAULT_SESSION) -> str:
        """Return the proxy's address for a session name: any printable text without ':' and '%'."""
        url = with_session(self.url, session)
        if session != DEFAULT_SESSION and self._challenge is None:
            self._ask_for_names()
        return url

    @property
    def ca_path(self) -> Path:
        """Return the file with the certificate that clients must trust (PEM)."""
        return self.authority.certificate_path
