"""What LM-PUB-QUIZ's paper claims of a stream of trainings, and the numbers that test it.

Of `ckl stream`: what is known before it in percent of the facts, and after its first and its last
experience in percent of that. Both scores are of the same facts, those whose answer is one token.
"""

import functools
from pathlib import Path

import numpy as np

from ckl_jax.analysis.claims import Claim, Effect, Kind, Numbers, combine, number
from ckl_jax.analysis.statistics import bootstrap_means
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.papers.lm_pub_quiz.analysis.trajectories import RECORD, points_of, right_answers

RANKING, FILLING = "ranking", "mask_filling"
START, FIRST, LAST = "start", "first", "last"
# Table 2: T-REx after the first and the fourth experience, and the scores at the start.
PUBLISHED = {
    (START, RANKING): 40.5,
    (START, FILLING): 31.3,
    (FIRST, RANKING): 72.37,
    (FIRST, FILLING): 24.12,
    (LAST, RANKING): 38.58,
    (LAST, FILLING): 4.41,
}
_claim = functools.partial(Claim, where="Table 2", unit="points", published=PUBLISHED)


def _lost(score: str) -> Effect:
    return combine(lambda left: 100.0 - left, [number(LAST, score)])


CLAIMS = (
    _claim(
        "the facts are easier to rank than to fill in",
        number(START, RANKING) - number(START, FILLING),
    ),
    _claim("by ranking, facts are forgotten along the stream", _lost(RANKING)),
    _claim("by mask filling, facts are forgotten along the stream", _lost(FILLING)),
    _claim(
        "after one experience mask filling has fallen further than ranking",
        number(FIRST, RANKING) - number(FIRST, FILLING),
    ),
    _claim(
        "after the last experience mask filling has fallen further than ranking",
        number(LAST, RANKING) - number(LAST, FILLING),
    ),
)


def read_numbers(folder: Path, samples: int, seed: int) -> Numbers:
    """The numbers of a finished folder of `ckl stream`.

    Args:
      samples: B, of the bootstrap over facts.

    Raises:
      UserError: the stream is not finished, or its trainings were not put to the same facts.
    """
    path = folder / "trajectories.json"
    if not path.is_file():
        raise UserError(f"{folder} has no trajectories yet; run `ckl stream --out {folder}`.")
    made = read_json_object(path)
    names, dataset = [name for name in made["scores"] if name != START], made["dataset"]
    places = list(points_of({name: folder / name for name in names}, dataset).values())
    points = dict(zip((START, FIRST, LAST), (*places[:2], places[-1]), strict=True))
    known = {point: right_answers(at, dataset, step) for point, (at, step) in points.items()}
    facts = list(known[START][1])
    if not facts or any(set(filled) != set(facts) for _, filled in known.values()):
        raise UserError(f"The trainings in {folder} were not put to the same facts; make it again.")
    keys = [(point, score) for point in known for score in (RANKING, FILLING)]
    values = [[answers[fact] for fact in facts] for both in known.values() for answers in both]
    right = 100.0 * np.array(values, float)  # [6, N]
    drawn = np.column_stack([right.mean(axis=1), bootstrap_means(right, samples, seed)])
    numbers = dict(zip(keys, drawn, strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):  # where nothing is known at the start
        for point, score in keys[2:]:
            numbers[point, score] = 100.0 * numbers[point, score] / numbers[START, score]
    return numbers


KIND = Kind(
    paper="LM-PUB-QUIZ (Ploner et al. 2024)",
    command="ckl stream",
    record=RECORD,
    claims=CLAIMS,
    read=read_numbers,
    flags=("seed", "size", "model", "documents", "dataset"),
    world=("documents",),
)
