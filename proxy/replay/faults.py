"""Faults: disturbances of replay on purpose, chosen by URL, method, session, count or a seeded draw.

The members of a fault file are in docs/drills.md. A draw is a hash of seed, fault, session, request and how often
the session made that request, so neither a clock nor the order of concurrent requests takes part in it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from http import HTTPStatus
from statistics import NormalDist
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from stillweb.snapshots.capture import PARTIAL, Capture, Response
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.shapes import convert
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
_KINDS = ("status", "reset", "cut", "login", "stale", "captcha")  # a fault has at most one of these
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]
Text = Annotated[str, Meta(min_length=1)]
Count = (
    Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern=r"^[1-9][0-9]*(-[0-9]*)?$")]
)  # 3, "2-4", "3-"
_CAPTCHA = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Are you a human?</title></head>
<body><h1>Please confirm that you are a human</h1>
<p>Unusual traffic came from your network. Solve the puzzle to go on.</p>
<form method="post"><label>Letters in the picture <input name="captcha" autocomplete="off"></label>
<button>Continue</button></form></body></html>
"""


def _reason(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Fault"


class Delay(Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution of seconds: from least to most, by mean and standard deviation, or by mean."""

    uniform: tuple[Seconds, Seconds] | None = None
    normal: tuple[Seconds, Seconds] | None = None
    exponential: Seconds | None = None

    def __post_init__(self) -> None:
        if [self.uniform, self.normal, self.exponential].count(None) != 2:
            raise ValueError("must have one of uniform, normal, exponential")
        if self.uniform and self.uniform[0] > self.uniform[1]:
            raise ValueError("uniform: the least, {:g}, is more than the most, {:g}".format(*self.uniform))

    def seconds(self, drawn: float) -> float:
        """Return the delay for a number from 0 up to 1."""
        if self.uniform:
            least, most = self.uniform
            return least + (most - least) * drawn
        if self.exponential is not None:
            return -self.exponential * math.log(1 - drawn)
        mean, deviation = self.normal or (0.0, 0.0)
        return NormalDist(mean, deviation).inv_cdf(min(max(drawn, 1e-9), 1 - 1e-9)) if deviation else mean


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Entry of a fault file. `pace` is in bytes per second. `cut` keeps so many bytes of a body, or a share."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    url: Text = "*"
    method: Text | list[Text] = []
    session: Text = "*"
    nth: Count | list[Count] = []
    per: Literal["session", "request"] = "session"  # `nth` counts all requests of a session, or each apart
    probability: Annotated[float, Meta(ge=0, le=1)] = 1
    delay: Seconds | Delay | None = None
    pace: Annotated[float, Meta(gt=0)] = 0
    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    retry_after: Annotated[int, Meta(ge=0)] | None = None
    reset: bool = False
    cut: Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern="^[0-9]{1,2}%$")] | None = None
    login: bool | Annotated[str, Meta(pattern="^(https?://|/)")] = False
    stale: bool = False
    captcha: bool | Annotated[int, Meta(ge=200, le=599)] = False

    def __post_init__(self) -> None:
        kinds = self._kinds
        if len(kinds) > 1:
            raise ValueError(f"has {kinds[0]} and {kinds[1]}. Make two faults of them")
        if not kinds and self.delay is None and not self.pace:
            raise ValueError(f"says nothing of what goes wrong. Add one of delay, pace, {', '.join(_KINDS)}")
        if self.retry_after is not None and self.status is None:
            raise ValueError("retry_after goes only with status")
        if "CONNECT" in self.methods and (self.pace or self.kind in ("cut", "stale")):
            raise ValueError("method: CONNECT goes only with delay, status, reset, login and captcha")
        if any(first > last for first, last in self._counts):
            raise ValueError("nth: the first count is more than the last")

    @property
    def _kinds(self) -> list[str]:
        values = {kind: getattr(self, kind) for kind in _KINDS}
        return [kind for kind, value in values.items() if value is not None and value is not False]

    @cached_property
    def kind(self) -> str:
        """The member by which the answer is another one; "" for a fault that only slows an answer down."""
        return next(iter(self._kinds), "")

    @cached_property
    def methods(self) -> frozenset[str]:
        return frozenset(one.upper() for one in _listed(self.method))

    @cached_property
    def _counts(self) -> list[tuple[int, float]]:
        parts = [str(one).partition("-") for one in _listed(self.nth)]
        return [
            (int(first), int(last or 0) or math.inf if dash else int(first)) for first, dash, last in parts
        ]

    @cached_property
    def _url(self) -> re.Pattern[str]:
        return _glob(self.url)

    def meets(self, request: Request) -> bool:
        """Return True if the fault is for such requests."""
        # a tunnel is not a request of the client's program: only a fault that names it applies
        method = request.method.upper()
        named = method in self.methods or (not self.methods and method != "CONNECT")
        return named and self._url.fullmatch(request.url) is not None

    def counts(self, number: int) -> bool:
        """Return True if the fault is for the request of this number."""
        return not self._counts or any(first <= number <= last for first, last in self._counts)

    def seconds(self, drawn: float) -> float:
        """Return the delay for a number from 0 up to 1."""
        seconds = self.delay.seconds(drawn) if isinstance(self.delay, Delay) else self.delay or 0.0
        return round(min(max(seconds, 0.0), LONGEST), 3)

    @property
    def replaces(self) -> bool:
        """True for a fault whose answer is not the recorded one in any part."""
        return self.kind in ("status", "login", "captcha", "reset")

    def response(self) -> Response | None:
        """Return the response that stands in for the recorded one; None for a fault that changes the recorded one."""
        media, fields = "text/plain; charset=utf-8", Headers()
        if self.status is not None:
            status, text = self.status, f"{self.status} {_reason(self.status)}\n"
            fields = () if self.retry_after is None else (("Retry-After", str(self.retry_after)),)
        elif self.login is True:
            status, text = 401, "Your session has expired. Sign in again.\n"
            fields = (("WWW-Authenticate", 'Bearer error="invalid_token"'),)
        elif self.login:
            status, text, fields = 302, "Sign in again.\n", (("Location", self.login),)
        elif self.captcha:
            status, text = 403 if self.captcha is True else self.captcha, _CAPTCHA
            media = "text/html; charset=utf-8"
        else:
            return None
        body = text.encode()
        size = ("Content-Length", str(len(body)))
        fields = (("Content-Type", media), size, ("Cache-Control", "no-store"), *fields)
        return Response(status, _reason(status), fields, body)


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
        cut = str(self.fault.cut or 0)
        return size * int(cut[:-1]) // 100 if cut.endswith("%") else int(cut)

    def client_error(self) -> str:
        """Return the error of an HTTP client whose answer was reset or cut, as httpx words it; "" if neither was."""
        if self.fault.kind == "cut":
            return "RemoteProtocolError('peer closed connection without sending complete message body')"
        return "ReadError('')" if self.fault.kind == "reset" else ""


class FaultSession:
    def __init__(self, faults: Faults, name: str) -> None:
        self._seed = faults.seed
        self._name = name
        self._faults = [one for one in faults.all if _glob(one.session).fullmatch(name)]
        self._counts: Counter[tuple[str, str]] = Counter()

    def meet(self, request: Request) -> FaultHit | None:
        """Count the request and return the first fault that it meets."""
        hit: FaultHit | None = None
        found = [fault for fault in self._faults if fault.meets(request)]
        asked = (request.method.encode(), request.url.encode("utf-8", "replace"), request.body)
        same = sha256(b"\0".join(asked)).hexdigest() if found else ""
        for fault in found:
            self._counts[fault.id, ""] += 1
            self._counts[fault.id, same] += 1
            if hit is not None or not fault.counts(
                self._counts[fault.id, same if fault.per == "request" else ""]
            ):
                continue
            drawn = f"{self._seed}\0{fault.id}\0{self._name}\0{same}\0{self._counts[fault.id, same]}"
            if fault.probability == 1 or _draw(drawn, "met") < fault.probability:
                hit = FaultHit(fault, fault.seconds(_draw(drawn, "delay")))
        return hit


class _File(Struct, forbid_unknown_fields=True):
    faults: Annotated[list[Fault], Meta(min_length=1)]
    seed: int = 0


class Faults:
    """The faults of a fault file. `source` is its content, plain JSON, which decides all of them."""

    def __init__(self, source: Mapping[str, Any], where: str = "faults") -> None:
        """Check the content of a fault file. Raise UsageError naming `where` and the wrong field."""
        try:
            file = convert(source, _File)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        self.source, self.seed, self.all = dict(source), file.seed, file.faults
        names = Counter(one.id for one in self.all)
        if twice := [name for name, count in names.items() if count > 1]:
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


def _glob(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which * stands for any text."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _draw(drawn: str, what: str) -> float:
    """Return a number from 0 up to 1 that the texts decide."""
    return int.from_bytes(sha256(f"{drawn}\0{what}".encode()).digest()[:6]) / 2**48
