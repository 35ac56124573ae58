"""Captures of one address that requests themselves tell apart: by header fields, credentials, logins, the order of pairs.

What is explained so is not taken for a change of state.
"""

from __future__ import annotations

from collections import defaultdict

from stillweb.snapshots.http.fragments import decisive
from stillweb.snapshots.states.conditions import short
from stillweb.snapshots.states.evidence import Evidence
from stillweb.snapshots.states.header_fields import ACCEPT, DECIDERS, PRESENT, counting, fields_of, own_fields
from stillweb.snapshots.states.learning import Item, Recording
from stillweb.snapshots.states.slots import CREDENTIALS, MADE_ANEW

Place = tuple[str, int]


class Parting:
    """Of the captures of a site: parts the groups of `recording` by giving their items other keys.

    `vary` has the fields that count, for captures of which not only those in Vary do; `brought` whether the client
    was signed in before the recording, where that matters; `literal` those that answer only the very same text.
    """

    def __init__(self, evidence: Evidence, items: list[Item]) -> None:
        self.evidence = evidence
        self.recording = Recording(items)
        self.literal: set[Place] = set()
        self.vary: dict[Place, tuple[tuple[str, str], ...]] = {}
        self.brought: dict[Place, bool] = {}
        self._split()

    def _split(self) -> None:
        """Splits groups by a header field that alone explains why one request was answered differently.

        So no change of state is blamed for what a server decides by a field that it doesn't name in Vary.
        """
        self._split_by_credentials()
        self._split_by_logins()
        for key in sorted(self.recording.telling):
            members = self.recording.groups[key]
            if not self._differs_in_one_state(members):
                continue
            self._split_by_fields(members)
            self._split_by_text(members)
        self.recording.group()

    def _split_by_fields(self, members: list[Item]) -> None:
        if len({id(m.sender) for m in members}) < 2:
            return  # they all sent the same
        requests = [self.evidence.asked(m) for m in members]
        fields = [fields_of(r.headers) for r in requests]
        for field in (*DECIDERS, *own_fields(requests)):
            values = [told.get(field, "") for told in fields]
            if _explains(members, values):
                for member, value in zip(members, values, strict=True):
                    self._counts(member, field, value)
                break

    def _counts(self, member: Item, field: str, value: str) -> None:
        """A field of a request counts, as if the answer's Vary named it."""
        named = dict(self.vary.get(member.place, member.capture.vary)) | {field: value}
        self.vary[member.place] = tuple(sorted(named.items()))
        member.key += short(field, value)

    def _split_by_credentials(self) -> None:
        """Splits groups by the Authorization of their requests, whatever was answered: with it a page is another.

        So with the fields by which scripts ask for fragments.

        Who it names counts only where that explains the answers, since a secret that was replaced can't be compared.
        """
        for key in sorted(self.recording.groups):
            members = self.recording.groups[key]
            if any(m.sender.fragment for m in members):
                requests = [self.evidence.asked(m) for m in members]
                for field in decisive(requests, [m.label for m in members]):
                    for member, request in zip(members, requests, strict=True):
                        self._counts(member, field, request.header(field) or "")
            if any(m.sender.own for m in members):
                self._count_own_fields(members)
            told = [m.sender.credentials for m in members]
            if not any(told):
                continue
            schemes = [who.partition(" ")[0] for who in told]
            if _explains(members, schemes) or not _explains(members, told) or self._anew(members, told):
                told = schemes
            for member, who in zip(members, told, strict=True):
                self._counts(member, CREDENTIALS, who)
        self.recording.group()

    def _anew(self, members: list[Item], told: list[str]) -> bool:
        """Whether Authorizations that are made anew for each request, which so explain anything, leave nothing to explain:
        what was written before told the answers apart.
        """
        by_scheme: dict[str, list[Item]] = defaultdict(list)
        for member, who in zip(members, told, strict=True):
            if who and told.count(who) > 1:
                return False
            by_scheme[who.partition(" ")[0]].append(member)
        return by_scheme.keys() <= {*MADE_ANEW, ""} and not any(
            map(self._differs_in_one_state, by_scheme.values())
        )

    def _count_own_fields(self, members: list[Item]) -> None:
        """The fields of an application count, though not those with which and without which the same was answered.

        Of several values any counts as much as another: where they explain the answers, that is found later.
        """
        alike = len({m.label for m in members}) == 1
        fields = own_fields([self.evidence.asked(m) for m in members])
        if any(ACCEPT in m.sender.own for m in members):
            fields.append(ACCEPT)
        told = [counting(m.sender.own, m.capture.method, m.capture.url) for m in members]
        for field in fields:
            values = [own.get(field, "") for own in told]
            seen = set(values)
            said: dict[bool, set[str]] = defaultdict(set)
            for member, value in zip(members, values, strict=True):
                said[value != ""].add(member.label)
            if not any(seen) or ("" in seen and (alike or said[True] == said[False])):
                continue
            one = len(seen - {""}) == 1
            for member, value in zip(members, values, strict=True):
                named = dict(self.vary.get(member.place, member.capture.vary))
                self.vary[member.place] = tuple(
                    sorted({field: value if one or not value else PRESENT, **named}.items())
                )
                if "" in seen:
                    member.key += short(field, str(value != ""))

    def _split_by_logins(self) -> None:
        """Tells apart what was asked for by a client that was signed in before the recording, and by others.

        Where both got the same, it does not matter.
        """
        brought = self.evidence.brought
        if not any(item.place in brought for item in self.recording.items):
            return
        for key in sorted(self.recording.groups):
            members = self.recording.groups[key]
            told = [member.place in brought for member in members]
            if all(told) or not any(told) or len({m.label for m in members}) > 1:
                for member, mine in zip(members, told, strict=True):
                    self.brought[member.place] = mine
                    if any(told) and not all(told):
                        member.key += short("brought", str(mine))
        self.recording.group()

    def _differs_in_one_state(self, members: list[Item]) -> bool:
        """Whether two answers differ though just the same had been written before."""
        labels: dict[frozenset[tuple[str, tuple[str, str]]], set[str]] = defaultdict(set)
        for member in members:
            labels[frozenset(self.recording.written(member).items())].add(member.label)
        return any(len(found) > 1 for found in labels.values())

    def _split_by_text(self, members: list[Item]) -> None:
        """A server that minds the order of pairs: then only the very same text is the same request."""
        texts = [m.capture.exact for m in members]
        repeated = {text for text in texts if texts.count(text) > 1}
        if len(repeated) > 1 and _explains(members, texts):
            for member, text in zip(members, texts, strict=True):
                self.literal.add(member.place)
                member.key += text[:16]


def _explains(members: list[Item], values: list[str]) -> bool:
    """Whether equal values always go with equal answers, and different ones with different answers somewhere."""
    answers: dict[str, set[str]] = defaultdict(set)
    for member, value in zip(members, values, strict=True):
        answers[value].add(member.label)
    if any(len(labels) > 1 for labels in answers.values()):
        return False
    return len({next(iter(labels)) for labels in answers.values()}) > 1
