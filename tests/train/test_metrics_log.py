"""Metrics survive restarts without doubled rows; the progress line is short and right."""

import io
import json
import re
import subprocess
import sys
import time
import types
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.analysis.rows import read_metrics
from ckl_jax.errors import UserError
from ckl_jax.probes.facts import FactProbes
from ckl_jax.train import metrics_log
from ckl_jax.train.evaluations import Evaluations, chosen
from ckl_jax.train.metrics_log import LateFetcher, MetricWriter
from ckl_jax.train.progress import ProgressBar, counting, evaluating
from ckl_jax.train.telemetry import in_a_line


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(e.step, e.value) for e in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_rows_and_events_by_split(tmp_path):
    with MetricWriter(tmp_path) as w:
        w.write("train", 1, {"loss": jnp.float32(2.5), "tokens": 100})
        w.write("train", 2, {"loss": 1.5})
        w.write("inference_eval/invariant_lama", 2, {"em": 0.25})
        w.text("train", 0, "config", "A = 1")
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert rows[0] == {"step": 1, "split": "train", "loss": 2.5, "tokens": 100}
    assert rows[2] == {"step": 2, "split": "inference_eval/invariant_lama", "em": 0.25}
    assert events(tmp_path / "train")["loss"] == [(1, 2.5), (2, 1.5)]
    assert events(tmp_path / "inference_eval/invariant_lama") == {"em": [(2, 0.25)]}


@pytest.mark.parametrize("clock", [1, -86_400])  # set back by a day, say
def test_resuming_writes_no_row_twice(clock, tmp_path, monkeypatch):
    with MetricWriter(tmp_path) as w:
        for step in range(1, 6):
            w.write("train", step, {"loss": float(step)})
        w.write("eval", 3, {"em": 1.0})
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write('{"step": 3, "spl')
    then = time.time_ns() + clock * 10**9
    monkeypatch.setattr(metrics_log.time, "time_ns", lambda: then)
    with MetricWriter(tmp_path, resume_step=3) as w:
        w.write("eval", 3, {"em": 1.0, "f1": 0.5})
        for step in range(4, 7):
            w.write("train", step, {"loss": 10.0 * step})
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    losses = [(r["step"], r["loss"]) for r in rows if r["split"] == "train"]
    assert losses == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0), (5, 50.0), (6, 60.0)]
    assert [r for r in rows if r["split"] == "eval"] == [
        {"step": 3, "split": "eval", "em": 1.0},
        {"step": 3, "split": "eval", "f1": 0.5},
    ]
    assert events(tmp_path / "train")["loss"] == losses


def test_the_other_processes_write_nothing(tmp_path):
    with MetricWriter(tmp_path / "run", enabled=False) as w:
        w.write("train", 1, {"loss": 1.0})
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot"):
        MetricWriter(tmp_path / "file")


def test_a_split_named_as_a_file_of_the_run_is_one_sentence(tmp_path):
    (tmp_path / "config.gin").write_text("")
    for split in ("config.gin", "config.gin/mine"):
        with MetricWriter(tmp_path) as w, pytest.raises(UserError, match="config.gin is a file"):
            w.write(split, 1, {"score": 1.0})


def test_writing_events_imports_no_tensorflow(tmp_path):
    code = (
        "import sys; from ckl_jax.train.metrics_log import MetricWriter\n"
        f"w = MetricWriter({str(tmp_path)!r}); w.write('train', 1, {{'a': 1.0}})\n"
        "w.text('train', 0, 'c', 't'); w.close()\n"
        "bad = {'tensorflow', 'jax', 'seqio', 'gin'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nan_is_written_as_python_reads_it(tmp_path):
    with MetricWriter(tmp_path) as w:
        w.write("train", 1, {"loss": float("nan")})
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row["loss"] != row["loss"]


class Later:
    """A device scalar that is ready when it is told so."""

    def __init__(self, value, ready=False):
        self.value, self.ready = value, ready

    def is_ready(self):
        return self.ready

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.value)


def test_late_fetcher_keeps_the_last_steps_unfetched():
    late = LateFetcher(lag=2)
    assert late.push(1, {"loss": jnp.float32(1)}) == []
    assert late.push(2, {"loss": jnp.float32(2)}) == []
    ((step, numbers, _),) = late.push(3, {"loss": jnp.float32(3)})
    assert (step, numbers) == (1, {"loss": 1.0})
    assert [x[:2] for x in late.flush()] == [(2, {"loss": 2.0}), (3, {"loss": 3.0})]
    assert late.flush() == []


