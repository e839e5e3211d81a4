"""`ckl temporalwiki`: says what it would do, refuses bad input first, sets up each training."""

import bz2
import dataclasses
import json
import re
import shutil
import sys

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import simulated
from ckl_jax.papers.temporalwiki import extra_evaluations, study_data
from ckl_jax.papers.temporalwiki import study as job
from ckl_jax.papers.temporalwiki.analysis import results
from ckl_jax.papers.temporalwiki.data import snapshots
from ckl_jax.papers.temporalwiki.settings import METHODS, Model, Updates
from ckl_jax.papers.temporalwiki.study_data import Data
from ckl_jax.train import studies, subprocess_runs
from tests import llama_tokenizer
from tests.convert.test_hugging_face_gpt2 import train_tokenizer
from tests.helpers import TINY_GPT2, random_params
from tests.papers.temporalwiki.conftest import DATES


@pytest.fixture
def refused(tmp_path, capsys):
    """Runs `ckl temporalwiki --out FOLDER ...`, which must fail and write and print nothing."""

    def run(*flags):
        folder = tmp_path / "out"
        assert ckl.main(["temporalwiki", f"--out={folder}", *map(str, flags)]) == 2
        assert not folder.exists()
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1, (out, err)
        return err

    return run


def test_a_dry_run_says_each_training_and_writes_nothing(tmp_path, dumps, capsys):
    places = [str(dumps / date) for date in DATES]
    argv = ["temporalwiki", f"--out={tmp_path / 'out'}", "--size=tiny", "--dry-run"]
    assert ckl.main([*argv, "--methods=diff,lora", "--snapshots", *places]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("20200501  ") and "wikidata-20200501-all.json.gz" in lines[0]
    assert [line.split(":")[0] for line in lines if "to do" in line] == [
        "initial  to do",
        "20200501-20200601 vanilla  to do",
        "20200501-20200601 lora  to do",
        "20200601-20200701 vanilla  to do, from 20200501-20200601 vanilla",
        "20200601-20200701 lora  to do, from 20200501-20200601 lora",
    ]
    assert ckl.main([*argv, "--months=2"]) == 0
    assert capsys.readouterr().out.count("to do") == 1 + len(METHODS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        ("--watch=0", "--watch is 0"),
        ("--watch=5", "--watch needs --snapshots with one folder"),
        ("--beam=--nosuch=3", "apache-beam|--nosuch"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(dumps, refused, wrong, complaint):
    places = [dumps / date for date in DATES]
    assert re.search(complaint, refused("--dry-run", wrong, "--snapshots", *places))


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        ("--methods=nope", "Unknown method 'nope'"),
        ("--gin.NOPE=1", "NOPE"),
        ("--architecture=bert", "bert"),
    ],
)
def test_a_watch_ends_where_no_snapshots_would_help(tmp_path, capsys, wrong, complaint):
    argv = ["temporalwiki", f"--snapshots={tmp_path}", "--watch=1", f"--out={tmp_path}/out", wrong]
    assert ckl.main(argv) == 2
    assert complaint in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_dry_run_refuses_a_folder_of_other_settings(tmp_path, capsys):
    (tmp_path / job.RECORD).write_text('{"seed": 0, "snapshots": []}')
    (tmp_path / "checkpoint_1").mkdir()
    argv = ["temporalwiki", f"--out={tmp_path}", "--size=tiny", "--seed=3", "--dry-run"]
    assert ckl.main(argv) == 2
    assert "holds a study with another seed (0, not 3)" in capsys.readouterr().err


def test_a_new_model_is_of_any_decoder(tmp_path):
    """Its configuration is that of `config.json`, whose fields follow from the sizes."""
    bound = "decoder.DecoderConfig.emb_dim = 64"
    updates = Updates(architecture="gemma", size="tiny", bindings=(bound, "LIGHT_TUNE_RATE = 1"))
    _, settings = job.check(dataclasses.replace(updates, light_tuning=1, out=str(tmp_path)))
    fields = {k.rpartition(".")[2]: v for k, v in settings.items() if k.startswith("decoder.De")}
    sizes = dict(vocab_size=1024, emb_dim=64, num_heads=2, head_dim=16, mlp_dim=64, num_layers=2)
    assert sizes.items() <= fields.items() and settings["model_config"] == "decoder.DecoderConfig"
    assert (fields["family"], fields["embed_scale"], fields["num_kv_heads"]) == ("gemma", 8.0, 2)
    assert updates.training_bindings[-1] == bound
    assert updates.options == {"architecture": "gemma", "size": "tiny"}
    shape = updates.training_bindings
    assert extra_evaluations._bindings(updates, "lora")[: len(shape)] == shape


def test_a_method_may_be_a_bundled_one_at_another_rate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    faster = "include 'temporalwiki_lora.gin'\nLEARNING_RATE = 1e-2\n"
    (tmp_path / "temporalwiki_lora_faster.gin").write_text(faster)
    updates = Updates(size="tiny", methods=("lora", "lora_faster"), out="out")
    _, settings = job.check(updates)
    assert settings["drawn"]["lora_faster"] == settings["drawn"]["lora"]


@pytest.mark.parametrize("given", [{"size": "tiny"}, {"model": "gpt2"}])
def test_what_the_file_of_a_method_sets_holds_over_data_sizes_and_model(
    given, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "model.gin").write_text("")
    own = "LEARNING_RATE = %ANOTHER\nANOTHER = 1e-2\nEPOCHS = 7\nBATCH_SIZE = 2\nCLIP_NORM = 2.0"
    own += "\nK3_TAPS = (0, 1)\nRANDOM_SEED = 5\nMODEL_DIR = 'x'\n"
    path = tmp_path / "temporalwiki_mine.gin"
    path.write_text(f"include 'temporalwiki_k_adapter_k3.gin'\n{own}")
    updates = Updates(methods=("mine",), out="out", bindings=("CLIP_NORM = 5.0",), **given)
    training = job.training(Data(updates, ()), Model("mine"))
    values = studies.settings_of(training)
    assert [values[name] for name in ("ANOTHER", "EPOCHS", "BATCH_SIZE")] == [1e-2, 7, 2]
    assert str(values["LEARNING_RATE"]) == "%ANOTHER" and values["K3_TAPS"] == (0, 1)
    assert (values["CLIP_NORM"], values["RANDOM_SEED"]) == (5.0, 0)  # the command's, the study's
    assert values["MODEL_DIR"].endswith("mine")
    macros = job._macros(Data(updates, ()), Model("mine"))
    bindings = updates.bindings_of("mine", macros)
    held = studies.gin_values(updates.gin_files("mine"), macros, bindings)
    assert held["LEARNING_RATE"] == 1e-2
    training.folder.mkdir(parents=True)
    recorded = "\n".join([f"include '{name}'" for name in training.gin()[0]] + training.gin()[1])
    (training.folder / "config.gin").write_text(recorded)
    (training.folder / "summary.json").write_text("{}")
    monkeypatch.setattr(job, "models", lambda data, drawn: [Model("mine")])
    job._refuse_changed(Data(updates, ()), {})
    path.write_text(path.read_text().replace("ANOTHER = 1e-2", "ANOTHER = 5e-3"))
    with pytest.raises(UserError, match="trained with another ANOTHER than temporalwiki_mine.gin"):
        job._refuse_changed(Data(updates, ()), {})
    path.write_text(path.read_text().replace("ANOTHER = 5e-3", "ANOTHER = 1e-2"))
    tuning = extra_evaluations._bindings(updates, "mine")  # which has rate and batch of its own
    assert {b for b in tuning if "LIGHT_TUNE" not in b} == {"ANOTHER = 0.01", "K3_TAPS = (0, 1)"}


@pytest.mark.parametrize("package", ["mwparserfromhell.parser", "sentencex"])
def test_a_package_of_the_extra_is_missed_first(refused, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install 'ckl-jax[data]'" in refused("--size=tiny")


def test_bad_input_is_refused_first(refused, dumps, tmp_path):
    places = [dumps / date for date in DATES]
    assert "There is one snapshot only" in refused("--snapshots", places[0])
    err = refused("--snapshots", places[1], places[0])
    assert "(20200501) is not later than" in err and "in the order of their dates" in err
    assert f"There is no snapshot {tmp_path / 'none'}" in refused("--snapshots", tmp_path / "none")
    assert "has no Wikipedia dump" in refused("--snapshots", dumps / "20210101", places[0])
    assert "Did you mean 'lora'?" in refused("--size=tiny", "--methods=lara")
    assert "temporalwiki_eval.gin is not a method: it does not" in refused("--methods=eval")
    assert "The Initial model is always made" in refused("--methods=initial")
    assert "No methods are given" in refused("--methods=,")
    assert "Did you mean 'tiny'?" in refused("--size=tini")
    assert "--seed is -1" in refused("--seed=-1")
    assert "--initial-epochs is 0 but no --model" in refused("--initial-epochs=0")


def test_bad_settings_are_refused_first(refused, tmp_path):
    for name in ("--unchanged-fraction", "--subject-cap", "--relation-cap"):
        for value in ("nan", "0.0", "-1.0", "2.0"):
            assert f"{name} is {value}; give a number in (0, 1]." in refused(f"{name}={value}")
    assert Updates(subject_cap=1, relation_cap=1.0, unchanged_fraction=1).share == 1
    assert "Did you mean 'qwen3'?" in refused("--architecture=qwen")
    assert "choose from gpt2, llama" in refused("--architecture=t5")
    assert "leave --architecture out" in refused("--architecture=opt", f"--model={tmp_path}")
    assert "2 to 13" in refused("--size=tiny", "--months=1")
    assert f"{tmp_path} has no model.gin" in refused("--size=tiny", f"--model={tmp_path}")
    assert "The condition 'changed' has" in refused("--promote-if=changed")
    assert "Did you mean 'EPOCHS'?" in refused("--size=tiny", "--gin=EPOCH=1")
    assert "the command sets it itself" in refused("--size=tiny", "--gin=MODEL_DIR='x'")
    assert "The taps [50]" in refused("--size=tiny", "--gin=K2_TAPS=(1, 50)")


def test_bad_settings_of_extra_evaluations_are_refused_first(refused):
    assert "give --light-tuning FACTS too" in refused("--size=tiny", "--gin=LIGHT_TUNE_RATE=1")
    tuned = ("--size=tiny", "--light-tuning=5")
    assert "Did you mean 'LIGHT_TUNE_RATE'?" in refused(*tuned, "--gin=LIGHT_TUNE_RAT=1")
    for name in ("LIGHT_TUNE_BATCH", "LIGHT_TUNE_EPOCHS"):
        assert f"{name} is 0" in refused(*tuned, f"--gin={name}=0")
    assert "LIGHT_TUNE_RATE is -1" in refused(*tuned, "--gin=LIGHT_TUNE_RATE=-1")
    assert "the command sets it itself" in refused(*tuned, "--gin=LIGHT_TUNE_NAME='x'")
    assert "LIGHT_TUNE_EPOCHS is 'x'" in refused(*tuned, "--gin=LIGHT_TUNE_EPOCHS='x'")
    assert "--proper-nouns is -1" in refused("--proper-nouns=-1")


def test_a_batch_that_an_interval_cannot_fill_is_told_before_any_training(dumps, tmp_path, capsys):
    out = tmp_path / "out"
    argv = [
        "temporalwiki",
        f"--out={out}",
        "--size=tiny",
        "--methods=diff,mix_review,full",
        "--unchanged-fraction=1",
        "--gin=BATCH_SIZE=900",
        "--snapshots",
        *(str(dumps / date) for date in DATES[:2]),
    ]
    assert ckl.main(argv) == 2
    err = capsys.readouterr().err
    assert "ckl: BATCH_SIZE exceeds the rows of text to train on" in err.splitlines()[-1]
    rows = {
        name: len(CachedTask.open(next(out.glob(f"data/rows/*/{name}"))))
        for name in ("d0", "d1", "whole")
    }
    interval = "20200501-20200601"
    assert f"(first initial {rows['d0']}, {interval} vanilla {rows['d1']}," in err
    assert f"{interval} mix_review {2 * rows['d1']}, {interval} full {rows['whole']})" in err
    assert f"BATCH_SIZE={rows['d1']} or less" in err and not (out / "initial").exists()


def test_snapshots_are_found_in_folders_of_their_own(dumps, tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    for path in dumps.glob("*20200601*"):
        shutil.copy(path, folder)
    assert snapshots.find(folder).date == "20200601"
    assert snapshots.find(dumps / "2020-06").date == "20200601"
    shutil.copy(next(dumps.glob("wikidata-20200501*")), folder)
    with pytest.raises(UserError, match=r"has 2 \(wikidata-20200501.* Wikidata dumps; give"):
        snapshots.find(folder)
    for date in DATES:
        (tmp_path / "dated" / date).mkdir(parents=True)
        for path in dumps.glob(f"*{date}*"):
            shutil.copy(path, tmp_path / "dated" / date)
    places = [str(tmp_path / "dated")], [str(dumps)]
    in_folders, in_one = ([s.date for s in snapshots.find_all(place)] for place in places)
    assert in_folders == in_one == list(DATES)
    known = [snapshots.find(dumps / date).describe() for date in (DATES[0], DATES[2])]
    assert [s.date for s in snapshots.find_all(places[1], known)] == [DATES[0], DATES[2]]
    other = tmp_path / "20200701"
    other.mkdir()
    text = next(dumps.glob("simwiki-20200701*multistream.xml.bz2")).read_bytes()
    plain = bz2.decompress(text).replace(b"<dbname>simwiki<", b"<dbname>otherwiki<")
    (other / "otherwiki-20200701-pages-articles.xml").write_bytes(plain)
    shutil.copy(next(dumps.glob("wikidata-20200701*")), other)
    series = [snapshots.find(dumps / "20200501"), snapshots.find(other)]
    with pytest.raises(UserError, match="of simwiki and .* of otherwiki; give two of one wiki"):
        snapshots.check_series(series)


def test_a_method_waits_for_its_last_model_and_not_for_others(tmp_path, capsys):
    def training(name, *after):
        folder = tmp_path / name
        code = (
            f"import pathlib, time; f = pathlib.Path({str(folder)!r}); time.sleep(0.1)\n"
            f"assert all((f.parent / n / 'summary.json').exists() for n in {after!r})\n"
            """(f / 'summary.json').write_text('{"steps": 1, "train_seconds": 1}')"""
        )
        return subprocess_runs.Training(name, folder, (sys.executable, "-c", code), after)

    chain = [training("a1"), training("b1"), training("a2", "a1"), training("b2", "b1")]
    subprocess_runs.run_all(chain, jobs=2)
    assert all(t.is_done for t in chain)
    said = capsys.readouterr().out.split("\n")
    assert said.index("   a2  started") > said.index("   a1  done: 1 step in 1 s")
    subprocess_runs.run_all(chain, jobs=2)
    assert capsys.readouterr().out == ""


def test_updates_review_the_first_snapshot(tmp_path):
    updates = Updates(out=str(tmp_path / "out"), months=2)
    data = Data(updates, job.check(updates)[0])
    for model in job.models(data, {}):
        reviews = "--gin.REPLAY_TASK_NAME='d0'" in job.training(data, model).command
        assert reviews == (model.interval is not None), model.name


def test_changed_spans_are_weighed_in_updates_and_not_in_the_initial_model(tmp_path):
    for weight in (1.0, 3.0):
        updates = Updates(out=str(tmp_path), months=2, changed_span_weight=weight)
        data = Data(updates, job._snapshots(updates))
        initial, update, *_ = [job._macros(data, model) for model in job.models(data, {})]
        assert "CHANGED_SPAN_WEIGHT" not in initial
        assert update.get("CHANGED_SPAN_WEIGHT", 1.0) == weight
    with pytest.raises(UserError, match="--changed-span-weight is 0"):
        Updates(changed_span_weight=0)
    packed = Updates(out=str(tmp_path), changed_span_weight=2, bindings=("PACK_ROWS = True",))
    with pytest.raises(UserError, match="needs whole rows"):
        job.check(packed)


def test_options_of_dumps_reach_diffsets_and_probes(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        study_data.diffsets, "plan", lambda old, new, out, o: made.append(o) or Plan
    )
    monkeypatch.setattr(
        study_data.probes, "build", lambda job, *_, **ends: made.append((job, ends)) or 1 / 0
    )
    monkeypatch.setattr(Data, "_diffset", lambda self, plan, last=None: {})

    class Plan:
        new = type("new", (), {"wiki": "dewiki"})

    table = tmp_path / "templates.txt"
    table.write_text("a = {1}\n")
    given = dict(legacy=True, unsorted=True, templates=str(table))
    of_job = dict(facts="paper", subject_cap=0.1, page_map="m.tsv", properties="p.json", seed=3)
    rules = dict(language="de", qualifiers=True)
    updates = Updates(out=str(tmp_path), fix_point=True, light_tuning=5, **given, **of_job, **rules)
    with pytest.raises(ZeroDivisionError):
        data = Data(
            updates, [snapshots.Snapshot(date, "w", "d") for date in ("20200101", "20200201")]
        )
        data.build_interval(data.intervals[0])
    options, (made_job, ends) = made
    assert options == study_data.diffsets.Options(deletions=True, **given)
    assert {name: getattr(made_job, name) for name in of_job} == of_job
    assert {name: getattr(made_job.rules, name) for name in rules} == rules
    assert made_job.rules.site == "dewiki" and ends == {"fix_point": True, "light_tuning": 5}
    for wrong, complaint in [
        (dict(page_map="absent.tsv"), "no page-to-item map absent.tsv"),
        (dict(properties="absent.json"), "no Wikidata dump absent.json"),
        (dict(templates="absent.txt"), "no table of templates absent.txt"),
    ]:
        with pytest.raises(UserError, match=complaint):
            job.check(Updates(out=str(tmp_path), **wrong))
    for wrong in (dict(proper_nouns=5), dict(changed_span_weight=3.0)):
        with pytest.raises(UserError, match="needs diffsets made without --legacy"):
            Updates(out=str(tmp_path), legacy=True, **wrong)
    Updates(out=str(tmp_path), unsorted=True, proper_nouns=5)  # in the order of ids, too


@pytest.mark.parametrize(
    "name, before, now, may",
    [
        ("facts", None, "paper", True),
        ("facts", None, "current", False),
        ("changed_span_weight", None, 1.0, True),
        ("language", None, "de", False),
        ("legacy", None, False, True),
        ("light_tuning", None, 0, True),
        ("light_tuning", 0, 5, False),
        ("proper_nouns", 0, 5, True),
    ],
)
def test_folders_of_before_a_setting_had_its_default(tmp_path, name, before, now, may):
    assert bool(job._may_become(tmp_path, name, before, now)) == may


def test_full_trains_on_the_old_documents_and_the_news(tmp_path):
    made = simulated.vocabulary(str(tmp_path))
    rows = simulated.Rows(folder=str(tmp_path / "rows"), tasks=("d0", "d1", "whole"))
    simulated.make_inputs(data_dir=str(tmp_path), size="tiny", vocabulary=made, rows=rows)
    tasks = {name: CachedTask.open(tmp_path / "rows" / name) for name in ("d0", "d1", "whole")}
    old, new, whole = tasks.values()
    assert len(whole) == len(old) + len(new) and len(new) > 10
    assert whole.row(0) == old.row(0) and whole.row(len(old)) == new.row(0)
    assert whole.meta["vocabulary_digest"] == made.digest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*The caps leave")
def test_models_are_tuned_on_facts_and_asked_for_proper_nouns(one_device_each, tmp_path, capsys):
    out = tmp_path / "out"
    argv = [
        "temporalwiki",
        f"--out={out}",
        "--size=tiny",
        "--methods=diff",
        "--months=2",
        "--gin=EPOCHS=2",
    ]
    argv += ["--gin=LIGHT_TUNE_BATCH=17"]  # more than there are facts
    assert ckl.main([*argv, "--light-tuning=8"]) == 0
    capsys.readouterr()
    assert ckl.main([*argv, "--light-tuning=8", "--proper-nouns=20"]) == 0  # asked later
    said = capsys.readouterr().out
    assert "vanilla, proper nouns" in said and "tuned: " not in said
    made = json.loads((out / "tables.json").read_text())
    wanted = {"light_tuned": ("unchanged", "changed"), "proper_nouns": tuple(results.TEXT_MEASURES)}
    for name, kinds in wanted.items():
        rows = {row["method"]: row["cells"]["20200501-20200601"] for row in made[name]}
        assert list(rows) == ["initial", "vanilla"]
        assert all(row[kind]["value"] > 0 for row in rows.values() for kind in kinds)
    summary = out / "initial" / "light_tuned" / "20200501-20200601_changed" / "summary.json"
    assert json.loads(summary.read_text())["base_checkpoint"] == str(out / "initial")
    assert ckl.main([*argv, "--light-tuning=5"]) == 2
    assert "another light_tuning (8, not 5)" in capsys.readouterr().err


def test_a_class_without_facts_to_tune_on_is_left_out_of_light_tuning(tmp_path):
    updates = Updates(out=str(tmp_path), size="tiny", months=2, methods=("lora",), light_tuning=5)
    data = Data(updates, job._snapshots(updates))
    (interval,) = data.intervals
    for kind, facts in {"unchanged": "\na,b,c\n", "changed": "\n"}.items():
        for path in (data.tuning_facts(interval, kind), data.fact_file(interval, kind)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"subject,relation,object{facts}")
    with pytest.warns(UserWarning, match="no changed facts of 20200501-20200601 to tune") as told:
        trainings = extra_evaluations.wanted(data, job.models(data, {}))
    assert len(told) == 1
    name = interval.name
    names = [f"initial, tuned: {name}_unchanged", f"{name} lora, tuned: unchanged"]
    assert [training.name for training in trainings] == names


@pytest.mark.slow
def test_a_model_of_hugging_face_is_updated(one_device_each, dumps, tmp_path, capsys):
    """`--model`: its vocabulary and weights as they are, then an update of each interval."""
    config = dataclasses.replace(TINY_GPT2, vocab_size=300, max_positions=32)
    save_hf(tmp_path / "hf", random_params(config), config)
    train_tokenizer(tmp_path / "hf", "The head of the city is a person of the town. " * 3)
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    model, out = tmp_path / "gpt2", tmp_path / "out"
    assert ckl.main(["import-hf", "--model", str(tmp_path / "hf"), "--out", str(model)]) == 0
    argv = [
        "temporalwiki",
        f"--out={out}",
        f"--model={model}",
        "--methods=diff,lora",
        "--jobs=1",
        "--initial-epochs=0",
        "--unchanged-fraction=1",
        "--gin=BATCH_SIZE=4",
        "--gin=LEARNING_RATE=1e-2",
        "--snapshots",
        *(str(dumps / date) for date in DATES[:2]),
    ]
    assert ckl.main(argv) == 2  # the paper's rows
    assert "of 512 tokens and" in (err := capsys.readouterr().err) and "ROW_LENGTH=32," in err
    assert not out.exists()
    argv += ["--gin=ROW_LENGTH=32"]
    (hidden := model / "vocab.json").rename(tmp_path / "vocab.json")
    assert ckl.main(argv) == 2 and not out.exists()
    assert f"There is no vocabulary in {model}" in capsys.readouterr().err
    (tmp_path / "vocab.json").rename(hidden)
    assert ckl.main(argv) == 0
    assert "Diff" in capsys.readouterr().out
    table = json.loads((out / "tables.json").read_text())["table_3"]
    found = {row["method"]: row["intervals"]["20200501-20200601"] for row in table}
    changed = {method: classes["changed"]["value"] for method, classes in found.items()}
    assert not table[0]["steps"] and table[0]["method"] == "initial"
    # Random weights know as much of each of their tokens; the diffset teaches.
    assert 250 < changed["initial"] < 350 and changed["vanilla"] < changed["initial"]
    summary = json.loads((out / "20200501-20200601" / "lora" / "summary.json").read_text())
    assert summary["base_checkpoint"] == str(out / "initial")


def test_the_vocabulary_of_an_imported_decoder_is_its_own(tmp_path):
    llama_tokenizer.train_tokenizer(tmp_path)  # begins texts with <s>, and is not GPT-2's
    updates = Updates(out=str(tmp_path / "out"), model=str(tmp_path))
    vocabulary = job._vocabulary(updates, {})
    assert vocabulary.around == ([1], []) and vocabulary.bos_id == 1
