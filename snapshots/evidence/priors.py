"""Priors: the numbers that the model begins with. Each was measured (benchmarks.states, real applications), not believed."""

from __future__ import annotations

import re

from stillweb.snapshots.cache import cached

# That a type of event decides the answer to a request, by its kind; the first kind is the strongest.
DECIDES = {
    "sign-in": 0.5,
    "write": 0.45,
    "weak write": 0.25,
    "refused": 0.06,
    "choosing GET": 0.03,
    "plain GET": 0.012,
    "beacon": 0.002,
    "asset": 0.0003,
}
KINDS = list(DECIDES)
STRENGTH = 5.0  # how many requests the number of the kind is worth against what the site shows of a type
KIN = 2.0  # how many requests that is worth against what other requests of the same type show
PART_STRENGTH = 2.0  # the same of a part of the request
# What is left of the chance that something decides: of a file (style, script, picture); of a step on the way, which is a write that is
# answered by a redirect or a form that is shown again, or a read that always leads elsewhere, unless by who asks; of others
ANSWERS = {"file": 0.03, "step": 0.15, "page": 1.0}
# Share of that chance which counts where a type happened before every recorded answer, whatever it said, and is lacking now
NEEDED = 0.3
DOUBT = 1.2  # how many doubts the first is worth against those that come after it
REDUCTIONS = {
    "last": 0.6,
    "last of each": 0.15,
    "sequence": 0.15,
    "bag": 0.10,
    "count": 0.06,
    "set": 0.08,
    "toggle": 0.07,
    "bag since reset": 0.05,
    "most recent first": 0.05,
    "switch": 0.04,
    "shown": 0.10,
    "outcome": 0.06,
    "outcome of each": 0.06,
}

REPLACES = 0.13  # the share of "last" for several types: that each replaces what the others said
SAYS_ALL = 0.7  # that of "last of each" where each has several parameters: it replaces what it said before
ALIKE = {"last of each": 0.4, "sequence": 0.2, "set": 0.5}  # where all answers to a request are the same

BLOCK = 0.6  # that a page is as wrong as the likeliest of its blocks to be wrong
NO_GATE = 0.2  # who lacks what all had that were not sent away is let in all the same
EARLIEST = 0.75  # the first recorded of several answers to sessions that did the same
SWAPPED = 0.9  # that requests which come in another order than recorded are as concurrent as those were
TURNED = 0.25  # that a wrong answer to a write says "refused" where the right one says "done", or the reverse
NOISE = 0.003  # two answers of one state differ all the same: time, chance
STICKY = 0.5  # a session's next answer is the same although its state differs
# The prior of an answer in a new state: given before, or new
RETURNED, FRESH = 0.5, 1.5
LEARNING = 1.0  # what each answer in a new state adds to that
HEARD = (
    5.0  # the factor of the odds that a type decides whose words are in the answers after it and in no others
)
UNSAID = 0.13  # the same where an answer repeats none of the words that were sent before it, and which are lacking now
ECHOES = 3  # words, or sets of words that come together, that count
# Share of the chance that a field decides which clients send of themselves, where its value was never recorded
OTHER = 0.3
OWN = 0.8
POOL = 0.5  # weight of the evidence from requests of the same type
SIBLINGS = 7
# What it does to the odds that a write decides which was never tried before what its own path shows, if it was done and leads nowhere: a path
# that leads on shows its form
OWN_PATH = 6.0
# The same of a write to another thing in the folder that is read: `/shop/cups/add` before `/shop/plates`
BESIDE = 1 / OWN_PATH
# That of a type which decides only events count that share an id with the request, by whether that names a thing and has their path
SCOPED = {True: 0.8, False: 0.5}

# Bounds of the search
MAX_TYPES, BLOCK_TYPES = 4, 3  # types in S, of a request and of a block
BEAM = 30  # sets kept a round
CUT = 8.0  # log posterior below the best that is dropped
CANDIDATES = 12
MEMBERS = (12, 4, 2)  # of a group that are looked at, where a hypothesis has one type, two or more

# Of parts of a request, by their names; the first that matches
PARTS = {
    r"vary accept-language (region of|after) .*": 0.15,
    r"vary (user-agent|referer)": 0.1,
    r"vary .*": 0.9,
    r"header (destination|depth|idempotency-key|last-event-id|overwrite|prefer|slug|upload-(offset|length|metadata)|x-amz-(target|copy-source)|operation|range|soapaction)": 0.95,
    r"header (hx-request|hx-target|x-pjax|x-inertia|rsc|next-router.*|turbo-frame)": 0.7,
    r"header accept(-language)?": 0.08,
    r"header accept-language (region of|after) .*": 0.03,
    r"header x-requested-with": 0.1,
    r"header origin": 0.03,
    r"header .* as cookie": 0.8,
    r"header (.*csrf.*|.*xsrf.*|(?!.*(auth|access|api|private|vault|consul|user|subject|job|deploy)).*token.*)": 0.02,
    r"drawn (x-forwarded-.*|x-real-ip|forwarded)": 0.05,
    r"drawn .*": 0.15,
    r"cookie (.*lang.*|.*locale.*|.*currency.*|.*theme.*|.*user.*|.*sort.*|.*country.*)": 0.3,
    r"cookie (given|giver) .*(csrf|xsrf).*": 0.01,
    r"cookie giver .*": 0.15,
    r"cookie fleeting .*": 0.005,
    r"cookie given .*(sess|sid|auth|login|jwt|remember).*": 0.3,
    r"cookie given .*": 0.2,
    r"cookie .*": 0.05,
    r"spelling order": 0.15,
    r"spelling .*": 0.03,
    r"field (accept|content-type|user-agent|sec-ch.*)": 0.08,
    r"field .*": 0.05,
    r"anew .*": 0.02,
    r"address": 0.5,  # of the page that shows a block
    r"order": 0.15,  # of values of one name
    r"rule (irrelevant|tracking|encoding|json-query|empty-query|model-.*|told-moment|engine-io|jsonp|json-rpc|mutation-id|soap|presigned|tool-call)": 0.002,
    r"rule (cache-buster|timestamp)": 0.001,
    r"rule (request-id|oauth|saml|content-id)": 0.03,
    r"rule handle": 0.05,
    r"rule issued-value": 0.3,
    r"rule .*": 0.15,
}
OTHER_PARTS = 0.3  # a field of an application, a time, messages over a web socket before a request
_PARTS = [(re.compile(pattern), chance) for pattern, chance in PARTS.items()]


@cached
def of_part(name: str) -> float:
    """Return the chance that a part of a request (its name after a mark) decides the answer."""
    return next((chance for pattern, chance in _PARTS if pattern.fullmatch(name[1:])), OTHER_PARTS)
