"""Java system properties for proxy and trust store.

They are set in a variable that every JVM reads (and reports on stderr).

java.net.http, HttpURLConnection, OkHttp and libraries built on them use these properties; Apache HttpClient
does if it is configured to use system properties. None of them sends proxy credentials by properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from stillweb.proxy.net.told import JAVA_PASSWORD

VARIABLE = "JAVA_TOOL_OPTIONS"


def java_proxy(proxy_url: str) -> dict[str, str]:
    """Return the properties of a proxy."""
    at = urlsplit(proxy_url)
    return {
        f"{scheme}.proxy{part}": str(value)
        for scheme in ("http", "https")
        for part, value in (("Host", at.hostname), ("Port", at.port))
    }


def java_past(hosts: Sequence[str]) -> dict[str, str]:
    """Return the property of hosts that bypass the proxy.

    Java takes no ports there. An empty list means that no host bypasses it, not even localhost.
    """
    return {"http.nonProxyHosts": "|".join(dict.fromkeys(re.sub(r":\d+$", "", host) for host in hosts))}


def java_trust(store: Path) -> dict[str, str]:
    """Return the properties of a trust store."""
    return {
        "javax.net.ssl.trustStore": str(store),
        "javax.net.ssl.trustStoreType": "JKS",
        "javax.net.ssl.trustStorePassword": JAVA_PASSWORD,
    }


def with_properties(environment: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with these Java properties in place of earlier values of the same ones."""
    present = environment.get(VARIABLE, "")
    words = []
    for name, value in properties.items():
        present = re.sub(rf"""-D{re.escape(name)}=(?:"[^"]*"|'[^']*'|[^\s"'])*\s*""", "", present)
        quote = "'" if '"' in value else '"'
        words.append(
            f"-D{name}={quote}{value}{quote}" if re.search(r"""[\s"'|]""", value) else f"-D{name}={value}"
        )
    return {**environment, VARIABLE: " ".join(filter(None, [present.strip(), *words]))}
