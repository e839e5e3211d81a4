"""Settings of `ckl probe bear` and `ckl stream`."""

import dataclasses
import re
from typing import Annotated, Literal

from tyro.conf import Fixed, Suppress, arg
from tyro.constructors import PrimitiveConstructorSpec

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.options import Bindings, Names, Repeated
from ckl_jax.train.studies import Experiments, StudySettings
from ckl_jax.world.timeline import SIZES

DTYPES = ("bfloat16", "float32")
TARGETS = ("answer", "statement")
SCHEMES = ("within_word_l2r", "original", "sentence_l2r", "answer_l2r+word_l2r")


def _templates(words: list[str]) -> tuple[int, ...] | None:
    numbers = words[0].split(",")
    if words[0] != "all" and not all(re.fullmatch(r"\d{1,9}", n.strip()) for n in numbers):
        raise ValueError(f"{words[0][:40]!r}; give numbers from 0, such as 0,2, or all")
    return None if words[0] == "all" else tuple(map(int, numbers))


Templates = Annotated[
    tuple[int, ...] | None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="M,N",
        instance_from_str=_templates,
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda value: ["all" if value is None else ",".join(map(str, value))],
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a model is opened, and scores tokens.

    Attributes:
      bos: Begin with BOS; None does so where the vocabulary has one.
      conditional_score: Score from the start of the answer on.
      target: What a T5 is scored on.
      pll_metric: Tokens hidden from a BERT together with the scored one.
      dtype: Type of activations.
      batch_size: Rows of the model at once.
      bindings: Gin bindings over the run's, such as DATA_DIR="'elsewhere'".
      trusted: Modules of yours that the run's gin file may import; all is any.
    """

    bos: Suppress[Fixed[bool | None]] = None
    conditional_score: Annotated[bool, arg(name="conditional")] = False
    target: Literal[*TARGETS] = TARGETS[0]
    pll_metric: Literal[*SCHEMES] = SCHEMES[0]
    dtype: Literal[*DTYPES] | None = None
    batch_size: int | None = None
    bindings: Bindings = ()
    trusted: Annotated[Names, arg(name="trust-imports")] = ()

    def __post_init__(self) -> None:
        checks.require_int(1, checks.MAX_ROWS, **{"--batch-size": self.batch_size})
        checks.require_choice(TARGETS, **{"--target": self.target})
        checks.require_choice(SCHEMES, **{"--pll-metric": self.pll_metric})
        checks.require_choice((None, *DTYPES), **{"--dtype": self.dtype})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Scoring):
    """Settings of a ranking.

    Attributes:
      out: Folder of the results; by default MODEL/bear/DATASET.
      templates: Numbers of the templates from 0, such as 0 or 0,2, or all.
      reduction: How token scores make a score; none keeps the token scores.
      subsample: Instances of each relation, drawn at random.
    """

    out: str | None = None
    templates: Templates = None
    reduction: Literal["sum", "mean", "none"] = "sum"
    subsample: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream(StudySettings):
    """What is made, and where.

    Attributes:
      out: Folder of everything.
      size: Size of the simulated world, whose old pages the first model is trained on.
      documents: JSONL(.gz) file of documents with date, title and text; by default the news of the
        simulated world.
      model: Folder of `ckl import-hf` (needs --documents and --dataset); by default a small new
        model.
      dataset: Folder of the facts to rank, in BEAR's layout; by default the simulated world's.
      experiences: Parts of the stream, by date, with equally many documents each.
      epochs: Passes over each part.
      initial_epochs: Passes over the old pages.
      jobs: One: each training starts from the one before.
    """

    out: str = "runs/stream"
    size: Literal[*SIZES] = "small"
    documents: str | None = None
    model: str | None = None
    dataset: str | None = None
    experiences: int = 5
    epochs: int = 6
    initial_epochs: int = 20
    jobs: Suppress[Fixed[int]] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {"--experiences": self.experiences, "--epochs": self.epochs}
        checks.require_int(1, **counts, **{"--initial-epochs": self.initial_epochs})
        given = [bool(x) for x in (self.model, self.documents, self.dataset)]
        if any(given) and not all(given):
            raise UserError(
                "--model, --documents and --dataset belong together: a model that is not the "
                "simulated world's knows none of its facts. Give all three, or none."
            )

    @property
    def names(self) -> list[str]:
        """Of the experiences."""
        return [f"experience_{i + 1}" for i in range(self.experiences)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(Stream):
    """Settings of `ckl experiment lm_pub_quiz/...`; those of `ckl stream` are of figure5, table2.

    Attributes:
      models: NAME=FOLDER of each model of figures 3, 4 and 6.
      domains: NAME=FILE of documents to which figure 3 adapts each model, a folder of
        `ckl import-hf`, before it ranks by it again.
      probe: Dataset that they are ranked on.
      relation_info: JSON file of its domains by relation.
      relation: The relation of figures 4 and 6.
      subjects: The generic subjects of figure 6.
    """

    out: str = "runs/lm-pub-quiz"
    models: Repeated = ()
    domains: Repeated = ()
    probe: str = "BEAR"
    relation_info: str | None = None
    relation: str = "P30"
    subjects: Names = ("it", "the place", "the region", "this area", "the location", "here")


TITLES = {
    "lm_pub_quiz/figure3": "accuracy by domain of several models",
    "lm_pub_quiz/figure4": "biases of models for the answers of a relation",
    "lm_pub_quiz/figure5": "knowledge along a stream of trainings, figure",
    "lm_pub_quiz/figure6": "biases of models with generic subjects",
    "lm_pub_quiz/table2": "knowledge along a stream of trainings, table",
}
PAPER_EXPERIMENTS = Experiments(
    titles=TITLES, settings=Experiment, module="ckl_jax.papers.lm_pub_quiz.experiments"
)
