"""`ckl experiment`: every cell's configuration parses, and the smallest size runs to its tables."""

import dataclasses
import functools
import json

import jax
import pytest

from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli.ckl import main
from ckl_jax.config import gin_config
from ckl_jax.convert.hugging_face import import_checkpoint
from ckl_jax.data.facts.ckl_files import corpus_texts
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import demo
from ckl_jax.papers.ckl import experiments as job
from ckl_jax.papers.ckl.demo import Demo
from ckl_jax.papers.ckl.imported import Imported
from ckl_jax.papers.ckl.methods import NEWER, PAPER
from ckl_jax.train import studies, subprocess_runs
from ckl_jax.world.ckl import build_world
from ckl_jax.world.probe_files import probe_files
from ckl_jax.world.render import articles, pages
from ckl_jax.world.timeline import make_world
from tests.helpers import TINY, TINY_GPT2, random_params
from tests.papers.ckl.test_experiment_files import MODEL_GIN
from tests.tiny import ROOT

TABLES = ("ckl/table2", "ckl/table3", "ckl/table7")  # the others are made of the same cells
CELLS = [
    pytest.param(name, scenario, cell, id=f"{name}-{scenario.name}-{cell.name}")
    for name in TABLES
    for scenario in job.EXPERIMENTS[name].scenarios
    for cell in scenario.cells
]


def settings_of(command):
    """{gin name: value as text} of a command line, its files read."""
    files = [a.removeprefix("--gin_file=") for a in command if a.startswith("--gin_file=")]
    macros = [a.removeprefix("--gin.") for a in command if a.startswith("--gin.")]
    bindings = [a.removeprefix("--gin_bindings=") for a in command if "--gin_bindings=" in a]
    found = gin_config.read(files, [*(m.replace("=", " = ", 1) for m in macros), *bindings])
    return {b.name: b.value for b in found.scan.bindings}


@pytest.mark.parametrize("name, scenario, cell", CELLS)
def test_a_cell_is_what_the_table_says(name, scenario, cell, tmp_path):
    running = job.Running(out=str(tmp_path), size="tiny")
    trainings = {t.name: t for t in job.trainings(job.find(name), running)}
    training = trainings[f"{scenario.name} {cell.name}"]
    settings = settings_of(training.command)
    published = {"main": "d1", "small": "d1_small", "p1": "p1", "p1_p2": "p2", "rates": "d1_small"}
    assert settings["MIXTURE_OR_TASK_NAME"] == published[scenario.name]
    assert settings["closed_book.ClosedBook.probes"] == scenario.probes
    assert settings["INITIAL_CHECKPOINT_PATH"] == str(
        tmp_path / "p1" / cell.name if scenario.after else tmp_path / "initial"
    )
    assert training.after == (f"p1 {cell.name}" if scenario.after else "initial",)
    if cell.rate:
        assert settings["LEARNING_RATE"] == cell.rate
    grows = cell.method in ("lora", "k_adapter_k2", "k_adapter_k3", "modular")
    phases = [value for name, value in settings.items() if name.endswith(".phase")]
    assert phases == ([1 if scenario.after else 0] if grows else [])
    assert settings["REVIEW_TASK_NAME"] == ("p1" if scenario.after else None)
    assert cell.name in job.find(name).published[scenario.name]


@pytest.mark.parametrize(
    "name", [n for n in job.EXPERIMENTS if n not in ("ckl/table10", "ckl/table11")]
)
@pytest.mark.parametrize("method", NEWER)
def test_newer_methods_have_a_cell_in_every_scenario(name, method, tmp_path):
    experiment = job.find(name)
    running = job.Running(out=str(tmp_path), size="tiny", methods=(method,))
    for training in job.trainings(experiment, running)[-1:]:
        settings = settings_of(training.command)
        assert training.folder.name.partition("-")[0] == method
        if method == "lora_mix_review":
            assert settings["lora.lora.phase"] == int(experiment.scenarios[-1].name == "p1_p2")
    cells = [running.chosen(scenario) for scenario in experiment.scenarios]
    assert all(any(cell.method == method for cell in found) for found in cells)


def test_all_stands_for_the_papers_methods(tmp_path):
    def chosen(*methods):
        running = job.Running(out=str(tmp_path), methods=methods)
        return [c.name for c in running.chosen(job.find("ckl/table2").scenarios[0])]

    assert chosen("all") == chosen() == list(PAPER)
    assert chosen("replay", "all") == [*PAPER, "replay"] and chosen("newer") == list(NEWER)
    # A method of the package needs no more than its gin file to be named.
    assert chosen("sparse", "lora") == ["lora", "sparse"]


