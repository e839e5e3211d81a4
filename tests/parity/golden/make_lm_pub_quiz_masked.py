"""Makes `lm_pub_quiz_masked.zip`: a random BERT and RoBERTa, and lm-pub-quiz's scores by each.

    pip install lm-pub-quiz==0.3.3 requests torch transformers tokenizers
    python make_lm_pub_quiz_masked.py

The dataset is that of `make_lm_pub_quiz.py`; the tokenizers are trained on it.
"""

import json
import os
import pathlib
import tempfile

import lm_pub_quiz
import tokenizers
import torch
import transformers
from make_lm_pub_quiz import FACTS, HERE, TEMPLATES, pack, write_dataset

SIZES = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=66,
    initializer_range=0.3,
)
RUNS = {  # name -> (model, reduction, conditional score, scheme)
    "sum": ("bert", "sum", False, "within_word_l2r"),
    "mean": ("bert", "mean", False, "within_word_l2r"),
    "raw": ("bert", None, False, "within_word_l2r"),
    "original": ("bert", "sum", False, "original"),
    "sentence": ("bert", "sum", False, "sentence_l2r"),
    "answer": ("bert", "sum", False, "answer_l2r+word_l2r"),
    "conditional": ("bert", "sum", True, "within_word_l2r"),
    "conditional_answer": ("bert", None, True, "answer_l2r+word_l2r"),
    "roberta": ("roberta", None, False, "within_word_l2r"),
}


def texts():
    found = [t for some in TEMPLATES.values() for t in some]
    return found + [label for some in FACTS.values() for fact in some for label in fact]


def make_bert(folder):
    pieces = tokenizers.BertWordPieceTokenizer(lowercase=False)
    pieces.train_from_iterator(texts(), vocab_size=90, min_frequency=1, limit_alphabet=80)
    folder.mkdir()
    pieces.save_model(str(folder))
    tokenizer = transformers.BertTokenizerFast(
        tokenizer_object=tokenizers.BertWordPieceTokenizer(
            str(folder / "vocab.txt"), lowercase=False
        )._tokenizer,
        do_lower_case=False,
    )
    config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES)
    return save(transformers.BertForMaskedLM(config), tokenizer, folder)


def make_roberta(folder):
    bpe = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(texts(), vocab_size=300, special_tokens=special)
    folder.mkdir()
    bpe.save_model(str(folder))
    tokenizer = transformers.RobertaTokenizerFast(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
    )
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5, **SIZES
    )
    return save(transformers.RobertaForMaskedLM(config), tokenizer, folder)


def save(model, tokenizer, folder):
    model.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


def main():
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # so that results name no folder of this machine
        root = pathlib.Path()
        write_dataset(root / "dataset")
        torch.manual_seed(0)
        models = {"bert": make_bert(root / "bert"), "roberta": make_roberta(root / "roberta")}
        for run, (which, reduction, conditional, scheme) in RUNS.items():
            model, tokenizer = models[which]
            evaluator = lm_pub_quiz.MaskedLMEvaluator.from_model(
                model,
                tokenizer=tokenizer,
                model_type="MLM",
                model_name="golden",
                device="cpu",
                conditional_score=conditional,
                pll_metric=scheme,
            )
            out = root / "results" / run
            out.mkdir(parents=True)
            dataset = lm_pub_quiz.Dataset.from_path(root / "dataset")
            evaluator.evaluate_dataset(dataset, reduction=reduction, save_path=out, batch_size=8)
            del dataset
        versions = {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)}
        versions["lm_pub_quiz"] = lm_pub_quiz.__about__.__version__
        (root / "provenance.json").write_text(json.dumps(versions, indent=2))
        pack(root, HERE / "lm_pub_quiz_masked.zip")


if __name__ == "__main__":
    main()
