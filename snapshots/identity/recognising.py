"""A replayed request as the recorder would have stored it: the secrets it knows by their pseudonyms.

So the recorded password finds the recorded answer, by the same key as any other request, and another one does not.
No key is needed for it, only what the pseudonyms themselves prove (`stillweb.snapshots.secrets.keystore`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from itertools import chain
from typing import Any

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.identity.cookies import CREDENTIALS, cookies_of, is_session, logins_of
from stillweb.snapshots.identity.header_fields import PRESENT, has_client_fields, is_secret, own_of
from stillweb.snapshots.identity.irrelevant import irrelevant_cookie
from stillweb.snapshots.identity.issued_values import named_values
from stillweb.snapshots.identity.keys import parse, unpacked_body
from stillweb.snapshots.identity.rules import timeless
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets import keystore
from stillweb.snapshots.secrets.detect import PSEUDONYM, PSEUDONYM_TEXT, says_nothing_of_secrets, signer
from stillweb.snapshots.secrets.redact import MASK, PREFIX, Redactor, basic_password, claims_of

# What a visitor types to prove who he is. Other secrets (keys, tokens) name the program that asks.
_TYPED = re.compile(r"pass(?:word|wd|phrase|code)?|pwd|otp|pin", re.IGNORECASE)


class Recogniser(Redactor):
    """A replacer of secrets by the pseudonyms that they prove to be; those that it doesn't know become `MASK`.

    One for each session: like the recorder it replaces what it has recognised wherever else it occurs later.
    """

    def __init__(self) -> None:
        super().__init__(b"")
        self._known: dict[str, dict[str, set[str]]] = {}  # salt, proof, pseudonyms
        self._near: dict[str, int] = {}  # the pseudonyms that count now, and the layers they are in
        self._drawn: set[str] = set()  # the pseudonyms for which secrets stand that the client drew anew

    def __getstate__(self) -> dict[str, Any]:
        return {
            "names": self._names, "known": self._known, "near": self._near, "fields": self._fields, "drawn": self._drawn
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        Recogniser.__init__(self)
        self._known, self._near = state["known"], state["near"]
        self._fields, self._drawn = state["fields"], state["drawn"]
        for secret, name in state["names"].items():
            self.remember(secret, name)

    def copy(self) -> Recogniser:
        """Return one that knows the same and learns by itself."""
        own = Recogniser()
        own._names, own._near, own._fields = dict(self._names), dict(self._near), set(self._fields)
        own._known = {
            salt: {proof: set(names) for proof, names in found.items()} for salt, found in self._known.items()
        }
        own._sought, own._drawn = copy(self._sought), set(self._drawn)
        return own

    def know(self, pseudonyms: Mapping[str, int], fields: Iterable[str] = ()) -> None:
        """Learn the pseudonyms of the secrets that the next request may hold, with their layers.

        `fields` names the form fields that hold a secret, beside those whose names say so.
        """
        self._fields.update(fields)
        self._near = dict(pseudonyms)
        for name in pseudonyms:
            if (found := keystore.split(name)) is not None:
                self._known.setdefault(found[0], {}).setdefault(found[1], set()).add(name)

    def recognised(self, request: Request) -> Request:
        """Return `request(request)`. One that remembers keeps it: a copy of this object may have made it in a thread."""
        if not request.remembers:
            return self.request(request)
        proofs = (names for by_proof in self._known.values() for names in by_proof.values())
        state = frozenset(self._names.items()), frozenset(self._near.items()), frozenset(self._fields)

        def made(one: Request) -> tuple[Request, dict[str, str]]:
            known = self.request(one)
            return known.remembering(), dict(self._names)

        known, learnt = request.derived(("recognised", *state, frozenset(chain(*proofs))), made)
        for secret, name in learnt.items():
            if self._names.get(secret) != name:
                self.remember(secret, name)
        return known

    def draw(self, secrets: Mapping[str, str]) -> None:
        """Let secrets that a client drew anew take the place of recorded ones, by pseudonym, unless another secret has it."""
        for name, secret in secrets.items():
            if secret not in self._names and name not in self._names.values():
                self._drawn.add(self.remember(secret, name))

    def has_drawn_secret(self, request: Request) -> bool:
        """Return True if the address or body of a recognised request has a secret that takes a recorded one's place."""
        return bool(self._drawn) and not self._drawn.isdisjoint(pseudonyms_in(request, headers=False))

    def learn(self, secret: str) -> str:
        """Return the pseudonym of a secret, `MASK` for one that was not recorded."""
        best: list[tuple[int, str]] = []
        for salt, by_proof in self._known.items():
            found = by_proof.get(keystore.proof_of(secret, salt), set())
            near = found & self._near.keys() or found
            if len(near) == 1:  # two secrets with equal proofs can't be told apart
                name = next(iter(near))
                best.append((self._near.get(name, 0), name))
        # Each layer has a name of its own for the secret: the one that was recorded here, and highest.
        if not best:
            return self._names.get(secret, claims_of(secret) + MASK)  # one that stands for a recorded one
        name = max(best)[1]
        return name if self._names.get(secret) == name else self.remember(secret, name)

    def _credential(self, name: str, value: str) -> str:
        """Replace credentials; a password that is a pseudonym stands for the only credentials recorded here.

        A browser sends one for a view whose URL has user information, as the password was never stored.
        """
        scheme, _, rest = value.partition(" ")
        password = basic_password(rest.strip()) if scheme.lower() == "basic" else ""
        if PSEUDONYM_TEXT.fullmatch(password):
            others = self._near.keys() - {password}
            return f"{scheme} {next(iter(others)) if len(others) == 1 else MASK}"
        return super()._credential(name, value)


