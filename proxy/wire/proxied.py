"""The addresses of a proxy of ours: where it listens, and how a session is named to it."""

from __future__ import annotations

from pathlib import Path

from stillweb.proxy.wire.addresses import DEFAULT_SESSION, host_port, with_session
from stillweb.proxy.wire.certificates import Authority


class Proxied:
    """Something that listens as a proxy. `port` 0 stands for the one that it takes once it is started.

    `challenge` says whether clients without a user name are asked for one; None means: as soon as `proxy_url` has been
    called with a name other than "default".
    """

    def __init__(self, authority: Authority | None, host: str, port: int, challenge: bool | None) -> None:
        self.authority = authority or Authority.load_or_create()
        self._host = host
        self._port = port
        self._challenge = challenge

    def _ask_for_names(self) -> None:
        """From now on clients that don't name their session are asked for it. May be called again."""
        raise NotImplementedError

    def nameless_are(self, session: str) -> None:
        """Clients that give no name, which many can't, are that session's, and are asked for none: one program's proxy.

        To be called once, before anything was asked.
        """
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    @property
    def place(self) -> tuple[str, int]:
        """Address and port."""
        return self._host, self._port

    @property
    def url(self) -> str:
        """The proxy's address, without a session."""
        return f"http://{host_port(self._host, self._port)}"

    def proxy_url(self, session: str = DEFAULT_SESSION) -> str:
        """The proxy's address for a session of that name (any printable text without ':' and '%')."""
        url = with_session(self.url, session)
        if session != DEFAULT_SESSION and self._challenge is None:
            self._ask_for_names()
        return url

    @property
    def ca_path(self) -> Path:
        """The certificate that clients must trust (PEM)."""
        return self.authority.certificate_path
