"""Tasks of lm-evaluation-harness on a model of ours; data lie on the disk."""

import json

import numpy as np
import pytest

from ckl_jax.cli import ckl
from ckl_jax.data.facts.statements import Statement
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz.opening import open_scorer
from tests.updates.test_job import save_llama

pytest.importorskip("lm_eval")

TEXTS = ["Rome is a city in Italy", "Paris is a city in France", "Oslo lies by the sea"]
COMMON = """
task: {task}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
"""
TASKS = {
    "words": (
        "loglikelihood_rolling",
        'doc_to_text: ""\ndoc_to_target: "{{text}}"\nmetric_list: [{metric: bits_per_byte}]',
    ),
    "choice": (
        "multiple_choice",
        'doc_to_text: "{{text}}."\ndoc_to_choice: [" Rome", " Paris"]\ndoc_to_target: 1\n'
        "metric_list: [{metric: acc}]",
    ),
    "going_on": (
        "generate_until",
        'doc_to_text: "{{text}}"\ndoc_to_target: "."\nmetric_list: [{metric: exact_match}]\n'
        'generation_kwargs: {until: ["."], max_gen_toks: 4, do_sample: false}',
    ),
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    for name, (kind, rest) in TASKS.items():
        text = COMMON.format(task=name, data=data, kind=kind) + rest
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.mark.filterwarnings("default")
def test_results_are_those_of_the_scores(tasks, tmp_path):
    from ckl_jax.updates import harness

    scorer = open_scorer(save_llama(tmp_path / "llama"))
    harness.check(tuple(TASKS), str(tasks))
    found = harness.run_tasks(scorer.model, scorer.params, tuple(TASKS), str(tasks))
    assert {name: list(metrics) for name, metrics in found.items()} == {
        "words": ["bits_per_byte"],
        "choice": ["acc"],
        "going_on": ["exact_match"],
    }
    said = [Statement(text, (), ((0, len(text)),)) for text in TEXTS]
    nats = -scorer.token_scores(said).values.sum()
    bits = nats / np.log(2) / sum(len(text.encode()) for text in TEXTS)
    assert found["words"]["bits_per_byte"][0] == pytest.approx(bits, rel=1e-5)
    assert found["choice"]["acc"][2] == 3


@pytest.mark.filterwarnings("default")
def test_an_update_shows_them_before_and_after(tasks, tmp_path, monkeypatch, capfd):
    from tests.updates import planted

    out, text = tmp_path / "out", tmp_path / "text.jsonl"
    planted.write_documents(text, planted.documents(planted.facts(3)))
    model = save_llama(tmp_path / "llama")
    argv = ["update", "--model", str(model), "--documents", str(text), "--out", str(out)]
    argv += ["--epochs=1", "--max-items=4", "--harness=choice", "--harness-tasks", str(tasks)]
    monkeypatch.chdir(tmp_path)  # no repository, of which git would complain
    assert ckl.main(argv) in (0, 1, 3)
    assert "fatal" not in capfd.readouterr().err
    folder = out / "updates" / "0001"
    verdict = json.loads((folder / "verdict.json").read_text())
    before, after = verdict["tasks"]["choice"]
    assert 0 <= before["acc"][0] <= 1 and after["acc"][2] == 3
    page = (folder / "report.html").read_text()
    assert "General tasks" in page and "<td>choice</td><td>acc</td>" in page


@pytest.mark.filterwarnings("default")
def test_unknown_tasks_are_refused_before_anything_is_read(tasks, tmp_path):
    from ckl_jax.updates import harness

    with pytest.raises(UserError, match="no such task. Did you mean 'choice'"):
        harness.check(["chioce"], str(tasks))
    broken = tmp_path / "broken"
    broken.mkdir()
    text = COMMON.format(task="gone", data=tmp_path / "gone.jsonl", kind="loglikelihood_rolling")
    (broken / "gone.yaml").write_text(text + TASKS["words"][1])
    with pytest.raises(UserError, match="gone: its data cannot be loaded"):
        harness.check(["gone"], str(broken))
    with pytest.raises(UserError, match="there is no such folder"):
        harness.check(["choice"], str(tmp_path / "none"))
