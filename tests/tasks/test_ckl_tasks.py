import pytest

from ckl_jax.data.facts.ckl_files import CORPORA, PROBES, read_probe
from ckl_jax.data.tasks.prepare import prepare_ckl
from ckl_jax.world.ckl import build_world

pytestmark = pytest.mark.slow  # importing SeqIO takes many seconds


@pytest.fixture(scope="module")
def seqio():
    return pytest.importorskip("seqio")


@pytest.fixture(scope="module")
def prepared(seqio, tmp_path_factory):
    from ckl_jax.tasks.ckl import register_ckl

    folder = tmp_path_factory.mktemp("world")
    build_world(folder, 0, "tiny")
    made = prepare_ckl(folder, tmp_path_factory.mktemp("prepared"))
    names = register_ckl(folder, made.vocabulary.path)
    assert len(names) == len(CORPORA) + len(PROBES)
    return folder, made


def _tokens(seqio, name, split):
    task = seqio.get_mixture_or_task(name)
    dataset = task.get_dataset(None, split, shuffle=False)
    return [{k: r[k].tolist() for k in ("inputs", "targets")} for r in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    "task, corpus", [("ckl_recent_news_span", "d1"), ("ckl_wikipedia_small_span", "d0_small")]
)
def test_seqio_gives_the_tokens_of_the_cached_task(seqio, prepared, task, corpus):
    cached = prepared[1].open(corpus)
    rows = _tokens(seqio, task, "train")
    assert rows == [cached.row(i) for i in range(len(cached))]


def test_seqio_cuts_as_the_cached_task_does(seqio, prepared):
    lengths = {"inputs": 6, "targets": 4}
    rows = seqio.get_mixture_or_task("ckl_recent_news_span").get_dataset(
        lengths, "train", shuffle=False
    )
    cached = prepared[1].open("d1")
    batch = cached.batch(range(len(cached)), lengths)
    for i, row in enumerate(rows.as_numpy_iterator()):
        for name, ids in row.items():
            if name in lengths:
                assert ids.tolist() == [t for t in batch[name][i].tolist() if t]


def test_probes_ask_what_the_files_ask(seqio, prepared):
    folder, made = prepared
    items = read_probe("updated_lama", folder)
    rows = _tokens(seqio, "updated_lama", "validation")
    for row, item in zip(rows, items, strict=True):
        assert row["inputs"] == [*made.vocabulary.encode(item.input), 1]
        assert made.vocabulary.decode(row["targets"]) == item.answers[0]


def test_probes_are_scored_over_all_answers(seqio, prepared):
    task = seqio.get_mixture_or_task("updated_lama")
    example = next(task.get_dataset(None, "validation", shuffle=False).as_numpy_iterator())
    target = task.postprocess_fn(None, example=example, is_target=True)
    item = read_probe("updated_lama", prepared[0])[0]
    assert target == list(item.answers)
    (metrics,) = (fn([target, target], [item.answers[-1], "x"]) for fn in task.predict_metric_fns)
    assert metrics == {"em": 50.0, "f1": 50.0}
