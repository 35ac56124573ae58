"""The choice of the likeliest recorded answer and its confidence, by one Bayesian model of what an answer depends on.

The face that tests and benchmarks use:

    over = Matcher(store)
    session = over.session("replay")
    lookup = over.lookup(request, session, min_confidence=0.0)
    lookup.capture, lookup.confidence                 # the likeliest capture, and the chance that its answer is right
    session.answered(lookup)                          # closed loop: the session was given that answer
    session.happened(request, response)               # open loop: it was given `response` by a live server instead

- `lookup.confidence` is not rounded; 0.0 for a miss. `SURE` (0.99) and `SERVED` (the default of `min_confidence`) are here.
- `min_confidence=0.0` serves the likeliest answer always, for curves. A miss then means that nothing was recorded for the key.
- A lookup that is not served (a miss) has been asked all the same: the session notes it by itself. In the open loop call
  `happened` after each lookup, whatever that gave; it replaces what the lookup noted.
- `equal(recorded, live)` (`stillweb.snapshots.identity.equality`) says whether two answers are the same to a client.
"""

from stillweb.snapshots.evidence.confidence import SERVED, SURE

__all__ = ["SERVED", "SURE"]
