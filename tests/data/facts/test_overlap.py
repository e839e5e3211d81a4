import json
import random

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.probe import ProbeItem
from ckl_jax.files import write_json, write_jsonl
from ckl_jax.world.ckl import build_world


def item(number, text, *answers):
    return ProbeItem(id=str(number), input=text, answers=answers)


def test_exact_overlap_is_of_whole_words_in_a_row():
    items = [
        item(0, f"Ann was born in {BLANK}.", "Rome"),
        item(1, f"Bob was born in {BLANK}.", "Rome", "the Eternal City"),
        item(2, f"{BLANK} is old.", "Rome"),
    ]
    texts = [
        "They say: ANN was born, in Rome!",
        "Bob was born in the Eternal City",
        "Rome is new.",
    ]
    found = overlap.measure({"p": items}, {"a": texts, "b": []})["p"]
    assert found["a"].exact == 2 and found["a"].items == 3
    assert found["a"].examples == ("Ann was born in Rome.", "Bob was born in the Eternal City.")
    assert found["b"].exact == 0 and found["b"].near == (3, 0, 0, 0, 0)


def test_near_overlap_is_that_of_a_brute_force():
    rng = random.Random(0)
    words = "a b c d e".split()
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(60)]
    items = [
        item(i, f"{' '.join(rng.choices(words, k=rng.randint(1, 4)))} {BLANK}", rng.choice(words))
        for i in range(40)
    ]

    def grams(text, n):
        split = text.split()
        return {tuple(split[i : i + n]) for i in range(len(split) - n + 1)}

    near, exact = [0] * 5, 0
    for one in items:
        filled = one.input.replace(BLANK, one.answers[0])
        n = min(3, len(filled.split()))
        mine = grams(filled, n)
        best = max(len(mine & grams(text, n)) / len(mine) for text in texts)
        near[sum(best > limit for limit in overlap.BINS)] += 1
        exact += any(f" {filled} " in f" {text} " for text in texts)
    found = overlap.measure({"p": items}, {"t": texts})["p"]["t"]
    assert (found.near, found.exact) == (tuple(near), exact)


def test_the_command_warns_and_refuses(tmp_path, capsys):
    build_world(tmp_path / "legacy", 0, "tiny", variant="legacy")
    build_world(tmp_path / "disjoint", 0, "tiny")
    command = ["data", "overlap"]
    main([*command, str(tmp_path / "disjoint"), "--strict"])
    assert "Warning" not in capsys.readouterr().out
    main([*command, str(tmp_path / "legacy")])
    assert "items of a probe stand in the training text" in capsys.readouterr().out
    assert main([*command, str(tmp_path / "legacy"), "--strict"]) == 2
    assert "stand in the training text" in capsys.readouterr().err
    record = json.loads((tmp_path / "legacy" / overlap.FILE).read_text())
    mine = record["invariant_lama"]["corpora"]["d0"]
    assert mine["exact"] == mine["items"] > 0


def test_texts_and_datasets_of_the_user_are_measured(tmp_path, capsys):
    build_world(tmp_path / "world", 0, "tiny")
    main(["data", "quiz", "--out", str(tmp_path / "quiz"), "--size", "tiny"])
    filled = "Ann was born in Rome."
    text = tmp_path / "news.jsonl"
    text.write_text(json.dumps({"date": "2020-01-01", "text": filled}) + "\n")
    argv = ["data", "overlap", str(tmp_path / "world"), "--documents", str(text)]
    main([*argv, "--dataset", str(tmp_path / "quiz")])
    out = capsys.readouterr().out
    assert "news.jsonl" in out and "quiz" in out and "Warning" not in out


def test_what_was_measured_of_another_file_is_not_taken(tmp_path):
    build_world(tmp_path, 0, "tiny")
    path = tmp_path / "invariantLAMA.csv"
    assert overlap.read(tmp_path, "invariant_lama", path)["d0"]["exact"] == 0
    path.write_text(path.read_text() + "\n")
    assert overlap.read(tmp_path, "invariant_lama", path) is None


def test_files_of_facts_and_of_questions_without_a_folder(tmp_path, capsys):
    texts = ["Oslo capital Anna Foo. Nothing else.", "Who is the mayor of Oslo in May 2019 ? Bo"]
    rows = [
        {"id": str(i), "date": "2020-01-01", "title": "", "text": text}
        for i, text in enumerate(texts)
    ]
    write_jsonl(tmp_path / "d.jsonl", rows)
    (tmp_path / "a_changed.csv").write_text("subject,relation,object\nOslo,capital,Anna Foo\n")
    question = {"id": "1", "question": "Who is the mayor of Oslo in May 2019 ?", "answers": ["Al"]}
    write_jsonl(tmp_path / "q.jsonl", [question])
    probes = [str(tmp_path / name) for name in ("a_changed.csv", "q.jsonl")]
    command = ["data", "overlap", "--documents", str(tmp_path / "d.jsonl"), "--probes", *probes]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "Up to 1 of 1 items" in told and "Oslo capital Anna Foo" in told
    items = overlap.read_items(probes[1])
    [found] = overlap.measure({"q": items}, {"d": texts})["q"].values()
    assert found.exact == 0 and found.near == (0, 0, 0, 0, 1)  # all but the answer stands there
    assert main([*command, "--strict"]) == 2
    (tmp_path / "empty.jsonl").touch()
    assert main([*command[:3], str(tmp_path / "empty.jsonl"), *command[4:]]) == 2
    assert "empty.jsonl has no documents" in capsys.readouterr().err
    assert main(command[:4]) == 2
    assert "Give FOLDER, or --documents and --probes or --dataset" in capsys.readouterr().err


def test_a_record_of_others_stays(tmp_path, capsys):
    build_world(tmp_path, 0, "tiny")
    for content in ('{"mine": 1}\n', "mine"):
        (tmp_path / overlap.FILE).write_text(content)
        assert main(["data", "overlap", str(tmp_path)]) == 2
        assert str(tmp_path / overlap.FILE) in capsys.readouterr().err
        assert (tmp_path / overlap.FILE).read_text() == content


def test_a_probe_without_items_is_left_out_by_name(tmp_path, capsys):
    build_world(tmp_path, 0, "tiny")
    (tmp_path / "invariantLAMA.csv").unlink()
    command = ["overlap", str(tmp_path), "--corpora", "d0"]
    assert main(command) == 2  # a world's manifest does not say so: the file is missing
    assert "invariantLAMA.csv: No such file" in capsys.readouterr().err
    write_json(tmp_path / "manifest.json", {"items": {"invariant_lama": 0, "new_lama": 3}})
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "Leaving out the probe invariant_lama" in told and "NewLAMA" in told
