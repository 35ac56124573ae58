"""The certificate that came with a run: what it says otherwise than the run's traces is told, and it is not replaced."""

import json

import pytest

from stillweb.api import score
from stillweb.harness.cli import main
from stillweb.harness.results.certificate import make_certificate, write_certificate
from stillweb.harness.results.kept_certificate import hash_of, said_otherwise
from stillweb.harness.trace import read_trace, replace_events
from tests.harness.commands.calling import call
from tests.support.runs import make_run


@pytest.mark.slow
@pytest.mark.parametrize("hashed_again", [False, True])
def test_figures_that_its_traces_do_not_give_are_named_by_certify(tmp_path, capsys, hashed_again):
    files = make_run(tmp_path, ["right", "wrong"])
    certificate = write_certificate(files.path)
    certificate["scores"]["metrics"]["em"]["mean"] = 1.0
    if hashed_again:
        certificate["hash"] = hash_of(certificate)
    kept = files.path / "certificate.json"
    kept.write_text(json.dumps(certificate))
    forged = kept.read_bytes()
    code, out = call(capsys, "certify", files.path, "--times", 1)
    assert code == 1
    assert kept.read_bytes() == forged
    if hashed_again:
        assert "certificate.json says scores.metrics.em.mean: 1.0, its traces give 0.5" in out
    else:
        assert "its hash is not that of what it says" in out


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (("settings", "accept"), 'says settings.accept: "rule", run.json gives "exact"'),
        (("settings", "limits", "calls"), 'says settings.limits.calls: 200, run.json gives "exact"'),
        (("stands_on", "contracts"), 'run.json gives "exact"'),
    ],
)
def test_harm_to_what_only_the_settings_say_is_named(tmp_path, member, said):
    files = make_run(tmp_path, ["right"])
    write_certificate(files.path)
    file = files.path / "run.json"
    value = json.loads(file.read_text())
    place = value
    for name in member[:-1]:
        place = place[name]
    place[member[-1]] = "exact"
    file.write_text(json.dumps(value))
    [told] = said_otherwise(files.path, make_certificate(files.path))
    assert said in told


def test_a_certificate_of_other_code_is_told_apart_from_a_forged_one(tmp_path, capsys):
    files = make_run(tmp_path, ["right"])
    certificate = write_certificate(files.path)
    certificate |= {"code": "of another version", "evaluator": "of another version"}
    certificate["hash"] = hash_of(certificate)
    (files.path / "certificate.json").write_text(json.dumps(certificate))
    code, out = call(capsys, "certify", files.path, "--times", 1)
    assert code == 0, out
    assert f"{certificate['hash']}, was made by other code than this" in out


def test_score_says_that_a_certificate_was_not_that_of_its_traces(tmp_path, capsys):
    files = make_run(tmp_path, ["right"])
    certificate = write_certificate(files.path)
    kept = files.path / "certificate.json"
    kept.write_text(json.dumps(certificate | {"refused": 1}))
    with pytest.raises(SystemExit):
        main(["score", str(files.path)])
    assert "the certificate that lay there (altered) is not that of its traces" in capsys.readouterr().err


def test_a_score_that_comes_out_differently_is_told_by_its_first_member(tmp_path):
    files = make_run(tmp_path, ["right"])
    trace = read_trace(files.trace_path("right", 1))
    forged = {**trace.events[-1], "metrics": {**trace.events[-1]["metrics"], "em": 0.5}}
    replace_events(trace.path, [trace.header, *trace.events[:-1], forged])
    notes = []
    again = score(files.path, note=notes.append)
    assert (again.different, again.certificate) == (("right.1",), {})
    assert notes == ["right.1: a score came out differently: metrics.em: 0.5, now 1.0"]
    assert score(files.path, write=True).certificate["hash"] == score(files.path).certificate["hash"]