@pytest.mark.parametrize("name", ["ckl/table2", "ckl/pareto"])
def test_a_users_own_gin_file_is_a_method(name, tmp_path):
    own = str(ROOT / "examples" / "ia3_method" / "ckl_ia3.gin")
    running = job.Running(out=str(tmp_path), size="tiny", methods=(own, "vanilla"), rates=(0.5,))
    found = job.trainings(job.find(name), running)[1:]
    assert {t.folder.name.partition("-")[0] for t in found} == {"vanilla", "ia3"}
    (mine,) = (t for t in found if t.folder.name.startswith("ia3"))
    assert f"--gin_file={own}" in mine.command
    assert Demo(methods=(own,)).methods == (own,)


def test_a_sweep_has_a_cell_for_each_rate_and_strength(tmp_path):
    settings = {"methods": ("lora", "modular"), "rates": (1e-3, 2e-5), "strengths": True}
    running = job.Running(out=str(tmp_path), size="tiny", **settings)
    made = {t.name: t for t in job.trainings(job.find("ckl/pareto"), running)}
    assert list(made) == [
        "initial",
        *(f"pareto lora-0.001{x}" for x in ("", "-rank=1", "-rank=16")),
        *(f"pareto lora-2e-05{x}" for x in ("", "-rank=1", "-rank=16")),
        "pareto modular-0.001",
        "pareto modular-2e-05",
    ]
    settings = settings_of(made["pareto lora-2e-05-rank=16"].command)
    assert settings["LEARNING_RATE"] == 2e-5 and settings["lora.lora.rank"] == 16
    assert settings["MIXTURE_OR_TASK_NAME"] == "d1" and not settings["train.train.eval_first"]


def test_the_full_size_starts_from_the_published_files(tmp_path):
    running = job.Running(out=str(tmp_path), size="full", data="/data/ckl", methods=("lora",))
    made = job.trainings(job.find("ckl/table3"), running)
    assert [t.name for t in made] == ["small lora", "p1 lora", "p1_p2 lora"]
    settings = settings_of(made[0].command)
    assert settings["DATA_DIR"] == "/data/ckl" and settings["t5.T5Config.emb_dim"] == 1024
    assert settings["EPOCHS"] == 8 and made[0].after == ()


