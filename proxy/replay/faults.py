"""Faults: disturbances of replay on purpose, chosen by URL, method, session, count or a seeded draw.

The members of a fault file are in docs/drills.md. A draw is a hash of seed, fault, session, request and how often
the session made that request, so neither a clock nor the order of concurrent requests takes part in it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import NormalDist
from typing import Any

from stillweb.snapshots.capture import PARTIAL, Capture, Response
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot


def read_pace(text: str) -> float:
    """Return the factor of recorded times: 0 for "none", 1 for "recorded", N for "xN" or "×N". Raises UsageError."""
    if text in ("none", "recorded"):
        return float(text == "recorded")
    found = re.fullmatch(r"[x×](\d{1,4}(?:\.\d{1,3})?)", text)
    if found is None or not float(found[1]):
        raise UsageError(f"timing: must be none, recorded or xN, such as x2 or x0.5, not {text!r}")
    return float(found[1])


LONGEST = 3600.0  # seconds; no client waits longer
_MEMBERS = frozenset(
    [
        *("id", "url", "method", "session", "nth", "per", "probability", "delay", "pace", "status"),
        *("retry_after", "reset", "cut", "login", "stale", "captcha"),
    ]
)
_KINDS = ("status", "reset", "cut", "login", "stale", "captcha")  # a fault has at most one of these
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RANGE = re.compile(r"(\d+)(?:(-)(\d*))?")
_REASONS = {
    301: "Moved Permanently", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 408: "Request Timeout", 410: "Gone", 429: "Too Many Requests", 451: "Unavailable For Legal Reasons",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
_CAPTCHA = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Are you a human?</title></head>
<body><h1>Please confirm that you are a human</h1>
<p>Unusual traffic came from your network. Solve the puzzle to go on.</p>
<form method="post"><label>Letters in the picture <input name="captcha" autocomplete="off"></label>
<button>Continue</button></form></body></html>
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """Entry of a fault file. `kind` is "" for a fault that only slows an answer down.

    `nth` holds ranges of counts; the last number None is without end. `delay` is a distribution and its numbers,
    in seconds. `pace` is in bytes per second. `cut` keeps so many bytes of a body, or a share below 1.
    """

    id: str
    url: re.Pattern[str]
    session: re.Pattern[str]
    methods: frozenset[str]
    nth: tuple[tuple[int, int | None], ...]
    each: bool  # True if `nth` counts each request apart
    probability: float
    kind: str
    delay: tuple[str, float, float]
    pace: float
    status: int
    fields: Headers
    body: bytes
    cut: float

    @property
    def replaces(self) -> bool:
        """True for a fault whose answer is not the recorded one in any part."""
        return self.kind in ("status", "login", "captcha", "reset")

    def response(self) -> Response | None:
        """Return the response that stands in for the recorded one; None for a fault that changes the recorded one."""
        if self.kind not in ("status", "login", "captcha"):
            return None
        media = "text/html; charset=utf-8" if self.kind == "captcha" else "text/plain; charset=utf-8"
        fields = (
            ("Content-Type", media),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            *self.fields,
        )
        return Response(self.status, _REASONS.get(self.status, "Fault"), fields, self.body)


@dataclass(frozen=True, slots=True)
class FaultHit:
    """A fault that a request met, with the delay that was drawn for it in seconds."""

    fault: Fault
    delay: float

    @property
    def verdict(self) -> str:
        return f"fault:{self.fault.id}"

    def members(self) -> dict[str, Any]:
        """Return the member that the ledger line of the answer has."""
        told: dict[str, Any] = {"kind": self.fault.kind or ("pace" if self.fault.pace else "delay")}
        if self.delay:
            told["delay"] = self.delay
        return {"fault": told}

    def bytes_left(self, size: int) -> int:
        """Return how many of `size` bytes a cut leaves."""
        cut = self.fault.cut
        return int(cut * size) if 0 < cut < 1 else int(cut)

    def client_error(self) -> str:
        """Return the error of an HTTP client whose answer was reset or cut, as httpx words it; "" if neither was."""
        if self.fault.kind == "cut":
            return "RemoteProtocolError('peer closed connection without sending complete message body')"
        return "ReadError('')" if self.fault.kind == "reset" else ""


class FaultSession:
    def __init__(self, faults: Faults, name: str) -> None:
        self._seed = faults.seed
        self._name = name
        self._faults = [one for one in faults.all if one.session.fullmatch(name)]
        self._counts: Counter[tuple[str, str]] = Counter()

    def meet(self, request: Request) -> FaultHit | None:
        """Count the request and return the first fault that it meets."""
        hit: FaultHit | None = None
        same = ""
        for fault in self._faults:
            method = request.method.upper()
            if method not in fault.methods and (fault.methods or method == "CONNECT"):
                continue  # a tunnel is not a request of the client's program: only a fault that names it applies
            if not fault.url.fullmatch(request.url):
                continue
            same = (
                same
                or sha256(
                    b"\0".join(
                        (request.method.encode(), request.url.encode("utf-8", "replace"), request.body)
                    )
                ).hexdigest()
            )
            self._counts[fault.id, ""] += 1
            self._counts[fault.id, same] += 1
            if hit is not None:
                continue
            count = self._counts[fault.id, same if fault.each else ""]
            if fault.nth and not any(a <= count and (b is None or count <= b) for a, b in fault.nth):
                continue
            drawn = f"{self._seed}\0{fault.id}\0{self._name}\0{same}\0{self._counts[fault.id, same]}"
            if fault.probability < 1 and _draw(drawn, "met") >= fault.probability:
                continue
            hit = FaultHit(fault, _seconds(fault.delay, _draw(drawn, "delay")))
        return hit


class Faults:
    """The faults of a fault file. `source` is its content, plain JSON, which decides all of them."""

    def __init__(self, source: Mapping[str, Any], where: str = "faults") -> None:
        """Check the content of a fault file. Raise UsageError naming `where` and the wrong field."""
        known = {"seed", "faults"}
        if unknown := sorted(set(source) - known):
            raise UsageError(f"{where}: unknown field {unknown[0]!r}. Known are {', '.join(sorted(known))}")
        self.seed = source.get("seed", 0)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"{where}: seed: must be a whole number, not {self.seed!r}")
        entries = source.get("faults")
        if not isinstance(entries, list) or not entries:
            raise UsageError(f"{where}: faults: must be a list of at least one fault")
        self.source = dict(source)
        self.all = [_read(entry, f"{where}: faults[{i}]") for i, entry in enumerate(entries)]
        names = [one.id for one in self.all]
        if twice := [name for i, name in enumerate(names) if name in names[:i]]:
            raise UsageError(f"{where}: faults: the id {twice[0]!r} stands twice. Give each fault its own")

    def session(self, name: str) -> FaultSession:
        """Return the faults of a session, counted from its start."""
        return FaultSession(self, name)


def older(snapshot: Snapshot, request: Request, capture: Capture) -> Capture | None:
    """Return the first answer recorded to a request, as a stale cache holds it; None if there is none before `capture`."""
    key = request_key(request)
    found = [
        one
        for one in snapshot.candidates(key.urlkey)
        if one.method == request.method and one.key == key.canonical and one.status not in PARTIAL
    ]
    first = min(found, key=lambda one: (one.timestamp, one.place), default=None)
    if first is None or first.timestamp >= capture.timestamp or first.digest == capture.digest:
        return None
    return first


def stale_fields(old: Capture, new: Capture) -> Headers:
    """Return the fields of an answer from a stale cache (RFC 9111, 5.1 and 5.5)."""
    from stillweb.snapshots.dates import parse_timestamp

    then, now = parse_timestamp(old.timestamp[:14]), parse_timestamp(new.timestamp[:14])
    age = max(0, int((now - then).total_seconds())) if then and now else 0
    return (("Age", str(age)), ("Warning", '110 - "Response is Stale"'))


def _read(entry: Any, where: str) -> Fault:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: must be a mapping, not {type(entry).__name__}")
    if unknown := sorted(set(entry) - _MEMBERS):
        raise UsageError(f"{where}: unknown field {unknown[0]!r}. Known are {', '.join(sorted(_MEMBERS))}")
    name = entry.get("id")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise UsageError(f"{where}.id: must be a name of letters, digits, '.', '_' and '-', not {name!r}")
    kinds = [kind for kind in _KINDS if entry.get(kind) not in (None, False)]
    if len(kinds) > 1:
        raise UsageError(f"{where}: has {kinds[0]} and {kinds[1]}. Make two faults of them")
    if not kinds and "delay" not in entry and "pace" not in entry:
        raise UsageError(
            f"{where}: says nothing of what goes wrong. Add one of delay, pace, {', '.join(_KINDS)}"
        )
    kind = kinds[0] if kinds else ""
    if "retry_after" in entry and kind != "status":
        raise UsageError(f"{where}.retry_after: goes only with status")
    plain = Fault(
        id=name,
        url=_glob(entry.get("url", "*"), f"{where}.url"),
        session=_glob(entry.get("session", "*"), f"{where}.session"),
        methods=_methods(entry.get("method"), f"{where}.method"),
        nth=_ranges(entry.get("nth"), f"{where}.nth"),
        each=_one_of(entry.get("per", "session"), ("session", "request"), f"{where}.per") == "request",
        probability=_number(entry.get("probability", 1), f"{where}.probability", 1),
        kind=kind,
        delay=_distribution(entry.get("delay", 0), f"{where}.delay"),
        pace=_number(entry["pace"], f"{where}.pace", math.inf, above=True) if "pace" in entry else 0,
        status=200,
        fields=(),
        body=b"",
        cut=0,
    )
    if "CONNECT" in plain.methods and (plain.pace or kind in ("cut", "stale")):
        raise UsageError(f"{where}.method: CONNECT goes only with delay, status, reset, login and captcha")
    return _with_kind(plain, entry, where)


def _with_kind(plain: Fault, entry: Mapping[str, Any], where: str) -> Fault:
    value = entry.get(plain.kind) if plain.kind else None
    match plain.kind:
        case "status":
            if isinstance(value, bool) or not isinstance(value, int) or not 400 <= value <= 599:
                raise UsageError(f"{where}.status: must be a status from 400 to 599, not {value!r}")
            after = entry.get("retry_after")
            if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
                raise UsageError(f"{where}.retry_after: must be whole seconds from 0 on, not {after!r}")
            fields = () if after is None else (("Retry-After", str(after)),)
            text = f"{value} {_REASONS.get(value, 'Error')}\n".encode()
            return replace(plain, status=value, fields=fields, body=text)
        case "login":
            if value is True:
                fields = (("WWW-Authenticate", 'Bearer error="invalid_token"'),)
                return replace(
                    plain, status=401, fields=fields, body=b"Your session has expired. Sign in again.\n"
                )
            if not isinstance(value, str) or not value.startswith(("http://", "https://", "/")):
                raise UsageError(
                    f"{where}.login: must be true (401) or the URL of a login page, not {value!r}"
                )
            return replace(plain, status=302, fields=(("Location", value),), body=b"Sign in again.\n")
        case "captcha":
            status = 403 if value is True else value
            if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
                raise UsageError(f"{where}.captcha: must be true (403) or a status, not {value!r}")
            return replace(plain, status=status, body=_CAPTCHA.encode())
        case "cut":
            if isinstance(value, str) and (share := re.fullmatch(r"(\d{1,2})%", value)):
                return replace(plain, cut=int(share[1]) / 100)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UsageError(f"{where}.cut: must be a number of bytes or a share as '50%', not {value!r}")
            return replace(plain, cut=float(value) if value else 0.0)
        case "reset" | "stale":
            if value is not True:
                raise UsageError(f"{where}.{plain.kind}: must be true, not {value!r}")
    return plain


def _glob(value: Any, where: str) -> re.Pattern[str]:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: must be a pattern in which * stands for any text, not {value!r}")
    return re.compile(".*".join(map(re.escape, value.split("*"))), re.DOTALL)


def _methods(value: Any, where: str) -> frozenset[str]:
    values = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise UsageError(f"{where}: must be a method or a list of methods, not {value!r}")
    return frozenset(one.upper() for one in values)


def _ranges(value: Any, where: str) -> tuple[tuple[int, int | None], ...]:
    ranges: list[tuple[int, int | None]] = []
    for one in value if isinstance(value, list) else [] if value is None else [value]:
        found = (
            _RANGE.fullmatch(str(one)) if isinstance(one, str | int) and not isinstance(one, bool) else None
        )
        first = int(found[1]) if found else 0
        last = first if not found or not found[2] else int(found[3]) if found[3] else None
        if first < 1 or (last is not None and last < first):
            raise UsageError(f"{where}: must be counts from 1 on as 3, '2-4' or '3-', not {one!r}")
        ranges.append((first, last))
    return tuple(ranges)


def _one_of(value: Any, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise UsageError(f"{where}: must be {' or '.join(known)}, not {value!r}")
    return str(value)


def _number(value: Any, where: str, most: float, *, above: bool = False) -> float:
    wrong = isinstance(value, bool) or not isinstance(value, int | float)
    if wrong or not 0 <= value <= most or (above and not value):
        limit = f" to {most:g}" if math.isfinite(most) else ""
        raise UsageError(f"{where}: must be a number {'above' if above else 'from'} 0{limit}, not {value!r}")
    return float(value)


def _distribution(value: Any, where: str) -> tuple[str, float, float]:
    if not isinstance(value, dict):
        return ("fixed", _number(value, where, LONGEST), 0.0)
    if len(value) != 1:
        raise UsageError(f"{where}: must be seconds or one of uniform, normal, exponential")
    name, given = next(iter(value.items()))
    _one_of(name, ("uniform", "normal", "exponential"), where)
    if name == "exponential":
        return (name, _number(given, f"{where}.{name}", LONGEST), 0.0)
    if not isinstance(given, list) or len(given) != 2:
        which = "least and most" if name == "uniform" else "mean and standard deviation"
        raise UsageError(f"{where}.{name}: must be a list of two numbers ({which}), not {given!r}")
    a, b = (_number(one, f"{where}.{name}[{i}]", LONGEST) for i, one in enumerate(given))
    if name == "uniform" and b < a:
        raise UsageError(f"{where}.{name}: the least, {a:g}, is more than the most, {b:g}")
    return (name, a, b)


def _draw(drawn: str, what: str) -> float:
    """Return a number from 0 up to 1 that the texts decide."""
    return int.from_bytes(sha256(f"{drawn}\0{what}".encode()).digest()[:6]) / 2**48


def _seconds(delay: tuple[str, float, float], drawn: float) -> float:
    name, a, b = delay
    if name == "uniform":
        a += (b - a) * drawn
    elif name == "exponential":
        a *= -math.log(1 - drawn)
    elif name == "normal" and b:
        a = NormalDist(a, b).inv_cdf(min(max(drawn, 1e-9), 1 - 1e-9))
    return round(min(max(a, 0.0), LONGEST), 3)
