"""Comparison of two snapshots: captures, views, frozen texts, profile and rules.

Captures are the same if their canonical key is. They have changed if their answers (status, payload, and the
target of a redirect) have. Where both have the same answers, both are asked what either recorded, in its order:
an answer that they give in different states has changed. A form posted with another token or password, and a page with
another token, count as `restated`: that is no difference for an agent.

Views and their texts are the same if their address is, or if their steps differ only in secrets: the
pseudonym of a password is part of an address, and each recording has its own.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.http.bodies import FORM, typed_body
from stillweb.snapshots.identity.equality import LIMIT, Equality
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, looks_random
from stillweb.snapshots.secrets.redact import MASK, mask, mask_pseudonyms
from stillweb.snapshots.text.freezing import text_address
from stillweb.snapshots.view import RESOURCES, View

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.text.text import FrozenText


ADDED, REMOVED, CHANGED = "added", "removed", "changed"
CONTEXT = 2  # lines of context around a change in a text
Place = tuple[str, int]
Answer = tuple[int, str]  # status, payload digest (for a redirect followed by its target)


@dataclass(frozen=True, slots=True)
class CaptureChange:
    """A request that only one snapshot answers, or that they answer differently.

    `before` and `after` are the different answers (status, payload digest); `text` is the unified diff of
    their frozen texts, "" if there is none to show. `same_text` is True if both have a text and it is the
    same. `places` are the captures of the first snapshot. `exchanged` is True if both have both answers, and
    give one for the other after the same requests.
    """

    kind: str
    method: str
    url: str
    before: tuple[Answer, ...]
    after: tuple[Answer, ...]
    text: str = ""
    same_text: bool = False
    places: tuple[Place, ...] = ()
    exchanged: bool = False


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A view that only one snapshot has, or whose `parts` differ.

    Parts are kinds of resource, "title", "final_url" and "address". `now` is its address in the second
    snapshot, if it is another: a task that names `address` is a miss there.
    """

    kind: str
    address: str
    title: str
    parts: tuple[str, ...] = ()
    text: str = ""
    now: str = ""


@dataclass(frozen=True, slots=True)
class TextChange:
    """A frozen text that only one snapshot has, or that differs.

    `cause` is "source" (other bytes), "extractor" or "both".
    """

    kind: str
    address: str
    cause: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class AffectedTask:
    """A task and the changes that affect it, in words."""

    task: str
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Diff:
    """The differences from snapshot `a` to snapshot `b` (their ids).

    `failures` are failed requests. `tasks` are those that the differences affect, None if no tasks were compared.
    """

    a: str
    b: str
    captures: list[CaptureChange] = field(default_factory=list)
    restated: int = 0
    failures: list[FailureChange] = field(default_factory=list)
    views: list[ViewChange] = field(default_factory=list)
    texts: list[TextChange] = field(default_factory=list)
    profile: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    tasks: list[AffectedTask] | None = None

    @property
    def same(self) -> bool:
        """Return True if both answer alike: nothing but tokens in forms differs."""
        differs = self.captures or self.failures or self.views or self.texts or self.profile or self.rules
        return not differs

    def count(self, what: str, kind: str) -> int:
        """Count the captures, failures, views or texts that were added, removed or changed."""
        return sum(1 for change in getattr(self, what) if change.kind == kind)

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        value["profile"] = {name: list(pair) for name, pair in self.profile.items()}
        if self.tasks is None:
            del value["tasks"]
        return {"same": self.same, **value}


def diff(a: Snapshot, b: Snapshot) -> Diff:
    """Compare two snapshots; lists are sorted by address.

    Bodies are read only if their digests can't be compared.
    """
    found = Diff(a.id, b.id)
    found.captures, found.restated = _captures(a, b)
    found.failures = failures_apart(a, b)
    old, new = ({view.address: view for view in snapshot.views()} for snapshot in (a, b))
    moved = moved_views(old, new)
    found.views = _views(a, old, b, new, moved)
    found.texts = _texts(a, b, moved)
    found.profile = _profile(a.profile, b.profile)
    found.rules = _rules(a, b)
    return found


def unified_diff(before: str, after: str, old: str = "before", new: str = "after") -> str:
    """Return the unified diff of two texts, with line breaks; "" if they are equal."""
    if before == after:
        return ""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, n=CONTEXT, lineterm="")
    return "".join(line + "\n" for line in lines)


def counts(text: str) -> tuple[int, int]:
    """Return how many lines a unified diff adds and removes."""
    lines = text.splitlines()[2:]  # skip the header with the two names
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


# -- captures


