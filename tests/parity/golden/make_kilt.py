"""Makes `kilt.json`: KILT's own scores of made-up answers, and of its test fixtures.

    git clone https://github.com/facebookresearch/KILT && git -C KILT checkout 2664322
    pip install rouge==1.0.1 nltk
    PYTHONPATH=KILT python make_kilt.py FIXTURES

FIXTURES is the folder with KILT's gold1.jsonl and guess1_1.jsonl (its tests/test_data). Every case
is scored by itself, so that a difference says where it is.
"""

import importlib.metadata
import json
import pathlib
import random
import sys

from kilt import eval_downstream, kilt_utils

HERE = pathlib.Path(__file__).resolve().parent
COMMIT = "2664322b9a994be686e4c3a9e8f75a0b70927f22"
CASES = [  # right answers, prediction
    (["Paris"], "Paris"),
    (["Paris"], " Paris "),
    (["Paris"], "paris"),
    (["Paris"], "Paris."),
    (["Paris", "City of Light"], "City of Light"),
    (["Paris", "City of Light"], "the city of light"),
    (["New York; New York", "NYC, N.Y."], "New York"),
    (["New York; New York"], "New York New York"),
    (["The Who"], "Who"),
    (["The"], "a"),
    (["The"], ""),
    (["!!!"], "?"),
    (["."], "."),
    (["..."], "a"),
    (["a an the"], "the an a"),
    (["SUPPORTS"], "SUPPORTS"),
    (["SUPPORTS"], "REFUTES"),
    (["SUPPORTS"], ""),
    (["SUPPORTS"], "   "),
    (["Zürich", "Zurich"], "Zurich"),
    (["Zürich"], "ZÜRICH"),
    (["\u5317\u4eac"], "\u5317\u4eac"),
    (["U.S.A."], "USA"),
    (["1,000"], "1000"),
    ([" padded "], "padded"),
    (["two  blanks"], "two blanks"),
    (["b b b c"], "b c"),
    (["b c"], "b b b c"),
    (["one. two. three"], "three. two. one"),
    (["one two. three"], "one. two three."),
    (["a\nb"], "a b"),
    (["n't"], "not"),
]
WORDS = (
    "the a of it is light sun. Sun heat, because air moves and falls down; then up. I think"
).split()


def long_cases():
    """Answers of many words with repeats and full stops, of one to three aliases."""
    rng = random.Random(0)

    def text(most):
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, most)))

    return [([text(60) for _ in range(rng.randrange(1, 4))], text(40)) for _ in range(40)]


def scored(answers, prediction):
    page = [{"wikipedia_id": "1"}]
    gold = {"id": "1", "output": [{"answer": a, "provenance": page} for a in answers]}
    guess = {"id": "1", "output": [{"answer": prediction, "provenance": page}]}
    found = eval_downstream._calculate_metrics([gold], [guess])["downstream"]
    return {name: float(value) for name, value in found.items()}


def main():
    fixtures = pathlib.Path(sys.argv[1])
    gold = kilt_utils.load_data(str(fixtures / "gold1.jsonl"))
    guess = kilt_utils.load_data(str(fixtures / "guess1_1.jsonl"))
    value = {
        "provenance": {"KILT": COMMIT, "rouge": importlib.metadata.version("rouge")},
        "cases": [
            {"answers": a, "prediction": p, "scores": scored(a, p)}
            for a, p in [*CASES, *long_cases()]
        ],
        "gold1/guess1_1": eval_downstream._calculate_metrics(gold, guess)["downstream"],
        "gold1/gold1": eval_downstream._calculate_metrics(gold, gold)["downstream"],
    }
    text = json.dumps(value, ensure_ascii=False, indent=1)
    (HERE / "kilt.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
