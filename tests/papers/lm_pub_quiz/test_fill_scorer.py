"""Scores of an encoder-decoder, against teacher forcing of one statement at a time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.data.facts.relational import Instance, Relation
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.models import t5
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.papers.lm_pub_quiz.fill_scorer import EncoderDecoderScorer
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
from tests.helpers import TINY, init_params

TEMPLATES = ("The capital of [X] is [Y].", "[Y] rules [X], [Y]!")
ANSWERS = ("Oslo", "New Oslo-on-Sea", "Rome")
RELATION = Relation(
    "P36",
    TEMPLATES,
    tuple("abc"),
    ANSWERS,
    tuple(Instance(f"s{i}", name, i) for i, name in enumerate(("Norway", "Utopia", "Italy"))),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    lines = [
        fill(t, i.sub_label, a).text for t in TEMPLATES for i in RELATION.instances for a in ANSWERS
    ]
    vocabulary = train_vocabulary(lines * 3, tmp_path_factory.mktemp("v") / "v.model", 60)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    config = dataclasses.replace(TINY, vocab_size=vocabulary.vocab_size, dropout_rate=0.0, **layers)
    module = t5.Transformer(config)
    return EncoderDecoderModel(module, vocabulary, vocabulary), init_params(config)


def by_hand(model, params, source, target):
    """Log probabilities of a target's pieces, one row, no padding."""
    vocabulary = model.input_vocabulary
    ids = vocabulary.encode(target)
    batch = {
        "encoder_input_tokens": jnp.array([[*vocabulary.encode(source), vocabulary.eos_id]]),
        "decoder_input_tokens": jnp.array([[0, *ids[:-1]]]),
        "decoder_target_tokens": jnp.array([ids]),
    }
    logits = np.asarray(jax.jit(model.logits)(params, batch), np.float64)[0]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p[np.arange(len(ids)), ids]


FORMS = {
    "answer": [
        lambda s, a: (f"The capital of {s} is <extra_id_0>.", f"<extra_id_0> {a} <extra_id_1>"),
        lambda s, a: (
            f"<extra_id_0> rules {s}, <extra_id_1>!",
            f"<extra_id_0> {a} <extra_id_1> {a} <extra_id_2>",
        ),
    ],
    "statement": [
        lambda s, a: ("<extra_id_0>", f"<extra_id_0> The capital of {s} is {a}. <extra_id_1>"),
        lambda s, a: ("<extra_id_0>", f"<extra_id_0> {a} rules {s}, {a}! <extra_id_1>"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["answer", "statement"])
def test_every_score_is_that_of_its_own_row(model, target):
    checked = RELATION.instances[1:2]  # each row by hand is compiled for itself
    expected = [
        [by_hand(*model, *form(i.sub_label, a))[1:].sum() for a in ANSWERS]
        for i in checked
        for form in FORMS[target]
    ]
    for batch_size in (4, 64):
        scorer = EncoderDecoderScorer(*model, target=target, batch_size=batch_size)
        found = Evaluator(scorer).evaluate_relation(RELATION)
        np.testing.assert_allclose(found.scores[2:4], expected, rtol=1e-5)


def test_token_scores_and_their_roles(model):
    scorer = EncoderDecoderScorer(*model)
    raw = Evaluator(scorer).evaluate_relation(RELATION, 0, reduction=None)
    for row in raw.table:
        for label, tokens, answer in zip(ANSWERS, row["tokens"], row["obj_indices"], strict=True):
            assert tokens[-1].endswith("<extra_id_1>") and answer == list(range(len(tokens) - 1))
            text = "".join(tokens[:-1]).replace("\u2581", " ").strip()
            assert text == label
    whole = EncoderDecoderScorer(*model, target="statement")
    raw = Evaluator(whole).evaluate_relation(RELATION, 0, reduction=None)
    tokens = raw.table[0]["tokens"][1]
    for name, label in (("sub_indices", "Norway"), ("obj_indices", "New Oslo-on-Sea")):
        chosen = [tokens[i] for i in raw.table[0][name][1]]
        assert "".join(chosen).replace("\u2581", " ").strip().startswith(label)


def test_the_end_counts_so_that_a_prefix_is_not_always_likelier(model):
    scorer = EncoderDecoderScorer(*model)
    scores = scorer.token_scores([fill(TEMPLATES[0], "Norway", a) for a in ("New Oslo-on-Sea",)])
    assert scores.scored.sum() == len(model[0].output_vocabulary.encode("New Oslo-on-Sea")) + 1
