"""What `import ckl_jax as ckl` offers."""

import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import ckl_jax as ckl
from ckl_jax.data.facts.relational import Instance, Relation
from tests.analysis.helpers import make_demo, make_run
from tests.papers.temporalwiki.data.dump_files import dump, page, write
from tests.updates import planted
from tests.updates.test_job import save_llama


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return make_demo(tmp_path_factory.mktemp("demo"), ("initial", "vanilla", "lora"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("model") / "llama")


def test_importing_it_is_light():
    code = "import sys, ckl_jax; print(sorted({'jax', 'numpy', 'pandas'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert set(ckl.__all__) <= set(dir(ckl))
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = ckl.lod


def test_a_run_is_tables(demo):
    run = ckl.load(demo / "lora")
    scores, rows, ledger = run.scores(), run.rows(), run.ledger()
    assert scores.loc["invariant_lama", "items"] == (rows.probe == "invariant_lama").sum()
    mine = rows[rows.probe == "invariant_lama"]
    assert scores.loc["invariant_lama", "em"] == pytest.approx(mine.em.mean())
    low, high = scores.loc["invariant_lama", ["low", "high"]]
    assert low <= mine.em.mean() <= high
    states = ledger[ledger.probe == "invariant_lama"].state.value_counts()
    right = ledger[(ledger.probe == "invariant_lama") & (ledger.em == 1)]
    assert set(right.state) <= {"kept", "updated", "learned"} and states.sum() == len(mine)
    line = {"step": 5, "split": "train", "loss": 1.5}
    (demo / "lora" / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert run.metrics().to_dict("records") == [line] and len(repr(run)) < 200
    assert "<table" in run._repr_html_()


def test_runs_are_compared_as_in_the_report(demo):
    table = ckl.compare(demo)
    assert list(table.index) == ["Initial", "Vanilla", "LoRA"]
    told = ckl.load(demo / "lora").scores()
    assert table.loc["LoRA", "new_lama"] == pytest.approx(100 * told.loc["new_lama", "em"])
    assert np.isnan(table.loc["Initial", "fuar"]) and table.loc["LoRA", "fuar"] >= 0
    with pytest.raises(ckl.UserError, match="metric is 'bleu'; "):
        ckl.compare(demo, "bleu")


def test_an_initial_model_alone_is_compared_with_nothing(demo, tmp_path):
    shutil.copytree(demo / "initial", tmp_path / "initial")
    with pytest.raises(ckl.UserError, match="holds the Initial model and no update beside it"):
        ckl.compare(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_models_without_vanilla_are_tested_against_the_first(tmp_path):
    for name in ("initial", "lora", "recadam"):
        make_run(tmp_path, name)
    table = ckl.compare([tmp_path / name for name in ("initial", "lora", "recadam")])
    assert np.isnan(table.loc["LoRA", "new_lama_p"])
    assert 0 <= table.loc["RecAdam", "new_lama_p"] <= 1
    assert ckl.command(["report", str(tmp_path), "--out", str(tmp_path / "out")])["exit_code"] == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "* differs from RecAdam at 0.05" in page and "differs from RecAdam&#39;s" in page


def test_seeds_are_compared_as_in_the_report(demo, tmp_path):
    other = make_demo(tmp_path / "other", ("initial", "vanilla", "lora"), seed=1)
    table, single = ckl.compare_seeds([demo, other]), [ckl.compare(d) for d in (demo, other)]
    means = [one.loc["LoRA", "new_lama"] for one in single]
    row = table.loc["LoRA"]
    assert row.new_lama == pytest.approx(np.mean(means))
    assert [row.new_lama_low, row.new_lama_high] == pytest.approx(sorted(means))
    with pytest.raises(ckl.UserError, match="at least two demo folders"):
        ckl.compare_seeds([demo])
    again = tmp_path / "again"
    shutil.copytree(other, again)
    for folder in (other, again):
        (folder / "demo.json").write_text('{"seed": 1}')
    with pytest.raises(ckl.UserError, match="again has the seed 1 of another folder"):
        ckl.compare_seeds([other, again])


@pytest.mark.usefixtures("undrawn")
def test_a_command_runs_in_this_process(demo, tmp_path, capsys):
    done = ckl.command(f"report '{demo}' --out '{tmp_path}'")
    assert done["exit_code"] == 0 and (tmp_path / "report.html").is_file()
    assert "LoRA" in capsys.readouterr().out
    with pytest.raises(ckl.UserError, match="no command 'reports'.*Did you mean 'report'"):
        ckl.command("reports")


def test_figures_are_axes(demo):
    from matplotlib import pyplot

    run, plots = ckl.load(demo / "lora"), ckl.Plots(demo)
    probes = list(run.scores().index)
    assert len(plots.fates()) == len(run.plot.curves()) == len(probes)
    (initial, lora) = run.plot.curves("new_lama").get_lines()
    assert initial.get_label() == "Initial" and lora.get_label() == "LoRA"
    assert lora.get_ydata()[-1] == pytest.approx(100 * run.scores().loc["new_lama", "em"])
    ax = pyplot.figure().subplots()
    assert plots.pareto(ax) is ax and {"Vanilla", "LoRA"} <= {
        text.get_text().split(",")[0] for text in ax.get_legend().get_texts()
    }
    with pytest.raises(ckl.UserError, match="probes that can be drawn: invariant_lama, "):
        plots.curves("pareto")
    with pytest.raises(ckl.UserError, match="Nothing to draw"):
        run.plot.staleness()
    pyplot.close("all")


def test_staleness_is_a_table_and_a_curve():
    curve = {"labels": ["2020-01", "2020-02"], "values": [1.0, 3.0], "low": [0.0, 2.0]}
    found = ckl.Staleness({"months": {"stale": {**curve, "high": [2.0, 4.0]}}})
    assert found.months().loc["2020-02"].tolist() == [3.0, 2.0, 4.0]
    line = found.plot.staleness().get_lines()[0]
    assert line.get_label() == "stale" and list(line.get_ydata()) == [1.0, 3.0]
    assert "<table" in found._repr_html_() and repr(found) == "Staleness(stale)"
    assert repr(found.plot) == "Plots(Staleness(stale))"


def test_the_months_of_two_years_leave_room_for_each_other():
    months = [f"{year}-{month:02}" for year in (2018, 2019) for month in range(1, 13)]
    curve = dict.fromkeys(("values", "low", "high"), [1.0] * len(months))
    axes = ckl.Staleness({"months": {"stale": {"labels": months, **curve}}}).plot.staleness()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == months[::2]


def test_dumps_and_dated_text_are_split_as_by_the_commands(tmp_path):
    from ckl_jax.cli import ckl as command

    paths = [tmp_path / f"enwiki-20200{month}01.xml.bz2" for month in (1, 2)]
    pages = [page(1, "Rome", "Rome is a city.")]
    old = write(paths[0], dump(pages))
    new = write(paths[1], dump([*pages, page(2, "Oslo", "Oslo is a city. Really.")]))
    made = ckl.diffsets(old, new, tmp_path / "diffset")
    assert made["articles"] == 1 and (tmp_path / "diffset" / made["csv"]).is_file()
    with pytest.raises(ckl.UserError, match="has no 'shard'; there are deletions, "):
        ckl.diffsets(old, new, tmp_path / "other", shard=1)
    text = tmp_path / "stream.jsonl"
    assert command.main(["data", "stream", "--size", "tiny", "--out", str(text)]) == 0
    table = ckl.splits(text, tmp_path / "splits", test_end="2019")
    assert table.loc["test", "documents"] > 0 and len(table) == 5


def test_a_run_still_training_is_marked_and_others_are_refused(tmp_path):
    make_run(tmp_path, "vanilla")
    (tmp_path / "vanilla" / "summary.json").unlink()
    assert "not finished" in repr(ckl.load(tmp_path / "vanilla"))
    row = {"step": 1, "split": "train", "loss": 1.5}
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    begun = ckl.load(tmp_path / "begun")
    assert begun.metrics().to_dict("records") == [row] and "not probed" in repr(begun)
    with pytest.raises(ckl.UserError, match="No folder"):
        ckl.load(tmp_path / "none")
    with pytest.raises(ckl.UserError):
        ckl.load(tmp_path)
    (tmp_path / "unprobed" / "checkpoint_0").mkdir(parents=True)
    assert "not probed" in repr(ckl.load(tmp_path / "unprobed"))
    with pytest.raises(ckl.UserError, match="has no probes"):
        ckl.load(tmp_path / "unprobed").scores()
    newer = make_run(tmp_path, "lora") / "summary.json"
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"ckl_jax": "9.0.1"}))
    with pytest.raises(ckl.UserError, match="lora/summary.json was written by ckl_jax 9.0.1"):
        ckl.load(newer.parent)
    newer.unlink()  # still trained
    (newer.parent / "checkpoint_3/metadata").mkdir(parents=True)
    (newer.parent / "checkpoint_3/metadata/metadata").write_text('{"ckl_jax": "0.3.0"}')
    with pytest.raises(ckl.UserError, match="lora was written by ckl_jax 0.3.0, which is newer"):
        ckl.load(newer.parent)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda run: ckl.load(None), "folder of load.. is None; give str . PathLike"),
        (lambda run: ckl.load(run), "folder of load.. is a Run|is Run"),
        (lambda run: ckl.compare(5), "runs of compare.. is 5; give"),
        (lambda run: run.ledger(5), "initial is 5; give"),
        (lambda run: run.plot.pareto(5), "ax is 5; give Axes of matplotlib"),
        (lambda run: ckl.Plots(5).curves(), "runs is 5; give"),
        (lambda run: ckl.train([]), "MODEL_DIR is None; give the name of a folder"),
        (lambda run: ckl.train(["a.gin", 5]), "gin_files of train.. is"),
        (
            lambda run: ckl.train("ckl_lora.gin", METHOD=object),
            "METHOD of train.. is <class 'object'>",
        ),
        (
            lambda run: ckl.train("ckl_lora.gin", EPOCHS={1}),
            "EPOCHS of train.. is .1., which",
        ),
        (lambda run: ckl.command('demo --out "'), "is no command, .*: No closing quotation"),
        (lambda run: ckl.command(5), "5 is no command, such as 'demo --size tiny'"),
        (lambda run: ckl.update(run.path, documents="a", out="b", since=5), "since of update.. is"),
        (lambda run: ckl.update(run.path, documents="a", out="b", sinc="x"), "mean 'since'"),
        (lambda run: ckl.staleness([], "a"), "models of staleness"),
        (lambda run: ckl.Dataset.from_path(5), "path of from_path.. is 5"),
        (lambda run: ckl.Dataset.from_name(None), "name of from_name.. is None"),
        (lambda run: ckl.DatasetResults.from_path(5), "path of from_path.. is 5"),
        (lambda run: ckl.probe(run, 5), "path of from_path.. is 5"),
        (lambda run: ckl.splits(5, 5), "documents of splits.. is 5"),
        (lambda run: ckl.diffsets(None, 5, 5), "new of diffsets.. is 5"),
        (lambda run: ckl.Model("a", trust_imports=()), "Model.. has no 'trust_imports'"),
        (lambda run: ckl.Model("a", batch_size="8"), "batch_size of Model.. is '8'; give int"),
        (lambda run: ckl.Model("a", batch_size=True), "batch_size of Model.. is True; give int"),
    ],
)
def test_values_of_other_types_are_refused(demo, call, told):
    with pytest.raises(ckl.UserError, match=told):
        call(ckl.load(demo / "lora"))


