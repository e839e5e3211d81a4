"""The simulated KILT: the published files and records, of what the world says."""

import json

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.papers.ckl.data.kilt import DEV, KILT_SETS, TRAIN, file_name, read_kilt
from ckl_jax.papers.ckl.data.simulated_kilt import write_kilt
from ckl_jax.world.timeline import make_world


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kilt")
    return folder, write_kilt(make_world(0, "tiny"), folder)


def rows(folder, name, split):
    return [json.loads(line) for line in open(folder / file_name(name, split), encoding="utf-8")]


def test_every_file_is_there_and_the_same_again(made, tmp_path, capsys):
    folder, counts = made
    assert len(counts) == 11 + 9 and all(counts.values())
    assert main(["data", "kilt", f"--out={tmp_path / 'again'}", "--size=tiny"]) == 0
    assert capsys.readouterr().out.count("-kilt.jsonl") == 20
    for name in counts:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    for name, form in KILT_SETS.items():
        parts = [list(read_kilt(folder / file_name(name, DEV)))]
        if form.trains:
            parts.append(list(read_kilt(folder / file_name(name, TRAIN))))
            assert len(parts[1]) > 2 * len(parts[0])
        ids = [record.id for part in parts for record in part]
        assert len(set(ids)) == len(ids)
        assert all(set(row) == {"id", "input", "output", "meta"} for row in rows(folder, name, DEV))


def test_files_of_another_origin_stay(made, tmp_path, capsys):
    folder, _ = made
    assert main(["data", "kilt", f"--out={folder}", "--size=tiny", "--seed=1"]) == 2
    real = tmp_path / "nq-dev-kilt.jsonl"
    real.write_text("{}")
    assert main(["data", "kilt", f"--out={tmp_path}", "--size=tiny"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and all("choose another --out" in line for line in told)
    assert real.read_text() == "{}" and list(tmp_path.iterdir()) == [real]


def test_answers_are_the_worlds(made):
    folder, _ = made
    world = make_world(0, "tiny")
    known = {(f.subject, f.relation): f.object for f in world.at(world.before).values()}
    for name in ("trex", "structured_zeroshot", "nq", "triviaqa"):
        for row in rows(folder, name, TRAIN):
            _, subject, relation = row["id"].split("-", 2)
            answers = tuple(entry["answer"] for entry in row["output"])
            assert answers == world.answers(known[subject, relation])
            assert world.name(subject) in row["input"]
    claims = {True: set(), False: set()}
    for row in rows(folder, "fever", TRAIN):
        _, subject, relation = row["id"].split("-", 2)
        named = world.name(known[subject, relation]) in row["input"].replace(
            world.name(subject), "", 1
        )
        claims[named].add(row["output"][0]["answer"])
    assert claims == {True: {"SUPPORTS"}, False: {"REFUTES"}}
    for row in rows(folder, "cweb", DEV):
        _, mention = row["input"].split("[START_ENT] ")
        _, subject, relation = row["id"].split("-", 2)
        assert mention.split(" [END_ENT]")[0] in world.answers(known[subject, relation])
        assert row["output"][0]["answer"] == world.name(known[subject, relation])
    assert all(len(row["output"]) == 3 for row in rows(folder, "eli5", DEV))
    assert all(row["input"].count("\n") in (1, 2) for row in rows(folder, "wow", DEV))


def test_zero_shot_relations_are_in_one_part_alone(made):
    folder, _ = made
    parts = [
        {row["input"].split(" [SEP] ")[1] for row in rows(folder, "structured_zeroshot", split)}
        for split in (TRAIN, DEV)
    ]
    assert all(parts) and not parts[0] & parts[1]
