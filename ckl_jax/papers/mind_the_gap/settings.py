"""Settings of `ckl mind-the-gap` and `ckl ask`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from ckl_jax import checks
from ckl_jax.data.text.word_classes import make_tagger
from ckl_jax.errors import UserError
from ckl_jax.options import Bindings, Floats, Names, Years
from ckl_jax.papers.mind_the_gap.analysis.word_groups import require_scikit_learn
from ckl_jax.papers.mind_the_gap.data.dated_sources import SOURCES
from ckl_jax.papers.mind_the_gap.data.time_splits import Options
from ckl_jax.train.studies import Experiments, StudySettings

ENGLISH = "en"
MASKS = ("all", "bias", "embedding")
LARGER = "_larger"  # behind the name of an arm: a larger model on the same data
# Gin files of the model, tokens of its vocabulary, size of the simulated stream.
SIZES = {
    "tiny": (("mind_the_gap_demo.gin", "mind_the_gap_tiny.gin"), 600, "tiny"),
    "small": (("mind_the_gap_demo.gin",), 2000, "small"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gap(StudySettings, Options):
    """Settings of `ckl mind-the-gap`.

    Attributes:
      out: Folder of everything.
      corpus: File of dated documents; by default the simulated stream.
      source: Format of --documents.
      clean: Drop documents of other languages and near-duplicates, and tokenise the rest.
      language: ISO 639-1 code of the language of --documents, such as de (Appendix A.3).
      size: Size of the models and of the simulated stream.
      vocabulary_size: Tokens of the vocabulary; by default that of --size.
      masks: Parameters that dynamic evaluation updates (all, bias, embedding); '' skips it.
      rates: Learning rates of dynamic evaluation; the best on validation text is used.
      tuning_documents: Validation documents on which --rates are compared, spread evenly.
      larger: Also train a TIME-STRATIFIED model that is a quarter wider (Figure 3).
      cutoffs: Years, such as 2012..2019: also train a model on the text up to the end of each, on
        equally many words for all, and report perplexity by cut-off and month (Appendix A.2).
      shifted_years: Also train both arms for test periods that end 1 to so many years earlier
        (Appendix A.1).
      past_documents: Documents of each past year that are held out of training, to measure
        forgetting; 0 measures none.
      tagger: Tagger of parts of speech: heuristic (English only; other languages have none by
        default), textblob, spacy[:PIPELINE], nltk or none.
      topics: Number of topics learned from the training text; 0 learns none.
      emerging_min_count: Mentions in the test documents that an emerging word needs.
      skip_bad: Leave out malformed documents.
    """

    out: str = "runs/mind-the-gap"
    corpus: Annotated[str | None, arg(name="documents", metavar="FILE")] = None
    source: Literal[*SOURCES] = "jsonl"
    clean: Annotated[
        bool, arg(help="Take --documents as they are: tokenised, and free of near-duplicates.")
    ] = True
    language: str = ENGLISH
    size: Literal[*SIZES] = "small"
    vocabulary_size: Annotated[int | None, arg(name="vocab-size")] = None
    masks: Names = MASKS
    rates: Floats = (0.01, 0.03, 0.1, 0.3)
    tuning_documents: int = 200
    larger: bool = False
    cutoffs: Years = ()
    shifted_years: int = 0
    past_documents: int = 20
    tagger: str = "heuristic"
    topics: int = 0
    emerging_min_count: int = 50
    skip_bad: bool = False

    def __post_init__(self) -> None:
        # Both bases validate; neither calls the other.
        StudySettings.__post_init__(self)
        Options.__post_init__(self)
        if self.language != ENGLISH and not self.corpus:
            raise UserError(
                f"--language {self.language}: the simulated stream is English; give --documents."
            )
        foreign = self.language != ENGLISH and self.tagger == "heuristic"
        if self.tagger == "none" or foreign:
            self._set(tagger="")
        checks.require_choice(SIZES, **{"--size": self.size})
        extra = {"--past-documents": self.past_documents, "--topics": self.topics}
        checks.require_int(0, **extra, **{"--shifted-years": self.shifted_years})
        checks.require_size(**{"--emerging-min-count": self.emerging_min_count})
        if self.tagger and self.tagger != "heuristic":
            make_tagger(self.tagger, ())  # it is there
        if self.topics:
            require_scikit_learn()
        if len(self.cutoffs) == 1:
            raise UserError("--cutoffs compares models of two years or more, such as 2012..2019.")
        checks.require_names(MASKS, empty=True, **{"--masks": self.masks})
        checks.require_int(300, **{"--vocab-size": self.vocabulary_size})
        for rate in self.rates:
            checks.require_positive(**{"--rates": rate})
        if self.masks:
            checks.require_size(**{"--tuning-documents": self.tuning_documents})
            if not self.rates:
                raise UserError("No --rates are given for dynamic evaluation; give one or more.")

    @property
    def options(self) -> Options:
        """The options of the splits."""
        names = [field.name for field in dataclasses.fields(Options)]
        return Options(**{name: getattr(self, name) for name in names})

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def tokens(self) -> int:
        return self.vocabulary_size or SIZES[self.size][1]

    def vocabulary(self, arm: str) -> Path:
        return self.data / f"{arm.removesuffix(LARGER)}.model"

    def task(self, arm: str, text: str) -> Path:
        """The cached task of a text in an arm's vocabulary."""
        return self.data / "tasks" / f"{arm.removesuffix(LARGER)}_{text}"

    def evaluation(self, arm: str, name: str, mask: str, rate: float | None = None) -> Path:
        """The folder of a text's losses, for an updated model also by mask and rate."""
        at = "" if rate is None else f"-{rate:g}"
        return self.root / "losses" / f"{arm}-{name}-{mask}{at}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper(Gap):
    """Settings of `ckl experiment mind_the_gap/...`.

    Attributes:
      newsqa: NewsQA's combined JSON, of which mind_the_gap/newsqa asks the stories of the last of
        --cutoffs; by default stories of the simulated stream.
      addresses: List of the stories' addresses, for their dates.
    """

    newsqa: Annotated[str | None, arg(metavar="FILE")] = None
    addresses: Annotated[str | None, arg(metavar="FILE")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.newsqa) != bool(self.addresses):
            raise UserError(
                "--newsqa and --addresses go together: a story's date is in its address."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of fine-tuning and question answering, including those that the paper does not
    state.

    Attributes:
      epochs: Passes over the questions of --tune; 0 does not tune.
      learning_rate: Constant learning rate of Adam.
      batch_size: Questions at once.
      length: Tokens of a question and its answer, at most; of a longer passage the end is kept.
      clip_norm: Bound of the global gradient norm.
      seed: Random seed of the order of the questions.
    """

    epochs: int = 5
    learning_rate: float = 1e-4
    batch_size: int = 32
    length: int = 512
    clip_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.require_int(0, **{"--epochs": self.epochs, "--seed": self.seed})
        checks.require_int(1, checks.MAX_ROWS, **{"--batch-size": self.batch_size})
        checks.require_int(4, **{"--length": self.length})
        rates = {"--learning-rate": self.learning_rate, "--clip-norm": self.clip_norm}
        checks.require_positive(**rates)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """How `ckl staleness` scores documents.

    Attributes:
      documents: JSONL file of dated documents, which models are scored on.
      window: Tokens that a model reads at once; by default its positions, at most 1024, or 128 of a
        masked model or an encoder-decoder, which read a window for each token or word.
      stride: Tokens that each further window of a document scores, of decoder-only models; by
        default half of --window.
      batch_size: Windows at once.
      bindings: Gin bindings over those of runs, such as DATA_DIR="'elsewhere'".
      trusted: Modules of yours that the gin file of a run may import; all is any.
    """

    documents: Annotated[str | None, arg(metavar="FILE")] = None
    window: int | None = None
    stride: int | None = None
    batch_size: int = 8
    bindings: Bindings = ()
    trusted: Annotated[Names, arg(name="trust-imports")] = ()


TITLES = {
    "mind_the_gap/table1": "the corpus",
    "mind_the_gap/table2": "perplexity of both arms",
    "mind_the_gap/table3": "emerging new words",
    "mind_the_gap/table4": "updates of all parameters, biases, embeddings",
    "mind_the_gap/figure1": "staleness by month",
    "mind_the_gap/figure2": "parts of speech and topics",
    "mind_the_gap/figure3": "a larger model",
    "mind_the_gap/figure4": "questions about office holders, by cut-off",
    "mind_the_gap/figure5": "staleness with updates",
    "mind_the_gap/figure9": "text of the past",
    "mind_the_gap/newsqa": "questions about stories that hold the answer, by cut-off",
    "mind_the_gap/appendix_a1": "other test years",
    "mind_the_gap/appendix_a2": "perplexity by cut-off and month",
    "mind_the_gap/appendix_a3": "another language",
}
PAPER_EXPERIMENTS = Experiments(
    titles=TITLES, settings=Paper, module="ckl_jax.papers.mind_the_gap.experiments"
)