def test_a_run_may_stand_for_its_folder(demo):
    run, initial = ckl.load(demo / "lora"), ckl.load(demo / "initial")
    assert run.ledger(initial).equals(run.ledger(demo / "initial"))
    assert ckl.command(["ledger", str(demo / "lora")])["exit_code"] == 0


def test_what_no_model_can_read_is_refused(llama):
    model = ckl.Model(llama)
    for text in ("", " ", "\ud83d", 5):
        with pytest.raises(ckl.UserError, match="is no text|half of a surrogate pair|give str"):
            model.log_prob(text)
        with pytest.raises(ckl.UserError):
            model.rank("Rome is a city in ____.", ["Italy", text])
        with pytest.raises(ckl.UserError):
            model.ask(text)
    with pytest.raises(ckl.UserError, match="has 200001 tokens, more than the model's 256"):
        model.log_prob("a " * 200_000)
    with pytest.raises(ckl.UserError, match="answers is 'ab'; give a list of one or more"):
        ckl.Evaluator.from_model(llama).evaluate_item("[Y]", "ab")
    with pytest.raises(ckl.UserError, match="bos of from_model.. is 'x'"):
        ckl.Evaluator.from_model(llama, bos="x")
    with pytest.raises(ckl.UserError, match="dataset of evaluate_dataset.. is None"):
        ckl.Evaluator.from_model(llama).evaluate_dataset(None)
    with pytest.raises(ckl.UserError, match="length of ask.. is 'long'"):
        model.ask("Rome is", length="long")
    for given in ({"length": 0}, {"beams": 0}):
        with pytest.raises(ckl.UserError, match=f"{next(iter(given))} is 0; give 1 or more"):
            model.ask("Rome is", **given)


