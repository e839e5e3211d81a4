"""`ckl probe ...`: relational ranking (docs/lm_pub_quiz.md)."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from ckl_jax.cli.progress_line import ProgressLine
from ckl_jax.errors import UserError
from ckl_jax.options import Bindings, Names


def bear(
    *,
    model: str,
    dataset: str = "BEAR",
    out: str | None = None,
    templates: str = "all",
    relations: Names = (),
    relation_info: str | None = None,
    reduction: Literal["sum", "mean", "none"] = "sum",
    conditional: bool = False,
    no_bos: bool = False,
    target: Literal["answer", "statement"] = "answer",
    pll_metric: str = "within_word_l2r",
    subjects: Names | None = None,
    dtype: str | None = None,
    subsample: int | None = None,
    batch_size: int | None = None,
    bindings: Bindings = (),
    trust_imports: Names = (),
) -> None:
    """Rank the answers of a relational dataset (LM-PUB-QUIZ).

    Args:
      model: Hugging Face folder, MODEL_DIR or checkpoint.
      dataset: Folder of BEAR, or of another dataset in its layout.
      out: Folder of the results; by default MODEL/bear/DATASET.
      templates: Numbers of the templates from 0, such as 0 or 0,2, or all.
      relations: Relations, such as P36,P30; by default all.
      relation_info: JSON file of domains by relation.
      reduction: How token scores make a score; none keeps the token scores.
      conditional: Score from the start of the answer on.
      no_bos: Score without BOS, as GPT-2's published scores.
      target: What a T5 is scored on.
      pll_metric: Tokens hidden from a BERT together with the scored one: within_word_l2r, original,
        sentence_l2r or answer_l2r+word_l2r.
      subjects: Generic subjects in place of the real ones, such as it,the place: measures biases
        alone.
      dtype: Of activations: bfloat16 or float32.
      subsample: Instances of each relation, drawn at random.
      batch_size: Rows of the model at once.
      bindings: Gin bindings over the run's, such as DATA_DIR="'elsewhere'".
      trust_imports: Modules of yours that the run's gin file may import; all is any.
    """
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.files import write_json, write_jsonl
    from ckl_jax.papers.lm_pub_quiz import probe
    from ckl_jax.papers.lm_pub_quiz.analysis import ranking_report as report

    data = Dataset.from_path(dataset, relation_info, relations)
    if subjects == ():
        raise UserError("--subjects names none; give some, such as it,the place.")
    if subjects:
        data = data.about(subjects)
    out = out or str(Path(model) / "bear" / data.name)
    settings = probe.Settings(
        out=out,
        templates=_numbers(templates),
        reduction=None if reduction == "none" else reduction,
        conditional_score=conditional,
        bos=False if no_bos else None,
        subsample=subsample,
        target=target,
        pll_metric=pll_metric,
        batch_size=batch_size,
        dtype=dtype,
        bindings=bindings,
        trusted=trust_imports,
    )
    with ProgressLine() as line:

        def show(code: str, done: int, whole: int) -> None:
            line(done + 1, whole, f"relations: {code}")

        results = probe.probe(model, data, settings, show)
    if subjects:
        print(f"{report.biases(results)}\nResults: {out}")
        return
    write_json(Path(out) / "summary.json", report.as_json(results))
    write_jsonl(Path(out) / "items.jsonl", report.items(results))
    print(f"{report.summary(results)}\nResults: {out}")


def _numbers(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    numbers = text.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        raise UserError(f"--templates is {text!r}; give numbers from 0, such as 0,2, or all.")
    return tuple(int(number) for number in numbers)


def compare(
    results: Annotated[Positional[tuple[str, ...]], arg(metavar="RESULTS...")],
    *,
    out: str,
    bias: Names = (),
    relation_info: str | None = None,
) -> None:
    """Draw the ranking results of several models in the same figures.

    Args:
      results: Folders of results, as NAME=FOLDER or FOLDER.
      out: Folder of the figures.
      bias: Relations whose biases to draw, such as P30.
      relation_info: JSON file of domains by relation.
    """
    from ckl_jax.papers.lm_pub_quiz.analysis.ranking_report import changes, draw

    named = [text.split("=", 1) if "=" in text else (text, text) for text in results]
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{twice} is named twice; give each folder its own name (NAME=FOLDER).")
    differences = changes(dict(named))
    written = draw(dict(named), out, bias, relation_info)
    print("\n".join(written))
    if not any(path.endswith("domains.png") for path in written):
        print("No domains.png: the results have no domains; give --relation-info.")
    for line in differences:
        print(line)