class _Side:
    """The captures of one snapshot, by request."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.groups: dict[str, list[Capture]] = defaultdict(list)
        for capture in snapshot.captures():
            self.groups[capture.key].append(capture)
        self._equality = Equality(lambda c: snapshot.read_start(c, LIMIT + 1), snapshot.head, (), {})
        self.algorithms = {
            c.digest.partition(":")[0] for members in self.groups.values() for c in members if c.digest
        }

    def answers(self, captures: Iterable[Capture], anew: bool) -> tuple[Answer, ...]:
        """Return the distinct answers of captures, sorted; `anew` hashes the bodies."""
        return tuple(sorted({(c.status, self._payload(c, anew)) for c in captures}))

    def answer_numbers(self, captures: Iterable[Capture]) -> set[int]:
        """Return a number for each capture's answer, equal for answers that differ only in values drawn for each."""
        return set(map(self._equality.read_label, captures))

    def _payload(self, capture: Capture, anew: bool) -> str:
        digest = self._sha256(capture) if anew else capture.digest
        if 300 <= capture.status < 400 and capture.status != 304:
            return f"{digest} to {self.snapshot.head(capture).header('location')}"
        return digest

    def _sha256(self, capture: Capture) -> str:
        if capture.digest.startswith("sha256:"):
            return capture.digest
        value = hashlib.sha256()
        with self.snapshot.open_body(capture) as body:
            while piece := body.read(1 << 20):
                value.update(piece)
        return "sha256:" + value.hexdigest()


def _captures(a: Snapshot, b: Snapshot) -> tuple[list[CaptureChange], int]:
    old, new = _Side(a), _Side(b)
    # foreign archives have SHA-1 digests, or none
    anew = (old.algorithms | new.algorithms) - {"sha256"} != set()
    found: list[CaptureChange] = []
    several: set[str] = set()  # keys with several answers, the same in both
    restated = 0
    for was, now in _pairs(old, new):
        before, after = old.groups.pop(was), new.groups.pop(now)
        answers = old.answers(before, anew), new.answers(after, anew)
        if answers[0] != answers[1] and old.answer_numbers(before) != new.answer_numbers(after):
            found.append(_change(CHANGED, before[0], *answers, before, *_text_of(a, before, b, after)))
            continue
        restated += was != now or answers[0] != answers[1]
        if len(answers[0]) > 1:
            several |= {was, now}
    if several and a.id != b.id:
        found += _exchanged(old, new, several, anew)
    for members in old.groups.values():
        found.append(_change(REMOVED, members[0], old.answers(members, anew), (), members))
    for members in new.groups.values():
        found.append(_change(ADDED, members[0], (), new.answers(members, anew), ()))
    found.sort(key=lambda c: (c.url, c.method, c.kind, c.before, c.after))
    return found, restated


def _pairs(old: _Side, new: _Side) -> Iterator[tuple[str, str]]:
    """Yield the keys of the same request in both; the caller takes each group out of `groups`."""
    for key in old.groups.keys() & new.groups.keys():
        yield key, key
    yield from same_forms(old.snapshot, old.groups, new.snapshot, new.groups)


def _exchanged(old: _Side, new: _Side, keys: set[str], anew: bool) -> list[CaptureChange]:
    """Ask both snapshots the requests of each recorded session, and return the answers to `keys` that they give one for the other.

    What either is not sure enough to serve is not compared.
    """
    sites = {site_of(c.url) for side in (old, new) for c in side.snapshot.captures() if c.key in keys}
    apart: dict[tuple[str, str, Answer, Answer], list[tuple[Capture, Capture]]] = defaultdict(list)
    for side in (old, new):
        sessions: dict[str, list[Capture]] = defaultdict(list)
        for capture in side.snapshot.captures():
            if site_of(capture.url) in sites and capture.request_offset >= 0:
                sessions[capture.session].append(capture)
        for name, captures in sessions.items():
            matchers = [(other, other.snapshot.matcher()) for other in (old, new)]
            clients = [(other, matcher, matcher.session(name)) for other, matcher in matchers]
            for capture in sorted(captures, key=lambda c: (c.begin, c.timestamp, c.place)):
                request = side.snapshot.read_request(capture)
                given: list[tuple[Answer, Capture]] = []
                for other, matcher, session in clients:
                    lookup = matcher.lookup(request, session)
                    session.answered(lookup)
                    if lookup.capture is not None:
                        given += [(other.answers([lookup.capture], anew)[0], lookup.capture)]
                if capture.key in keys and len(given) == 2 and given[0][0] != given[1][0]:
                    (was, before), (now, after) = given
                    if old.answer_numbers([before]) != new.answer_numbers([after]):
                        apart[before.method, before.url, was, now].append((before, after))
    return [
        _change(
            CHANGED, pairs[0][0], (was,), (now,), {c.place: c for c, _ in pairs}.values(),
            *_text_of(old.snapshot, [pairs[0][0]], new.snapshot, [pairs[0][1]]), exchanged=True,
        )
        for (_, _, was, now), pairs in apart.items()
    ]  # fmt: skip