def pseudonyms_in(request: Request, *, headers: bool) -> set[str]:
    """Return the pseudonyms in a stored request that can be proven."""
    found = {m[0] for m in PSEUDONYM_TEXT.finditer(request.url)}
    if request.body:
        found |= {m[0].decode() for m in PSEUDONYM.finditer(unpacked_body(request))}
    if headers:
        for _, value in request.headers:
            found |= {m[0] for m in PSEUDONYM_TEXT.finditer(value)}
    return {name for name in found if keystore.split(name) is not None}


def drawn_secrets(request: Request, known: Request, stored: Request) -> dict[str, str]:
    """Return the secrets of a request that its `known` form masks, by the pseudonyms that a stored one has in their places."""
    own, told, theirs = (
        {(where, name): value for where, name, value in named_values(parse(one))}
        for one in (request, known, stored)
    )
    masked = {
        place for place, value in told.items() if MASK in value and keystore.split(theirs.get(place, ""))
    }
    return {theirs[place]: own[place] for place in sorted(masked)}


def secret_fields(stored: Request) -> set[str]:
    """Return the names of the form fields of a stored request that hold a pseudonym, and whose names don't say so.

    The page's form called them passwords (`<input type=password name=p>`).
    """
    if PREFIX.encode() not in unpacked_body(stored):
        return set()
    values = [(n, v) for place, n, v in named_values(parse(stored)) if place in ("form", "part")]
    plain = {name for name, value in values if not PSEUDONYM_TEXT.fullmatch(value)}
    return {name for name, _ in values if name not in plain and says_nothing_of_secrets(name)}


def other_secrets(asked: Request, stored: Request) -> tuple[list[str], bool]:
    """Return the names under which a recognised request has another secret than a stored one, and whether one is typed or says so itself.

    Empty where nothing proves it, as with pseudonyms of older snapshots: then any secret may be the recorded one.
    """
    mine = [(f"{where}:{name}", value) for where, name, value in named_values(parse(asked))]
    theirs = {(f"{where}:{name}", value) for where, name, value in named_values(parse(stored))}
    names = {place for place, value in theirs if keystore.split(value) is not None}
    found = sorted({p for p, value in mine if p in names and "secret-" in value and (p, value) not in theirs})
    users = [PSEUDONYM_TEXT.search(r.url.partition("://")[2].partition("/")[0]) for r in (asked, stored)]
    if users[0] and users[1] and users[0][0] != users[1][0] and keystore.split(users[1][0]):
        return ["password of the URL", *(p.partition(":")[2] for p in found)], True
    plain = [place.partition(":")[2] for place in found]
    said, told = (
        {place: timeless(value) for place, value in some if value[:3] == "eyJ"} for some in (mine, theirs)
    )
    if any(said[place] != told[place] for place in found if place in said and place in told):
        return plain, True  # a token of other claims
    return plain, any(_TYPED.search(name) or says_nothing_of_secrets(name) for name in plain)


def _lasting(credentials: str) -> bool:
    """Return True for credentials that are the same in each request, and not recognised yet."""
    secret = credentials.strip().partition(" ")[2]
    return bool(secret) and signer(credentials) is None and PREFIX not in secret


def is_secret_relevant(capture: Capture) -> bool:
    """Return True if a secret in a header field of a capture's request counts."""
    return any(
        n == "*" or (v and (n == CREDENTIALS or v == PRESENT or PSEUDONYM_TEXT.search(v)))
        for n, v in capture.vary
    )


def depends_on_secret(request: Request, *, given: bool) -> bool:
    """Return True if a request bears a secret, not yet recognised, by which it matters whose it is.

    It is one of Authorization, in a field of its own, in a cookie that its client drew, or in a login's unless the site has `given` it one.
    """
    headers = request.headers
    if any(n.lower() == "authorization" and _lasting(v) for n, v in headers):
        return True
    names = [] if given else logins_of(headers)
    cookies = [(n, v) for n, v in cookies_of(headers) if PREFIX not in v and not irrelevant_cookie(n)]
    if any(n in names or (is_session(n, v) and keystore.has_quick_proof(v)) for n, v in cookies):
        return True
    return has_client_fields(headers) and any(
        PREFIX not in v and is_secret(n, v) for n, v in own_of(headers).items()
    )
