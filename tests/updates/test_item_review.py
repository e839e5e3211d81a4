"""The review of items by hand, between making them and evaluating the model."""

import json
import re
import shlex

from ckl_jax.cli import ckl
from ckl_jax.data.text.documents import write_documents
from ckl_jax.errors import UserError
from ckl_jax.updates import job, records
from tests.updates import planted
from tests.updates.test_job import QUICK, save_llama


class Evaluated(UserError):
    pass


def stop(*_):
    raise Evaluated("evaluated")


def test_dropped_items_are_not_used(tmp_path, monkeypatch, capsys):
    model = str(save_llama(tmp_path / "llama"))
    write_documents(tmp_path / "news.jsonl", planted.documents(planted.facts(9)))
    monkeypatch.setattr(job._Run, "_ask", stop)

    def run(*argv):
        out, documents = str(tmp_path / "out"), str(tmp_path / "news.jsonl")
        command = ["update", "--out", out, "--documents", documents, "--model", model]
        return ckl.main([*command, "--since=2025-01-01", *QUICK, *argv])

    more = ("--ship-if=new >= 0", "--gin.WEIGHT_DECAY=0.1")
    assert run("--review", *more) == 0
    folder = tmp_path / "out" / "updates" / "0001"
    items = records.read_items(folder)
    page = (folder / "review.html").read_text()
    data = json.loads(re.search(r'id="items-data">(.*?)</script>', page, re.DOTALL)[1])
    assert [item["key"] for item in data["items"]] == [item.id for item in items]
    assert "edit" not in data["actions"]
    # The command goes on with all that was given.
    words = shlex.split(data["command"])
    assert "--gin.WEIGHT_DECAY=0.1" in words
    monkeypatch.setattr(job, "update", lambda settings, *_: given.append(settings) or 0)
    given = []
    assert ckl.main(words[1:]) == 0
    (settings,) = given
    assert settings.decisions == "decisions.json" and settings.ship_if == "new >= 0"
    assert (settings.since, settings.model) == ("2025-01-01", model)
    monkeypatch.undo()
    monkeypatch.setattr(job._Run, "_ask", stop)
    both = ("--review", "--decisions", str(tmp_path / "news.jsonl"))
    assert run(*both) == 2 and "give one of them" in capsys.readouterr().err
    assert all(item["evidence"][0]["sentence"] for item in data["items"])

    first, *others = items
    decisions = {first.id: {"action": "drop"}, others[0].id: {"action": "keep"}}
    exported = {name: data[name] for name in ("format", "benchmark")} | {"decisions": decisions}
    path = tmp_path / "decisions.json"
    for broken, sentence in [
        ({"benchmark": "0"}, "exported for other items"),
        ({"format": "x"}, "not a file of decisions"),
        ({"decisions": {"x": {"action": "drop"}}}, "there is no such item"),
        ({"decisions": {first.id: {"action": "edit"}}}, "one of keep, drop"),
        ({"decisions": {item.id: {"action": "drop"} for item in items}}, "keep some"),
    ]:
        path.write_text(json.dumps(exported | broken))
        assert run("--decisions", str(path)) == 2
        assert sentence in capsys.readouterr().err
        assert records.read_items(folder) == items

    path.write_text(json.dumps(exported))
    for _ in range(2):  # the second time they are applied already
        assert run("--decisions", str(path)) == 2 and "evaluated" in capsys.readouterr().err
        assert records.read_items(folder) == others
        assert json.loads((folder / "overlap.json").read_text())["items"] == len(others)
    path.write_text(json.dumps(exported | {"decisions": {}}))
    assert run("--decisions", str(path)) == 2
    assert "decisions.json was used already; give that file" in capsys.readouterr().err
    (folder / "before.json").write_text("{}")
    assert run("--review") == 2 and "past its review" in capsys.readouterr().err