def _change(
    kind: str,
    capture: Capture,
    before: tuple[Answer, ...],
    after: tuple[Answer, ...],
    places: Iterable[Capture],
    text: str = "",
    same_text: bool = False,
    *,
    exchanged: bool = False,
) -> CaptureChange:
    at = tuple(sorted(c.place for c in places))
    return CaptureChange(kind, capture.method, capture.url, before, after, text, same_text, at, exchanged)


def _text_of(a: Snapshot, before: list[Capture], b: Snapshot, after: list[Capture]) -> tuple[str, bool]:
    """Return the diff of the texts of the first differing answers, and True if both have the same text."""
    kept = {c.digest for c in before} & {c.digest for c in after}
    old = next((c for c in before if c.digest not in kept), before[0])
    new = next((c for c in after if c.digest not in kept), after[0])
    texts = frozen_of(a, old), frozen_of(b, new)
    if texts[0] is None or texts[1] is None:
        return "", False
    change = unified_diff(texts[0].markdown, texts[1].markdown, old.url, new.url)
    return change, not change


def frozen_of(snapshot: Snapshot, capture: Capture) -> FrozenText | None:
    """Return the frozen text of exactly this answer; None if there is none."""
    for address in (capture.url, text_address(capture)):
        text = snapshot.text(address)
        if text is not None and text.meta.get("digest", capture.digest) == capture.digest:
            return text
    return None


# -- views, texts, profile, rules