def test_real_facts_take_the_place_of_the_simulated_ones(tmp_path):
    facts = {"data": "/data/facts", "source": "wikidata"}
    running = job.Running(out=str(tmp_path), size="tiny", methods=("lora",), **facts)
    made = {t.name: t for t in job.trainings(job.find("ckl/table3"), running)}
    settings = settings_of(made["p1_p2 lora"].command)
    assert settings["t5.T5Config.vocab_size"] == 5632 and settings["t5.T5Config.emb_dim"] == 32
    assert settings["DATA_DIR"] == str(tmp_path / "data")


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["ckl/table33"], "there are ckl/table2, ckl/table3, ckl/table7, ckl/table8, ckl/table10,"),
        (["ckl/table10", "--methods", "modular"], "ckl/table10 has no cells of --methods modular"),
        (
            ["ckl/table11", "--methods", "lora,ewc,lwf"],
            "no cells of --methods ewc,lwf; it has those",
        ),
        (["ckl/table2", "--rates", "1e-3"], "--rates and --strengths are of ckl/pareto"),
        (["ckl/pareto", "--rates", "0"], "A rate of --rates is 0.0; give a finite number above 0"),
        (["ckl/pareto", "--gin", "LEARNING_RATE=1"], "--gin.LEARNING_RATE: the command sets it"),
        (["ckl/table2", "--gin", "MODEL_DIR='x'"], "--gin.MODEL_DIR: the command sets it itself"),
        (["ckl/table7", "--gin", "LEARNING_RATE=1"], "--gin.LEARNING_RATE: the command sets it"),
        (["ckl/table2", "--gin", "EPOCSH = 1"], "Did you mean 'EPOCHS'"),
        (["ckl/table10", "--tuning-seeds", "0"], "--tuning-seeds"),
        (["ckl/table2", "--size=full", "--data=/nowhere"], "No checkpoint at /nowhere/initial"),
        (["ckl/table10", "--size=full", "--data=/nowhere"], "No checkpoint at /nowhere/gpt2"),
        (["ckl/table3", "--size", "huge"], "--size is 'huge'"),
        (["ckl/table3", "--methods", ""], "--methods is '' and names none"),
        (["ckl/table3", "--tuning-seeds", "3"], "--tuning-seeds is of GPT-2"),
        (["ckl/table3", "--size", "full"], "--size full needs --data"),
        (["ckl/table3", "--data", "/nowhere"], "--source wikidata or factbook: give one of these"),
        (["ckl/table3", "--source", "wikdata"], "--source is 'wikdata'"),
        (["ckl/table3", "--source", "wikidata"], "No --data is given"),
        (["ckl/table8", "--source", "wikidata", "--data", "x"], "no KILT is made"),
        (["ckl/table3", "--methods", "lroa"], "lroa"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, arguments, sentence):
    assert main(["experiment", *arguments, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_gpt2_is_updated_and_tuned_by_seeds(tmp_path):
    running = job.Running(
        out=str(tmp_path), size="tiny", methods=("lora", "k_adapter_k3"), tuning_seeds=2
    )
    made = {t.name: t for t in job.trainings(job.find("ckl/table11"), running)}
    assert len(made) == 3 * (1 + 2 * 2)
    update = settings_of(made["gpt2_1e-3 k_adapter_k3"].command)
    assert update["LEARNING_RATE"] == 1e-3 and update["mix_review.mix_review.ratio"] == 4.0
    assert update["INITIAL_CHECKPOINT_PATH"] == str(tmp_path / "gpt2_initial")
    # The first makes the tasks that the others read.
    assert made["gpt2_1e-3 k_adapter_k3"].after == ("gpt2_initial", "gpt2_1e-3 lora")
    tuned = made["gpt2_1e-3 lora questions_1"]
    assert tuned.folder == tmp_path / "gpt2_1e-3" / "lora" / "light_tuned" / "questions_1"
    settings = settings_of(tuned.command)
    assert settings["RANDOM_SEED"] == 1 and settings["LEARNING_RATE"] == 1e-3
    assert settings["QUESTIONS"] and settings["PROBE_NAMES"] == ("new_lama_easy_small",)
    assert settings["INITIAL_CHECKPOINT_PATH"] == str(tmp_path / "gpt2_1e-3" / "lora")


def test_light_tuned_models_go_when_they_have_been_asked(tmp_path):
    experiment = job.find("ckl/table11")
    for keep in (False, True):
        running = job.Running(
            out=str(tmp_path), size="tiny", methods=("lora",), keep_light_tuned=keep
        )
        keeps = {t.name: t.keeps_model for t in job.trainings(experiment, running)}
        assert keeps["gpt2_1e-3 lora"] and keeps["gpt2_1e-3 lora questions_1"] is keep


def test_a_model_that_is_not_kept_goes_when_its_training_is_done(tmp_path):
    made = []
    for name, keeps in (("kept", True), ("tuned", False)):
        folder = tmp_path / name
        script = f"mkdir {folder}/checkpoint_3; echo '{{}}' > {folder}/summary.json"
        made.append(subprocess_runs.Training(name, folder, ("sh", "-c", script), keeps_model=keeps))
    subprocess_runs.run_all(made)
    assert (tmp_path / "kept" / "checkpoint_3").is_dir()
    assert sorted(p.name for p in (tmp_path / "tuned").iterdir()) == ["log.txt", "summary.json"]
    # What was stopped just before, too; what is not done is what it starts again from.
    (tmp_path / "tuned" / "checkpoint_3").mkdir()
    (tmp_path / "half" / "checkpoint_3").mkdir(parents=True)
    half = subprocess_runs.Training("half", tmp_path / "half", ("false",), keeps_model=False)
    subprocess_runs.run_all(made)
    with pytest.raises(UserError, match="half"):
        subprocess_runs.run_all([half])
    assert not (tmp_path / "tuned" / "checkpoint_3").exists()
    assert (tmp_path / "half" / "checkpoint_3").exists()


def test_gpt2_at_the_published_size(tmp_path):
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "model.gin").write_text(MODEL_GIN)
    running = job.Running(
        out=str(tmp_path / "out"), size="full", data=str(tmp_path), methods=("lora",)
    )
    made = {t.name: t for t in job.trainings(job.find("ckl/table10"), running)}
    assert len(made) == 2 * (1 + 2 * 5)
    before = settings_of(made["gpt2_initial"].command)
    assert before["INITIAL_CHECKPOINT_PATH"] == str(tmp_path / "gpt2")
    assert (before["D1_TEXT"], before["TRAIN_STEPS"]) == ("wikipedia", 14000)
    update = settings_of(made["gpt2_1e-4 lora"].command)
    assert (update["ROW_LENGTH"], update["BATCH_SIZE"], update["EPOCHS"]) == (350, 60, 8)
    assert update["gpt2.GPT2Config.emb_dim"] == 1280 and update["LEARNING_RATE"] == 1e-4
    tuned = settings_of(made["gpt2_1e-4 lora questions_4"].command)
    assert (tuned["LIGHT_TUNE_LENGTH"], tuned["PROMPT_LENGTH"]) == (100, 100)
    assert tuned["BATCH_SIZE"] == 8
    assert tuned["PROBE_DIR"] == str(tmp_path)


@pytest.mark.slow
def test_gpt2_to_its_table(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    arguments = [
        "experiment",
        "ckl/table10",
        "--size",
        "tiny",
        "--methods",
        "vanilla",
        "--out",
        str(tmp_path),
        "--jobs",
        "1",
    ]
    assert main(arguments) == 0
    part = json.loads((tmp_path / "ckl-table10.json").read_text())["gpt2_1e-4"]
    assert part["fuar"] == "((IL), n.d., NQE)" and list(part["rows"]) == ["initial", "vanilla"]
    cell = part["rows"]["vanilla"]["new_questions_easy"]
    assert cell["paper"] == 5.79
    assert cell["ours"] == pytest.approx(sum(part["seeds"]["vanilla"]["new_questions_easy"]) / 2)


@pytest.mark.slow
def test_figures_share_the_cells_of_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS")
    common = ["--size", "tiny", "--out", str(tmp_path), "--jobs", "1"]
    for name in ("figure2", "figure8", "figure9", "table12", "table13"):
        methods = "vanilla,modular" if name == "table12" else "vanilla"
        assert main(["experiment", f"ckl/{name}", *common, "--methods", methods]) == 0
        told = capsys.readouterr().out
        wanted = {"figure2": ["vanilla", "initial"], "table12": ["modular"]}.get(name, [])
        assert told.count("started") == len(wanted)
        assert "updated model" in (tmp_path / f"ckl-{name}.md").read_text()
        # What came out in words, what probes ask, and the facts.
        page = (tmp_path / f"ckl-{name}.html").read_text()
        assert "right after Vanilla" in page and "What probes ask" in page and "all facts" in page
        assert page.count("<tr>") > 100
    images = {path.name for path in tmp_path.glob("*.png")}
    assert images - {"ckl-figure8.png"} == {"ckl-figure2.png", "ckl-figure9.png"}
    page = (tmp_path / "ckl-figure8.md").read_text()
    # A model so small may get an answer right, or none.
    is_drawn = "ckl-figure8.png" in images
    assert "61.47" in page
    assert ("No answer of either probe is right: no figure." in page) is not is_drawn


@pytest.mark.slow
def test_two_phases_at_the_smallest_size(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS")  # it runs longer than it compiles
    arguments = [
        "experiment",
        "ckl/table3",
        "--size",
        "tiny",
        "--methods",
        "vanilla,lora",
        "--out",
        str(tmp_path),
        "--jobs",
        "1",
    ]
    assert main(arguments) == 0
    parts = json.loads((tmp_path / "ckl-table3.json").read_text())
    assert list(parts) == ["small", "p1", "p1_p2", "p1_p2_transfer"]
    moved = parts.pop("p1_p2_transfer")["rows"]["lora"]["backward_p1"]
    before, after = (parts[s]["rows"]["lora"]["new_lama_easy_p1"]["ours"] for s in ("p1", "p1_p2"))
    assert moved["ours"] == pytest.approx(after - before) and moved["paper"] == -4.72
    for part in parts.values():
        assert list(part["rows"]) == ["initial", "vanilla", "lora"]
        assert part["probes"] == ["invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2"]
    assert parts["p1_p2"]["fuar"] == "((IL, n.d.), n.d., NLE-P2)"
    assert parts["p1_p2"]["parameters"]["lora"]["paper"] == "404M / 740M"
    cell = parts["small"]["rows"]["lora"]["invariant_lama"]
    assert cell["paper"] == 14.26 and 0 <= cell["low"] <= cell["ours"] <= cell["high"] <= 100
    second = json.loads((tmp_path / "p1_p2" / "lora" / "summary.json").read_text())
    first = json.loads((tmp_path / "p1" / "lora" / "summary.json").read_text())
    assert (first["phase"], second["phase"]) == (1, 2)
    assert second["total_parameters"] > first["total_parameters"]
    page = (tmp_path / "ckl-table3.md").read_text()
    assert "14.26" in page and "p1_p2: InvariantLAMA: " in page
    capsys.readouterr()
    assert main(arguments) == 0  # nothing is left to train
    assert "started" not in capsys.readouterr().out


# --- imported models


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A folder with a world in the published layout, and a T5 and a GPT-2 of `ckl import-hf`."""
    root = tmp_path_factory.mktemp("imported")
    build_world(root / "published", 0, "tiny")
    texts = corpus_texts(root / "published" / "recent_news_full.csv")
    for name, config in (("t5", TINY), ("gpt2", TINY_GPT2)):
        config = dataclasses.replace(config, vocab_size=512)
        save_hf(root / f"hf_{name}", random_params(config), config)
    train_vocabulary(texts, root / "hf_t5" / "spiece.model", 400)
    for name in ("t5", "gpt2"):
        import_checkpoint(str(root / f"hf_{name}"), str(root / name))
    return root


def test_an_imported_model_takes_the_place_of_the_sizes(imported, tmp_path):
    """At the full size it is the Initial model; else the Initial model is trained from it."""
    model, data = str(imported / "t5"), str(imported / "published")
    common = {"methods": ("k_adapter_k3",), "model": model}
    full = job.Running(out=str(tmp_path), size="full", data=data, **common)
    (made,) = job.trainings(job.find("ckl/table2"), full)
    settings = settings_of(made.command)
    assert settings["t5.T5Config.emb_dim"] == 16 and settings["K3_TAPS"] == (0, 1, 2)
    assert settings["vocabularies.Vocabulary.path"] == f"{model}/spiece.model"
    assert settings["INITIAL_CHECKPOINT_PATH"] == model and settings["DATA_DIR"] == data
    assert settings["CACHE_DIRS"] == (f"{tmp_path}/data/prepared/tasks",)
    small = job.Running(out=str(tmp_path), **common)
    initial, made = (settings_of(t.command) for t in job.trainings(job.find("ckl/table2"), small))
    assert initial["INITIAL_CHECKPOINT_PATH"] == model
    assert made["INITIAL_CHECKPOINT_PATH"] == str(tmp_path / "initial")
    for settings in (initial, made):
        assert settings["t5.T5Config.emb_dim"] == 16 and settings["MODULAR_NUM_LAYERS"] == 1
        assert settings["TASK_FEATURE_LENGTHS"] == {"inputs": 64, "targets": 32}


def test_the_full_size_is_that_of_the_initial_model(imported, tmp_path):
    """DATA/initial, which `ckl import-hf` wrote, says which T5 it is."""
    (tmp_path / "initial").symlink_to(imported / "t5")
    running = job.Running(
        out=str(tmp_path / "out"), size="full", data=str(tmp_path), methods=("modular",)
    )
    made = [settings_of(t.command) for t in job.trainings(job.find("ckl/table3"), running)]
    assert [settings["t5.T5Config.emb_dim"] for settings in made] == [16] * 3
    assert [settings["MODULAR_EMB_DIM"] for settings in made] == [8] * 3


def test_macros_of_a_t5_large_are_the_papers():
    config = {"num_encoder_layers": 24, "emb_dim": 1024, "num_heads": 16, "head_dim": 64}
    macros = Imported("x", "T5", config | {"mlp_dim": 4096}).macros
    paper = gin_config.read(["ckl_modular.gin", "ckl_full.gin"], ["DATA_DIR = 'x'"]).scan.bindings
    assert macros.items() <= {b.name: b.value for b in paper}.items() and len(macros) == 7


def test_a_file_to_tune_on_must_be_there(tmp_path):
    bindings = ("LIGHT_TUNE_TREX = 'none.csv'",)
    running = job.Running(out=str(tmp_path / "out"), bindings=bindings, methods=("vanilla",))
    with pytest.raises(UserError, match="LIGHT_TUNE_TREX is 'none.csv', and there is no such"):
        job.run("ckl/table10", running)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ckl/table8", "ckl/table10"])
def test_bindings_are_checked_before_there_are_data(name, tmp_path, monkeypatch):
    """Also of trainings on rows that gin makes from data."""
    running = job.Running(
        out=str(tmp_path / "out"), bindings=("MESH_SHAPE = {'data': 2}",), methods=("vanilla",)
    )
    for starts_jax in ("devices", "default_backend"):  # and so takes a GPU's memory
        monkeypatch.setattr(jax, starts_jax, None)
    monkeypatch.setattr(studies, "device_count", lambda: 2)
    check = functools.partial(studies.check_trainings, bindings=running.bindings)
    check(job.trainings(job.find(name), running))
    with pytest.raises(UserError, match="does not divide into 2 parts"):
        other = dataclasses.replace(running, bindings=(*running.bindings, "BATCH_SIZE = 3"))
        check(job.trainings(job.find(name), other))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["ckl/table2", "--model", "{gpt2}"], "ckl/table2 trains a T5, and --model {gpt2} is a"),
        (["ckl/table10", "--model", "{t5}"], "ckl/table10 trains a GPT-2, and --model {t5} is a"),
        (["ckl/table10", "--model", "{gpt2}"], "an imported model at --size full only"),
        (["ckl/table2", "--model", "/nowhere"], "No checkpoint at /nowhere"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(imported, tmp_path, capsys, arguments, sentence):
    folders = {name: str(imported / name) for name in ("t5", "gpt2")}
    words = [word.format(**folders) for word in arguments]
    assert main(["experiment", *words, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert sentence.format(**folders) in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_demo_takes_an_imported_model_too(imported, tmp_path, capsys):
    settings = Demo(out=str(tmp_path / "out"), model=str(imported / "t5"))
    initial, lora = (settings_of(demo.training(settings, n).command) for n in ("initial", "lora"))
    for made in (initial, lora):
        assert made["t5.T5Config.emb_dim"] == 16
        assert made["vocabularies.Vocabulary.path"] == f"{imported}/t5/spiece.model"
    assert initial["INITIAL_CHECKPOINT_PATH"] == f"{imported}/t5"
    assert lora["INITIAL_CHECKPOINT_PATH"] == f"{tmp_path}/out/initial"
    assert main(["demo", "--out", str(tmp_path / "out"), "--model", str(imported / "gpt2")]) == 2
    assert "ckl demo trains a T5, and --model" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("size", ["full", "tiny"])
def test_an_imported_model_to_its_table(imported, tmp_path, monkeypatch, size):
    monkeypatch.delenv("XLA_FLAGS")
    data = ["--data", str(imported / "published")] if size == "full" else []
    short = {"EPOCHS": 1, "TASK_FEATURE_LENGTHS": {"inputs": 48, "targets": 24}, "BATCH_SIZE": 16}
    short["closed_book.ClosedBook.ks"] = (1,)
    words = [*data, "--model", str(imported / "t5"), "--methods", "modular", "--jobs", "1"]
    words += [f"--gin={name}={value!r}" for name, value in short.items()]
    out = tmp_path / "out"
    assert main(["experiment", "ckl/table2", "--size", size, "--out", str(out), *words]) == 0
    rows = json.loads((out / "ckl-table2.json").read_text())["main"]["rows"]
    assert list(rows) == ["initial", "modular"] and rows["initial"]["new_lama"]["ours"] is not None


@pytest.mark.parametrize(
    "size, width", [("tiny", 32), ("small", 128), ("wide", 128), ("medium", 256), ("large", 512)]
)
def test_sizes_have_a_model_each(size, width, tmp_path):
    running = job.Running(out=str(tmp_path), size=size, methods=("modular",))
    for name, config in (("ckl/table3", "t5.T5Config"), ("ckl/table10", "gpt2.GPT2Config")):
        method = "modular" if name == "ckl/table3" else "lora"
        running = job.Running(out=str(tmp_path), size=size, methods=(method,))
        for training in job.trainings(job.find(name), running)[:2]:
            settings = settings_of(training.command)
            assert settings["WORLD_SIZE"] == size and settings[f"{config}.emb_dim"] == width


@pytest.mark.parametrize("size", ["wide", pytest.param("medium", marks=pytest.mark.slow)])
def test_d0_of_larger_worlds_is_twenty_times_d1_and_both_halves_have_questions(size, tmp_path):
    world = make_world(0, size)
    news = list(articles(world))
    writers = probe_files(world, news)
    halves = [f"newlama/newLAMA_easy_small_split{half}.csv" for half in (1, 2)]
    assert min(writers[name](tmp_path / name) for name in halves) > 25
    d0, d1 = (sum(d.text.count("\n") + 1 for d, _ in dated) for dated in (pages(world), news))
    assert 20 < d0 / d1 < 26