def test_a_text_for_which_memory_is_too_small_is_refused(llama, monkeypatch):
    def no_room(*args, **kwargs):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    model = ckl.Model(llama)
    monkeypatch.setattr(type(model._evaluator.scorer), "token_scores", no_room)
    with pytest.raises(ckl.UserError, match="too little memory for a text of 1,000 characters"):
        model.log_prob("a" * 1000)


def test_a_model_ranks_as_it_scores(llama):
    model = ckl.Model(llama)
    table = model.rank("Rome is a city in ____.", ["Italy", "France", "Peru"])
    assert sorted(table.answer) == ["France", "Italy", "Peru"]
    assert table.log_prob.is_monotonic_decreasing
    best = table.iloc[0]
    said = model.log_prob(f"Rome is a city in {best.answer}.")
    assert said == pytest.approx(best.log_prob, rel=1e-5)
    assert model.rank("Rome is a city in _X_.", table.answer).equals(table)
    pairs = (
        ("no blank", ["a", "b"]),
        ("____ or ____", ["a", "b"]),
        ("____ or", ["a", 1]),
        (None, ["a", "b"]),
        ("is ____", ["a"]),
        ("_X_", "ab"),
    )
    for question, answers in pairs:
        with pytest.raises(ckl.UserError):
            model.rank(question, answers)
    with pytest.raises(ckl.UserError, match=r"answers is 'P36'; give .* Dataset.from_name"):
        model.rank("Malta", "P36")
    with pytest.raises(ckl.UserError, match=r"answers is \[1, 2\]; give a list of texts"):
        model.rank("is ____", [1, 2])
    assert (
        ckl.Evaluator.from_model(model).scorer.model.config == model._evaluator.scorer.model.config
    )
    with pytest.raises(ckl.UserError, match="model is 'None'; give a folder, a name or a live"):
        ckl.Model(None).log_prob("a b")
    with pytest.raises(ckl.UserError, match="text of log_prob"):
        model.log_prob(["a b"])
    facts = (Instance("Q1", "Rome", 0),)
    relation = Relation(
        "P17", ("[X] is a city in [Y].",), ("a", "b", "c"), tuple(table.answer), facts
    )
    assert model.rank("Rome", relation).equals(table)
    asked = model.ask("Rome is a city in _X_.", length=4)
    assert asked == model.ask("Rome is a city in", length=4) and len(asked.split()) <= 4