def moved_views(old: Mapping[str, View], new: Mapping[str, View]) -> dict[str, str]:
    """Map first to second addresses of the views that differ only in pseudonyms."""

    def by_steps(views: Mapping[str, View], others: Mapping[str, View]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for address in views.keys() - others.keys():
            steps = json.dumps([views[address].url, views[address].steps], sort_keys=True)
            found[_masked(steps)].append(address)
        return found

    before, after = by_steps(old, new), by_steps(new, old)
    shared = before.keys() & after.keys()
    # views that differ only in secrets (a wrong password and the right one) can't be paired
    return {before[s][0]: after[s][0] for s in shared if len(before[s]) == len(after[s]) == 1}


def _masked(text: str) -> str:
    return PSEUDONYM_TEXT.sub(MASK, text)


def _views(
    a: Snapshot, old: dict[str, View], b: Snapshot, new: dict[str, View], moved: Mapping[str, str]
) -> list[ViewChange]:
    gone, come = old.keys() - new.keys() - moved.keys(), new.keys() - old.keys() - set(moved.values())
    found = [ViewChange(REMOVED, address, old[address].title) for address in gone]
    found += [ViewChange(ADDED, address, new[address].title) for address in come]
    for address in old.keys() - gone:
        now = moved.get(address, address)
        parts = _view_parts(a, old[address], b, new[now])
        if parts:
            words = [
                (_resource(snapshot, "text", view, now != address) or b"").decode(errors="replace")
                for snapshot, view in ((a, old[address]), (b, new[now]))
            ]
            found.append(
                ViewChange(
                    CHANGED,
                    address,
                    new[now].title,
                    parts,
                    unified_diff(*words),
                    "" if now == address else now,
                )
            )
    return sorted(found, key=lambda v: (v.address, v.kind))


def _view_parts(a: Snapshot, old: View, b: Snapshot, new: View) -> tuple[str, ...]:
    masked = old.address != new.address
    parts = ["address"] if masked else []
    for name in ("title", "final_url"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after and not (masked and _masked(before) == _masked(after)):
            parts.append(name)
    for kind in RESOURCES:
        # pageinfo lists captures with their digests, which are compared as captures
        if kind != "pageinfo" and _resource(a, kind, old, masked) != _resource(b, kind, new, masked):
            parts.append(kind)
    return tuple(parts)


def _resource(snapshot: Snapshot, kind: str, view: View, masked: bool) -> bytes | None:
    data = snapshot.resource(kind, view.address)
    if data is None or not masked or kind in ("view", "files"):
        return data
    return mask_pseudonyms(data)


def _texts(a: Snapshot, b: Snapshot, moved: Mapping[str, str]) -> list[TextChange]:
    """Compare the frozen texts, with two of them in memory at a time."""
    found: list[TextChange] = []
    first = {now: address for address, now in moved.items()}
    for after in b.texts():
        at = first.get(after.address, after.address)
        before = a.text(at)
        if before is None:
            found.append(TextChange(ADDED, after.address))
            continue
        words = before.markdown, after.markdown
        if at != after.address:
            words = _masked(words[0]), _masked(words[1])
        if words[0] != words[1] or before.pages != after.pages:
            found.append(TextChange(CHANGED, at, _cause(before, after), unified_diff(*words)))
    for record in a.conversions():
        if b.record_of("conversion", moved.get(record.uri, record.uri)) is None:
            found.append(TextChange(REMOVED, record.uri))
    return sorted(found, key=lambda t: (t.address, t.kind))


def _cause(before: FrozenText, after: FrozenText) -> str:
    """Return the cause of a changed text: its source's bytes (a view's DOM has no digest), or its extractor."""
    digests = before.meta.get("digest"), after.meta.get("digest")
    source = digests[0] != digests[1]
    makers = [(t.extractor, t.version, dict(t.options)) for t in (before, after)]
    if makers[0] != makers[1]:
        return "both" if source else "extractor"
    return "source"


def _profile(a: Profile | None, b: Profile | None) -> dict[str, tuple[Any, Any]]:
    old, new = ((p.to_json() if p else {}) for p in (a, b))
    names = [*old, *(name for name in new if name not in old)]
    return {n: (old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)}


def _rules(a: Snapshot, b: Snapshot) -> list[str]:
    """Return one line for each rule that only one snapshot has."""
    old, new = ({rule.id for rule in one.rules.rules if not rule.own} for one in (a, b))
    found = [f"rule {name} is in the first only" for name in sorted(old - new)]
    found += [f"rule {name} is in the second only" for name in sorted(new - old)]
    return found


# -- requests that failed while one of the two was recorded


Named = tuple[str, str, str]  # URL and method with secrets masked, and the key of the masked request


@dataclass(frozen=True, slots=True)
class FailureChange:
    """A request that failed in one snapshot only ("added", "removed"), or for another reason ("changed").

    A tunnel has the method CONNECT.
    """

    kind: str
    method: str
    url: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def failures_apart(a: Snapshot, b: Snapshot) -> list[FailureChange]:
    """Return the differences from `a` to `b`, by address.

    A failed request that was also captured is ignored: the capture answers it.
    """
    old, new = _reasons(a), _reasons(b)
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = (tuple(sorted(side.get(name, ()))) for side in (old, new))
        if before != after:
            kind = "added" if not before else "removed" if not after else "changed"
            found.append(FailureChange(kind, name[1], name[0], before, after))
    return found


def _reasons(snapshot: Snapshot) -> dict[Named, set[str]]:
    found: dict[Named, set[str]] = defaultdict(set)
    for failure in snapshot.failures():
        captures = snapshot.candidates(request_key(failure.request).urlkey)
        if not any(capture.key == failure.key for capture in captures):
            masked = mask(failure.request)  # mask secrets, since each recording has its own pseudonyms
            key = failure.key if failure.left_out else request_key(masked).canonical
            found[masked.url, masked.method, key].add(failure.reason)
    return found


# -- forms that differ only in values drawn for each visit: password pseudonyms and CSRF tokens


Group = str  # key of captures
Form = tuple[str, str, tuple[tuple[str, str], ...]]


def same_forms(
    a: Snapshot, old: Mapping[Group, list[Capture]], b: Snapshot, new: Mapping[Group, list[Capture]]
) -> list[tuple[Group, Group]]:
    """Pair the groups of two snapshots that posted the same form, ignoring values that look random.

    Two groups of one snapshot that differ only in such values (a form sent twice) can't be paired.
    """
    before, after = _by_form(a, old.items()), _by_form(b, new.items())
    shared = sorted(before.keys() & after.keys())
    return [(before[f][0], after[f][0]) for f in shared if len(before[f]) == len(after[f]) == 1]


def _by_form(snapshot: Snapshot, groups: Iterable[tuple[Group, list[Capture]]]) -> dict[Form, list[Group]]:
    found: dict[Form, list[Group]] = defaultdict(list)
    for group, members in groups:
        if (form := _form_of(snapshot, members[0])) is not None:
            found[form].append(group)
    return found


def _form_of(snapshot: Snapshot, capture: Capture) -> Form | None:
    """Return method, URL and sorted fields, with random-looking values masked; None if no form was posted."""
    if capture.method != "POST" or capture.request_offset < 0:
        return None
    request = snapshot.read_request(capture)
    body = typed_body(request.body, request.header("content-type"), request.header("content-encoding"))
    if body.kind != FORM:
        return None
    fields = sorted((_without_drawn(pair.name), _without_drawn(pair.value)) for pair in body.value)
    return capture.method, capture.url, tuple(fields)


def _without_drawn(data: bytes) -> str:
    value = data.decode("utf-8", "backslashreplace")
    return MASK if PSEUDONYM_TEXT.search(value) or looks_random(value) else value
