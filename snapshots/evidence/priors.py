"""Priors: the numbers that the model begins with. Each was measured (benchmarks.states, real applications), not believed."""

# That a type of event decides the answer to a request, by its kind; the first kind is the strongest.
DECIDES = {"write": 0.35, "weak write": 0.25, "choosing GET": 0.03, "plain GET": 0.012, "asset": 0.0003}
KINDS = list(DECIDES)
UNSEEN = {"write": 0.3, "weak write": 0.3, "choosing GET": 0.02, "plain GET": 0.02}  # of types that were never recorded
STRENGTH = 5.0  # how many requests the number of the kind is worth against what the site shows of a type
KIND_STRENGTH = 6.0  # the same of the table against what the site shows of a kind, in types
ROUNDS = 1
# What the odds of a writing type are multiplied with, by how its path is related to that of the request; and those of a request itself.
KINSHIP = {"same path": 1.0, "leads there": 1.0, "above or below": 1.0, "other": 1.0, "itself": 1.0}

REDUCTIONS = {
    "last": 0.25,
    "last of each": 0.15,
    "sequence": 0.15,
    "bag": 0.10,
    "slot": 0.10,
    "set": 0.08,
    "toggle": 0.07,
    "bag since reset": 0.05,
    "most recent first": 0.05,
    "switch": 0.04,
    "shown": 0.10,
    "outcome": 0.06,
    "outcome of each": 0.06,
}

NOISE = 0.003  # two answers of one state differ all the same: time, chance
STICKY = 0.5  # a session's next answer is the same although its state differs
RETURNED, FRESH = 0.5, 1.5  # an answer in a new state was given before or not: what is believed before anything is seen
LEARNING = 0.5  # what each answer in a new state adds to that
OLD = 0.25  # the same when predicting
OWN = 0.8
POOL = 0.5  # weight of what requests of the same type show
SIBLINGS = 7
AS_RECORDED = 0.9999

# Bounds of the search
MAX_TYPES = 4  # types in S
BEAM = 30  # sets kept a round
CUT = 12.0  # log posterior below the best that is dropped
CANDIDATES = 12
MEMBERS = 3
SLOTS = 6