@pytest.mark.usefixtures("in_this_process")
def test_an_update_from_a_notebook(llama, tmp_path):
    text, out = tmp_path / "text.jsonl", tmp_path / "out"
    planted.write_documents(text, planted.documents(planted.facts(3)))
    settings = {"epochs": 1, "max_items": 4, "ship_if": "new <= 1"}
    done = ckl.update(llama, documents=text, out=out, **settings)
    verdict = json.loads((out / "updates" / "0001" / "verdict.json").read_text())
    assert done.verdict == verdict["verdict"] == "ship"
    assert set(done.ledger().state) <= {"kept", "learned", "forgotten", "never known"}
    assert done.scores().loc["new", "n"] == verdict["scores"]["new"]["n"]
    updates = ckl.load(out)
    assert len(updates) == 1 and updates.current == done.model
    assert updates.history().loc["0001", "verdict"] == "ship" and "<table" in updates._repr_html_()
    assert ckl.update(documents=text, out=out, **settings).path == done.path  # nothing new
    with pytest.raises(ckl.UserError, match="has no 'epoch'"):
        ckl.update(documents=text, out=out, epoch=1)
    shutil.rmtree(out / "updates" / "0001" / "model")
    assert ckl.load(out / "updates" / "0001").model is None


def test_training_is_called_by_the_name_of_its_package(monkeypatch):

    called = []
    monkeypatch.setattr("ckl_jax.cli.t5x.run_words", called.append)
    run = ckl.train("ckl_lora.gin", MODEL_DIR="runs/mine", EPOCHS=np.int64(2))
    assert repr(run) == "Run('runs/mine', not probed, not finished)"
    words = ["train", "--gin_file=ckl_lora.gin", "--gin.MODEL_DIR='runs/mine'", "--gin.EPOCHS=2"]
    assert called == [words]
    assert ckl.train(["ckl_lora.gin"]).path.as_posix() == "runs/ckl_lora"


@pytest.mark.slow
def test_a_training_in_its_readers_process(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # one device
    code = (
        "import ckl_jax as ckl\n"
        "run = ckl.train('ckl_lora.gin', WORLD_SIZE='tiny', DATA_DIR='world', EPOCHS=1,\n"
        "                INITIAL_DIR='initial', MODEL_DIR='lora')\n"
        "row = run.rows().iloc[0]\n"
        "assert run.is_finished and run.ask(row.input, length=7) == row.predictions[0]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
