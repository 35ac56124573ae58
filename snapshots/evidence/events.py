"""Events: what a request leaves in a session's history, and the history itself."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from sys import intern, maxsize
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote_plus, urlsplit

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.bodies import FORM, JSON, MULTIPART
from stillweb.snapshots.http.encodings import EncodingProblem, decode
from stillweb.snapshots.http.static import ASSET
from stillweb.snapshots.identity.irrelevant import irrelevant
from stillweb.snapshots.identity.keys import ParsedRequest, is_plain, mix, parse
from stillweb.snapshots.identity.operations import operations_of
from stillweb.snapshots.request import SAFE_METHODS, Request
from stillweb.snapshots.secrets.redact import PREFIX
from stillweb.snapshots.words import as_text, whole_number
from stillweb.snapshots.yielding import free, write_json

IDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")
_ACTION = r"(?:action|act|op|operation|cmd|command|do|task|event|method|_method|intent|__EVENTTARGET)"
_ACTION_NAME = re.compile(_ACTION)
_ACTION_VALUE = re.compile(rf"(?:^|,){_ACTION}=([^,]*)")
ACKNOWLEDGEMENT = 200  # bytes; a shorter JSON answer may say no more than "done"
ACKNOWLEDGED = 1 << 16  # bytes of the answer to a write that are looked at
_WORDS = re.compile(r"[a-z]+")
_REFUSING = re.compile(r"error|fail|invalid|denied", re.IGNORECASE)
# Words in the path of a write that says who asks, or in the action that it names
_SIGNING = set("auth login logoff logon logout session sessions signin signoff signon signout sso".split())  # noqa: SIM905
# The same of a POST that does something, however long its answer in JSON
_DOING = _SIGNING | set(
    """
    add append insert create new remove delete cart basket bag order orders checkout buy purchase vote upvote
    downvote like unlike follow increment decrement counter comment comments reply upload toggle undo redo
    transfer deposit withdraw pay move subscribe bid guess set select choose preference preferences setting
    settings option options switch update save apply reset clear change edit profile register signup
    """.split()  # noqa: SIM905
)
MASK = (1 << 64) - 1
MOST = 256  # numbers of a path and parameters of an event that are kept by name and value
LONG = 1024  # characters of a text that an event keeps
LIVED = 4096  # events of a session that are kept, however few were recorded
COMPARED = 4  # events of a request, the last ones, among which an equal one is looked for
SAY = "SAY"  # the method of messages over a web socket
REFUSED = " refused"  # ends the type of a write that was refused
Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One request in a session's history. `said` is a number for its answer, 0 while that is unknown."""

    type: str  # method, path and names of parameters without numbers, operation
    kind: str  # a kind of type, see priors
    key: int
    parameters: Parameters
    ids: tuple[str, ...]  # the numbers of its path and the values that it sends
    answer: int = 0
    status: int = 0  # of the answer
    fields: tuple[str, ...] = ()  # values of the header fields that an application made up
    trust: float = 1.0  # the chance that its answer was the server's

    @property
    def done(self) -> int:
        """Return a number for what the request did: its key, and the fields that an application made up."""
        return mix(self.key, self.fields) if self.fields else self.key

    @property
    def written(self) -> str:
        """Return the type, whether it was refused or not."""
        return self.type.removesuffix(REFUSED)

    @property
    def confirmed(self) -> bool:
        """Return True for a write that is answered by a redirect."""
        return 300 <= self.status < 400 and self.kind in ("sign-in", "write", "weak write")

    @property
    def away(self) -> bool:
        """Return True if the answer sends its client away: to another page, or because of who it is."""
        return (300 <= self.status < 400 and self.status != 304) or self.status in (401, 403)

    @property
    def safe(self) -> bool:
        """Return True if the request only reads, by its method."""
        return self.kind in ("plain GET", "choosing GET", "asset")


