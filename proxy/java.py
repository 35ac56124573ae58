"""What Java is told by: properties, in a variable that each of its machines reads (and says so on standard error).

java.net.http, HttpURLConnection, OkHttp and what is built on them go by these; Apache's HttpClient where it is asked to
use the system's properties. None sends a name to a proxy by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from stillweb.proxy.wire.told import JAVA_PASSWORD

VARIABLE = "JAVA_TOOL_OPTIONS"


def java_proxy(proxy_url: str) -> dict[str, str]:
    """The properties of a proxy."""
    at = urlsplit(proxy_url)
    return {
        f"{scheme}.proxy{part}": str(value)
        for scheme in ("http", "https")
        for part, value in (("Host", at.hostname), ("Port", at.port))
    }


def java_past(hosts: Sequence[str]) -> dict[str, str]:
    """Those of hosts that are asked directly; Java knows no ports there, and without any host means it."""
    return {"http.nonProxyHosts": "|".join(dict.fromkeys(re.sub(r":\d+$", "", host) for host in hosts))}


def java_trust(store: Path) -> dict[str, str]:
    """Those of a trust store."""
    return {
        "javax.net.ssl.trustStore": str(store),
        "javax.net.ssl.trustStoreType": "JKS",
        "javax.net.ssl.trustStorePassword": JAVA_PASSWORD,
    }


def with_properties(environment: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Java has these properties, in place of what the same ones were."""
    present = environment.get(VARIABLE, "")
    words = []
    for name, value in properties.items():
        present = re.sub(rf"""-D{re.escape(name)}=(?:"[^"]*"|'[^']*'|[^\s"'])*\s*""", "", present)
        quote = "'" if '"' in value else '"'
        words.append(
            f"-D{name}={quote}{value}{quote}" if re.search(r"""[\s"'|]""", value) else f"-D{name}={value}"
        )
    return {**environment, VARIABLE: " ".join(filter(None, [present.strip(), *words]))}
