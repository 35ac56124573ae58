"""Where the sites of a recording were found. One name for two servers can't be told apart by its URLs."""

from __future__ import annotations

import ipaddress

from stillweb.proxy.wire.addresses import host_port

Place = tuple[str, int]


class Places:
    """The server of each name that requests had in their Host field."""

    def __init__(self) -> None:
        self._of: dict[str, Place] = {}
        self._told: set[str] = set()

    def doubt(self, site: str, place: Place) -> str | None:
        """What is to be told, once, of a site (scheme://host:port) that is asked for at a place; None for nothing."""
        site = site.lower()
        place = place[0].lower(), place[1]
        other = self._of.setdefault(site, place)
        if place == other or site in self._told:
            return None
        if place[1] == other[1] and _is_address(place[0]) and _is_address(other[0]):
            return None  # a client that looks names up itself takes any of their addresses
        self._told.add(site)
        return (
            f"asked of {host_port(*other)} and of {host_port(*place)} under the name in its Host field: "
            "a replay can't tell the answers of both apart"
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