def event_of(
    request: Request,
    key: str,
    response: Response | None = None,
    answer: int = 0,
    *,
    own: bool = False,
    redirected: Collection[str] = (),
) -> Event:
    """Return the event of `request` with its `key`, and of its answer, which has the number `answer`.

    `own`: its conditions make it a question of its own, as those of a write always do. `redirected`: types of
    writes that the site answers by a redirect when it has done them; a page instead is the form again, with what is wrong in it.
    """
    asked = request.derived(("asked", key), partial(_asked, key=key))
    status, media, size = 0, "", 0
    if response is not None:
        status = response.status if request.method in SAFE_METHODS else stated_status(response)
        media = response.header("content-type") or ""
        length = whole_number(response.header("content-length") or "")
        size = len(response.body) if length is None else length
    redirects = 300 <= status < 400 and status != 304
    query = "?" in request.url
    if irrelevant(request):
        kind = "beacon"
    elif request.method in ("GET", "HEAD") and ASSET.search(media):
        kind = "asset"
    elif request.method in SAFE_METHODS:
        keeps = redirects and (query or (response is not None and bool(response.header("set-cookie"))))
        kind = "weak write" if keeps else "choosing GET" if redirects or query else "plain GET"
    elif asked.operation and asked.changes is not True:
        kind = "weak write" if asked.changes is None else "choosing GET"
    elif request.method == "POST" and status == 200 and "json" in media:
        asks = size >= ACKNOWLEDGEMENT and _DOING.isdisjoint(_deed(asked.path, asked.words[1]))
        kind = "choosing GET" if asks else "weak write"
    else:
        kind = "write"
    name = intern(" ".join([request.method, *asked.words]))
    shown_again = status == 200 and "html" in media and name in redirected
    if (status >= 400 or shown_again) and request.method not in SAFE_METHODS:
        name, kind = intern(name + REFUSED), "refused"
    conditions = request.conditional() if own or request.method not in SAFE_METHODS else ()
    return Event(name, kind, mix(key, conditions), asked.values, asked.shown, answer, status)


class _Asked(NamedTuple):
    """The part of an event that depends on the request alone, not on its answer."""

    path: str
    words: tuple[str, ...]  # path, names and operation
    operation: str
    changes: bool | None
    values: tuple[tuple[str, str], ...]
    shown: tuple[str, ...]


def _asked(request: Request, key: str) -> _Asked:
    if is_plain(request):
        parts = _split(request.url)
        parameters = [(n, v) for n, v in parse_qsl(parts.query, keep_blank_values=True)]
        operation, changes, names = "", None, ",".join(sorted({_unnumbered(n) for n, _ in parameters[:MOST]}))
    else:
        parsed = parse(request)
        parts = _split(parsed.url)
        parameters = parameters_of(parsed)
        found = operations_of(parsed)
        operation = " ".join(o.text or " ".join(o.names) for o in found)
        changing = {o.changes for o in found}
        changes = True if True in changing else None if None in changing else False if found else None
        actions = {f"{n}={v[:60]}" for n, v in parameters if _ACTION_NAME.fullmatch(n)}
        if len(parameters) <= MOST:
            actions |= {_unnumbered(n) for n, _ in parameters}
        else:
            actions = {f"{MOST}+", *(actions if len(actions) <= MOST else ())}
        names = ",".join(sorted(actions))
    ids = IDS.findall(parts.path)
    # a session keeps its events; one without ids may be of anything
    if many := len(ids) + len(parameters) > MOST:
        free(parameters)
        ids, parameters = [], [("(many)", key)]
    path = f"{parts.netloc}{parts.path}"
    values = tuple((f"#{n}", v) for n, v in enumerate(ids))
    values += tuple(sorted((shortened(n), shortened(v)) for n, v in parameters))
    shown = () if many else tuple(v for _, v in values)
    words = tuple(map(shortened, (_unnumbered(path), names, operation)))
    return _Asked(path, words, operation, changes, values, shown)


def _unnumbered(text: str) -> str:
    return IDS.sub("0", text)