def test_a_step_took_until_its_scalars_were_there():
    """Steps read in one go, as before a pause, have the times at which they were done."""
    now = [0.0]
    late = LateFetcher(lag=8, clock=lambda: now[0])
    now[0] = 100.0
    late.start()
    for step in range(1, 4):  # each is done when it is dispatched
        now[0] += 0.5
        late.push(step, {"loss": Later(1.0, ready=True)})
    now[0] += 7.0
    assert [x.seconds for x in late.flush()] == [0.5, 0.5, 0.5]
    late.start()
    waiting = [Later(1.0), Later(2.0)]
    for step, scalar in enumerate(waiting, 4):  # done long after it was dispatched
        late.push(step, {"loss": scalar})
    now[0] += 2.0
    waiting[0].ready = True
    late.push(6, {"loss": Later(3.0)})
    now[0] += 1.0
    assert [x.seconds for x in late.flush()] == [2.0, 1.0, 0.0]


def test_plain_lines_come_every_ten_seconds_with_speed_and_time_left():
    now, lines = [0.0], []
    bar = ProgressBar(100, "train lora", mode="plain", write=lines.append, clock=lambda: now[0])
    with bar:
        for step in range(1, 51):
            now[0] += 0.5
            bar.update(step, seconds=0.5, epoch=2, loss=1.23456, tokens=1000)
    assert lines[0] == (
        "train lora  step 20/100  epoch 2  loss 1.235  0.5 s/step  2,000 tokens/s  0:40 left"
    )
    assert len(lines) == 3
    assert "step 50/100" in lines[-1]
    slow = ProgressBar(9, "train lora", mode="silent")
    for step, seconds in enumerate((100.0, 0.5, 0.5), 1):  # the first one warms up
        slow.update(step, seconds=seconds)
        assert slow.seconds_per_step == (100.0 if step == 1 else 0.5)
    short = ProgressBar(15, "dynamic_eval all", mode="silent")
    short.update(14, seconds=1.4)  # of many steps, beside which the last one's time says little
    short.update(15, seconds=1e-5)
    assert short.seconds_per_step == pytest.approx(1.4 / 15, rel=0.1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_long_evaluation_says_every_ten_seconds_how_far_it_is(capsys):
    now = [0.0]
    tell = evaluating("BEAR", clock=lambda: now[0])
    for done in range(1_500, 1_506):
        now[0] += 4
        tell(done, 2_000, "relations ranked")
    lines = [f"evaluating BEAR: {n} of 2,000 relations ranked" for n in ("1,502", "1,505")]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_log_that_is_full_is_one_sentence_at_its_line_and_at_its_end():
    bar = ProgressBar(9, "train", mode="silent", log=Path("/dev/full"))
    with pytest.raises(UserError, match="/dev/full"), bar:
        with pytest.raises(UserError, match="/dev/full"):
            bar.say("a line")
        raise OSError(28, "of something else")


def test_the_time_left_does_not_swing_where_steps_are_fast():
    bar, left = ProgressBar(10**6, "train", mode="silent"), []
    for step in range(1, 20001):  # bursts: as many steps again take ten times as long
        bar.update(step, seconds=0.01 if step // 100 % 2 else 0.001)
        left.append(bar.seconds_per_step)
    mean = 0.0055
    assert all(abs(x - mean) < 0.1 * mean for x in left[10000:])
    for step in range(20001, 20001 + 10000):  # but follows what lasts
        bar.update(step, seconds=0.02)
    assert bar.seconds_per_step == pytest.approx(0.02, rel=0.01)


def test_silent_and_terminal_bars(capsys):
    for mode in ("silent", "rich"):
        with ProgressBar(3, "train", mode=mode, start=1) as bar:
            bar.update(2, seconds=0.1, epoch=1, loss=0.5, tokens=10)
            bar.update(3, seconds=0.1)
        out = capsys.readouterr().out
        assert bool(out) == (mode == "rich")
    assert "3/3" in out and "loss 0.5" in out


def test_counts_go_to_stderr_and_in_a_terminal_they_go_when_work_is_done(monkeypatch, capsys):
    now = [0.0]
    with counting(clock=lambda: now[0]) as show:
        for done, now[0] in ((1, 5.0), (2000, 11.0), (4000, 12.0), (3, 30.0)):
            show(done, 0 if done == 3 else 4000, "pages")
        show(9, 9, "quick ones")  # done before a line of it was due
    expected = "2,000 of 4,000 pages\n4,000 of 4,000 pages\n3 pages\n"
    assert capsys.readouterr() == ("", expected)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with counting() as show:
        show(1, 4, "pages")
        show(7, 0, "words")
    text = terminal.getvalue()
    assert "pages" in text and "1/4" in text and "7/?" in text
    assert text.endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize(
    "returned",
    [
        0.5,
        iter([{"probe": "p"}]),
        None,
        {"split": 0.5},
        {"split": {"a": "0.5"}},
        {"split": {3: 1.0}},
    ],
)
def test_an_evaluation_that_returns_no_scores_is_named(returned):
    def mine(params, step, last):
        return returned

    with pytest.raises(UserError, match="The evaluation .*mine of .* returned .*; let it return"):
        Evaluations([lambda *_: mine], None, None)({}, {"step": 0}, last=True)


def record(make, **more):
    """An evaluation with attributes."""
    make.__dict__.update(more)
    return make


def test_what_is_no_evaluation_and_two_of_one_name_are_refused():
    one = FactProbes(files=("a.csv",))
    assert chosen(None, [one, FactProbes()]) == (one,)
    with pytest.raises(UserError, match="One of evaluations is <class .*FactProbes.*give a record"):
        chosen(None, [FactProbes])
    with pytest.raises(UserError, match="Two evaluations are of 'inference_eval/a'; leave one out"):
        chosen(one, (one,))
    with pytest.raises(UserError, match="evaluations is FactProbes.*give a list, such as"):
        chosen(None, one)
    for more in ({"names": "p"}, {"names": 5}, {"has_rows": True}, {"names": (3,)}):
        with pytest.raises(UserError, match="names of .* is .*; give a list"):
            chosen(None, [record(lambda model, partitioner: None, **more)])
    with pytest.raises(UserError, match="which does not take .model, partitioner"):
        chosen(None, [lambda model: None])
    for returned in (None, lambda params, step: {}):
        with pytest.raises(UserError, match="of evaluations returned .* for a model; let it retu"):
            Evaluations([lambda *_, r=returned: r], None, None)
    for split in ("../up", "/up", "", ".", "a\nb", "./train", "train/", "a//b"):
        with pytest.raises(UserError, match="has the split"):
            Evaluations([lambda *_, s=split: lambda *_: {s: {}}], None, None)(
                {}, {"step": 0}, last=True
            )


@pytest.mark.parametrize("name", ["step", "split"])
def test_fields_of_every_line_are_no_names_of_scores(name):
    with pytest.raises(UserError, match=f"gives s/{name}; let it use another name"):
        Evaluations([lambda *_: lambda *_: {"s": {name: 1.0}}], None, None)(
            {}, {"step": 0}, last=True
        )


def test_rows_get_the_context_and_scores_may_be_numbers_of_any_kind():
    row = {"probe": "p", "item": "i", "input": "a", "answers": ["b"], "nll": 2.0, "tokens": 1}
    row |= {"object_nll": 2.0, "object_tokens": 1}

    def probe(params, step, last):
        yield row | {"answers": ("b",), "params": params, "last": last}

    scores = {"a": {"x": 1, "y": np.float32(2.0), "z": jnp.bfloat16(3.0)}, "b": {}}

    make_probe = record(lambda model, partitioner: probe, has_rows=True, names=("p",))
    evaluations = Evaluations([make_probe, lambda *_: lambda *_: scores], None, None)
    assert evaluations.probes == ("p",)
    rows, found = evaluations(5, {"run": "r", "epoch": 1, "step": 3}, last=True)
    assert rows == [{"run": "r", "epoch": 1, "step": 3, **row, "params": 5, "last": True}]
    assert found == scores
    for other in ({"a": {"y": 0.0}}, {"inference_eval/p": {"em": 0.0}}, {"train": {"loss": 0.0}}):
        twice = [make_probe, *(lambda *_, s=s: lambda *_: s for s in (scores, other))]
        with pytest.raises(UserError, match="returns (a/y|inference_eval/p|train), a name that"):
            Evaluations(twice, None, None)(5, {"run": "r", "epoch": 1, "step": 3}, last=True)
    for returned, said in ((None, "returned None"), ({"a": 1}, "returned {"), ([5], "Row 1 of an")):
        make = record(lambda *_, r=returned: lambda *_: r, has_rows=True, names=("p",))
        with pytest.raises(UserError, match=f"{said}.*yield whole rows"):
            Evaluations([make], None, None)(5, {"step": 3}, last=True)
    stranger = record(lambda *_: probe, has_rows=True, names=("other",))
    with pytest.raises(UserError, match="Row 1 is of 'p', none of its `names`"):
        Evaluations([stranger], None, None)(5, {"epoch": 1, "step": 3}, last=True)
    with pytest.raises(UserError, match="Row 1 of p: Object of type set is not JSON serializable"):
        evaluations({1}, {"epoch": 1, "step": 3}, last=True)
    del row["tokens"]
    with pytest.raises(UserError, match="Row 1 of p: .*'tokens'.*let the evaluation with"):
        evaluations(5, {"run": "r", "epoch": 1, "step": 3}, last=True)


class FakeService(types.ModuleType):
    """W&B's and MLflow's functions that are called, and what they were called with."""

    def __init__(self, name):
        super().__init__(name)
        self.runs, self.logged, self.fails = [], [], False
        self.info = types.SimpleNamespace(run_id="7")
        self.id = "7"

    def init(self, **options):
        self.runs.append(options["id"])
        return self

    def start_run(self, run_id, run_name):
        self.runs.append(run_id)
        return self

    def define_metric(self, name, step_metric):
        assert (name, step_metric) == ("*", "step")

    def log(self, values):
        self.log_metrics({n: v for n, v in values.items() if n != "step"}, values["step"])

    def log_metrics(self, values, step):
        if self.fails:
            raise ConnectionError("no network")
        self.logged.append((step, values))

    def finish(self):
        self.logged.append("end")

    end_run = finish


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_services_get_the_numbers_and_go_on_with_their_run(tmp_path, monkeypatch, name):
    fake = FakeService(name)
    monkeypatch.setitem(sys.modules, name, fake)
    for step in (1, 2):
        with MetricWriter(tmp_path, resume_step=step - 1, services=(name,)) as w:
            w.write("train", step, {"loss": jnp.float32(step)})
    assert fake.runs == [None, "7"]  # the second start goes on with the first's
    assert fake.logged == [(1, {"train/loss": 1.0}), "end", (2, {"train/loss": 2.0}), "end"]
    fake.fails = True
    with MetricWriter(tmp_path, resume_step=2, services=(name,)) as w:
        with pytest.warns(UserWarning, match=f"{name} gets no more numbers of this run: no net"):
            w.write("train", 3, {"loss": 3.0})
        w.write("train", 4, {"loss": 4.0})  # training goes on
    assert len(list(read_metrics(tmp_path / "metrics.jsonl"))) == 4


def test_services_that_are_not_there_are_refused_before_training(monkeypatch):
    with pytest.raises(UserError, match="metric_services has 'wandbb', which is none of"):
        metrics_log.check_services(["wandbb"])
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"mlflow is not installed: pip install 'ckl-jax\[mlflow\]'"
    ):
        metrics_log.check_services(["mlflow"])


def test_the_log_has_the_lines_with_their_times(tmp_path):
    lines, log = [], tmp_path / "log.txt"
    with ProgressBar(2, "train x", mode="plain", write=lines.append, log=log) as bar:
        bar.say("after step 1: x em 1.00")
        bar.update(2, seconds=1.0)
    told = log.read_text().splitlines()
    assert [line[21:] for line in told] == lines and len(lines) == 2
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in told)
    code = (
        "import sys; from pathlib import Path; from ckl_jax.train.progress import ProgressBar\n"
        f"with ProgressBar(1, 'train y', log=Path({str(log)!r})): pass"
    )
    with open(log, "a") as f:  # as a study starts its trainings
        subprocess.run([sys.executable, "-c", code], check=True, stdout=f)
    assert [line[21:] for line in log.read_text().splitlines()[2:]] == ["train y  step 0/1"]


def test_a_study_of_perplexities_says_perplexities():
    scores = {"probe/2020_changed": {"em": 0.0, "f1": 0.0, "perplexity": 152.8}}
    assert in_a_line({"step": 4}, scores) == "after step 4: 2020_changed perplexity 152.80"
