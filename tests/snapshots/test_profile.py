"""A profile as it stands in snapshots."""

from __future__ import annotations

import json

import pytest

from stillweb.snapshots.profile import Profile

# as snapshots had it before pages drew by the code that asks
OLD = {
    "user_agent": "",
    "viewport": [1280, 800],
    "locale": "en-US",
    "timezone": "UTC",
    "clock": "2025-01-01T00:00:00Z",
    "seed": 1,
    "browser": "",
    "reduced_motion": True,
}


@pytest.mark.parametrize("profile", [Profile(), Profile(chance=1), Profile(seed=7, viewport=(800, 600))])
def test_a_profile_comes_back_as_it_was(profile: Profile) -> None:
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_an_older_profile_keeps_its_chance_and_its_form() -> None:
    """Its form is a part of the snapshot's id."""
    assert Profile.from_json(OLD) == Profile(chance=1)
    assert Profile.from_json(OLD).to_json() == OLD