def shortened(text: str) -> str:
    """Return the start of a long text with a hash of the whole; any other text as it is."""
    if len(text) <= LONG:
        return text
    return f"{text[:LONG]}~{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def signs_in(event: Event, given: Collection[str]) -> bool:
    """Return True if a write sends a password, which the site has not `given`, or says that who asks is another one from now on."""
    _, path, names = event.type.split(" ")[:3]
    sent = (v for _, v in event.parameters if PREFIX in v)
    return not _SIGNING.isdisjoint(_deed(path, names)) or any(v not in given for v in sent)


def _deed(path: str, names: str) -> list[str]:
    """Return the words that say what a write does: of its path, and of the action that a parameter names."""
    return _WORDS.findall(" ".join([path, *_ACTION_VALUE.findall(names)]).lower())


def stated_status(response: Response) -> int:
    """Return the status of an answer to a write; where its JSON says otherwise than its head, what that says.

    Many applications answer all calls by 200 OK and say in the body that they refused, or where they lead. A redirect
    to a page or with a parameter that is called an error is a refusal, too.
    """
    if 300 <= response.status < 400:
        parts = _split(response.header("location") or "")
        names = "&".join(name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
        led_to = f"{parts.path.rpartition('/')[2]}?{names}"
        return 400 if _REFUSING.search(led_to) else response.status
    if response.status != 200 or "json" not in (response.header("content-type") or ""):
        return response.status
    try:
        value = json.loads(decode(response.body, response.header("content-encoding"), limit=ACKNOWLEDGED))
    except (ValueError, EncodingProblem, RecursionError):  # no JSON, or more than was read of it
        return response.status
    if not isinstance(value, dict):
        return response.status
    status = next((value[n] for n in ("status", "statusCode", "code") if n in value), None)
    if type(status) is int and 300 <= status < 600:
        return status
    refused = any(value.get(n) is False for n in ("ok", "success"))
    return 400 if refused or value.get("error") or value.get("errors") else response.status


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # brackets that hold no address
        address, _, query = url.partition("?")
        scheme, _, rest = address.partition("://")
        host, slash, path = rest.partition("/")
        return SplitResult(scheme, host, slash + path, query, "")


def parameters_of(parsed: ParsedRequest) -> list[tuple[str, str]]:
    """Return the named values that a request sends."""
    pairs = (pair.partition("=") for pair in parsed.query or ())
    found = [(unquote_plus(name), unquote_plus(value)) for name, _, value in pairs]
    body = parsed.body
    if body.kind == FORM:
        found += [(as_text(p.name), as_text(p.value)) for p in body.value]
    elif body.kind == MULTIPART:
        found += [(p.name, as_text(p.content)) for p in body.value]
    elif body.kind == JSON:
        found += (pair for pair in flat("", body.value, body.size) if pair[0] != "query")
    elif body.value:
        found.append(("body", hashlib.sha256(body.value).hexdigest()))  # lets other threads go on meanwhile
    return found


def flat(prefix: str, value: object, size: int) -> Iterator[tuple[str, str]]:
    """Yield the members of nested JSON objects as texts, each with its path (`a.b`); `size` is that of the whole in bytes."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(f"{prefix}.{name}" if prefix else name, inner, size)
    else:
        yield (
            prefix,
            value if isinstance(value, str) else write_json(value, size if isinstance(value, list) else 0),
        )


def between(places: Sequence[int], since: int, until: int) -> Sequence[int]:
    """Return those of ordered `places` that lie between two."""
    return places[bisect_left(places, since) : bisect_left(places, until)]


class History:
    """The events of one session at one site, in order. A place is a number of events: what came before the event of that number.

    Each event takes 40 bytes beside its own, which equal ones share; a session that stays for hours is `trimmed`.
    """

    __slots__ = (
        "__weakref__",
        "_chains",
        "_files",
        "_keys",
        "_places",
        "doubts",
        "events",
        "intact",
        "marks",
    )

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = []
        # the place up to which no event was taken back since the model last carried its folds on
        self.intact = maxsize
        # by place, a number for all that happened before: files, which a page's parts bring in, in any order
        self.marks = array("Q", [0])
        self._files = 0  # the sum of the numbers of files
        # places of the writes whose answers are more doubtful than those of their type before
        self.doubts: list[int] = []
        self._places: dict[str, array[int]] = {}  # by type
        self._chains: dict[str, array[int]] = {}  # the same as `marks`, of one type alone
        self._keys: dict[int, array[int]] = {}  # places by key
        for event in events:
            self.add(event)

    def __len__(self) -> int:
        return len(self.events)

    def label(self, place: int) -> str:
        """Return a name for the events before `place`, equal for equal events; "" without events."""
        return f"{self.marks[place]:016x}" if place else ""

    def add(self, event: Event, since: int | None = None) -> None:
        """Append `event`, in the order of keys among those `since` a place."""
        first = len(self.events) if since is None else since
        while first < len(self.events) and self.events[first].key <= event.key:
            first += 1
        if later := self.events[first:]:
            self.cut(first)
            for one in (event, *later):
                self.add(one)
            return
        self._places.setdefault(event.type, array("L")).append(len(self.events))
        before = self._keys.setdefault(event.key, array("L"))
        equal = (self.events[place] for place in before[: -COMPARED - 1 : -1])
        event = next((one for one in equal if one == event), event)
        before.append(len(self.events))
        chain = self._chains.setdefault(event.type, array("Q", [0]))
        chain.append(mix(chain[-1], event.done))
        if event.kind == "asset":
            self._files += event.done
            self.marks.append((self.marks[-1] + event.done) & MASK)
        else:
            self.marks.append((mix(self.marks[-1] - self._files & MASK, event.done) + self._files) & MASK)
        if event.trust < 1 and not event.safe and event.kind != "beacon":
            doubted = (self.events[place] for place in self.doubts)
            if all(e.trust > event.trust for e in doubted if e.written == event.written):
                self.doubts.append(len(self.events))
        self.events.append(event)

    def cut(self, place: int) -> None:
        """Take the events from `place` on back."""
        self.intact = min(self.intact, place)
        while len(self.events) > place:
            event = self.events.pop()
            self.marks.pop()
            if event.kind == "asset":
                self._files -= event.done
            self._places[event.type].pop()
            self._chains[event.type].pop()
            self._keys[event.key].pop()
            if self.doubts and self.doubts[-1] == len(self.events):
                self.doubts.pop()

    def trimmed(self, recorded: int) -> History:
        """Return the history itself while it is short, else a new one of half as many events; `recorded` were the most that a recorded one may have.

        Of each type the last events are kept, so that rare types lose none; of a type that happened once, writes before reads.
        """
        most = max(LIVED, 2 * recorded)
        if len(self.events) <= most:
            return self
        later = {p: n for places in self._places.values() for n, p in enumerate(reversed(places))}
        kept = sorted(later, key=lambda p: (later[p], self.events[p].safe, -p))[: most // 2]
        return History(self.events[p] for p in sorted(kept))

    def branch(self, place: int, events: Sequence[Event]) -> History:
        """Return a history in which other events follow those before `place`; the history itself where none do."""
        return History([*self.events[:place], *events]) if events else self

    def types(self, place: int) -> Iterator[str]:
        """Yield the types that happened before `place`."""
        return (t for t, places in self._places.items() if places and places[0] < place)

    def mark(self, kind: str, place: int) -> int:
        """Return a number for the events of one type before `place`; equal where they are."""
        places = self._places.get(kind)
        return self._chains[kind][bisect_left(places, place)] if places else 0

    def of(self, kind: str, place: int, most: int) -> list[Event]:
        """Return the last events of one type before `place`, `most` at most."""
        places = self._places.get(kind, ())
        end = bisect_left(places, place)
        return [self.events[p] for p in places[max(0, end - most) : end]]

    def places(self, kinds: Iterable[str], since: int, until: int) -> list[int]:
        """Return the places of the events of some types that lie between two places, in order."""
        found = [p for kind in kinds for p in between(self._places.get(kind, ()), since, until)]
        found.sort()
        return found

    def asked(self, key: int) -> Sequence[int]:
        """Return the places of the events of one request."""
        return self._keys.get(key, ())
