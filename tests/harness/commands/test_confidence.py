"""Confidence as users set and see it: headers, the ledger, thresholds and the expected number of wrong answers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stillweb.harness.commands.lookup import command as lookup_command
from stillweb.proxy import Gateway
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.evidence.confidence import Confidence, read_confidence
from tests.proxy.frozen import Site
from tests.proxy.gateways import client

LIST = "http://site.example/list"
FILTER = "http://site.example/filter"


def filtered(folder: Path) -> Site:
    """Return a recorded list that two filters changed."""
    site = Site(folder)
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    site.add(LIST, b"all")
    for year in (b"2020", b"2021"):
        site.add(FILTER, b"done", method="POST", request_headers=form, request_body=b"year=" + year)
        site.add(LIST, b"of " + year)
    return site


def test_an_answer_less_sure_than_asked_for_is_a_miss_that_names_the_likeliest(tmp_path: Path) -> None:
    with filtered(tmp_path / "snap").open() as snapshot:
        found = {}
        for threshold in (0.0, 1.0):
            with Gateway(snapshot, min_confidence=threshold) as gateway, client(gateway) as http:
                http.get(LIST)
                http.post(
                    FILTER,
                    content=b"year=1999",
                    headers={"Content-Type": "application/x-www-form-urlencoded"},
                )
                found[threshold] = http.get(LIST)
                entry = gateway.ledger.entries()[-1]
                stats = gateway.stats
            if threshold:
                assert entry["verdict"] == "miss"
                assert "--min-confidence 1" in found[threshold].text
                assert len(entry["likeliest"]) == 2
                assert all(one["grounds"] and one["confidence"] < 1 for one in entry["likeliest"])
            else:
                told = Confidence.parse(found[threshold].headers["stillweb-confidence"])
                assert told is not None
                assert told == Confidence.read(entry)
                assert told.presumed == 1
                assert stats.presumed >= 1
                assert stats.expected_wrong >= told.doubt > 0


def test_lookup_takes_a_threshold(tmp_path: Path) -> None:
    with filtered(tmp_path / "snap").open():
        pass
    words = [str(tmp_path / "snap"), LIST, "--json", "--min-confidence"]
    sure = CliRunner().invoke(lookup_command, [*words, "sure"], standalone_mode=False)
    assert json.loads(sure.output)["verdict"] == "exact"
    for wrong in ("2", "certain"):
        refused = CliRunner().invoke(lookup_command, [*words, wrong])
        assert refused.exit_code == 2
        assert "must be a number from 0 to 1, or sure" in refused.output


@pytest.mark.parametrize("chance", [1.0, 0.999999, 0.99, 0.98999, 0.5, 0.0])
def test_a_confidence_is_read_back_as_it_was_told(chance: float) -> None:
    one = Confidence.of(chance)
    assert Confidence.parse(one.header()) == one == Confidence.read(one.members())
    assert one.value <= chance
    assert (one.presumed == 0) == (chance >= 0.99)


@pytest.mark.parametrize("value", ["2", "-0.1", "nan", "certain", True])
def test_a_wrong_threshold_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="from 0 to 1, or sure"):
        read_confidence(value)
