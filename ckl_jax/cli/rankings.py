"""`ckl probe ...`: relational ranking (docs/lm_pub_quiz.md)."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ckl_jax.cli.work import Overwrite
from ckl_jax.errors import UserError, printable
from ckl_jax.options import Flat, Names, Repeated, named_folders
from ckl_jax.papers.lm_pub_quiz.settings import Settings, Templates
from ckl_jax.train.progress import counting


def bear(
    settings: Flat[Settings],
    *,
    model: str,
    dataset: str = "BEAR",
    relations: Names = (),
    relation_info: str | None = None,
    subjects: Names | None = None,
    no_bos: bool = False,
) -> dict[str, Any]:
    """Rank the answers of a relational dataset (LM-PUB-QUIZ).

    Args:
      model: Hugging Face folder, MODEL_DIR or checkpoint.
      dataset: Folder of BEAR, or of another dataset in its layout.
      relations: Relations, such as P36,P30; by default all.
      relation_info: JSON file of domains by relation.
      subjects: Generic subjects in place of the real ones, such as it,the place: measures biases
        alone.
      no_bos: Score without BOS, as GPT-2's published scores.
    """
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.files import refuse_existing, write_file, write_json, write_jsonl
    from ckl_jax.papers.lm_pub_quiz import probe
    from ckl_jax.papers.lm_pub_quiz.analysis import by_date
    from ckl_jax.papers.lm_pub_quiz.analysis import ranking_report as report
    from ckl_jax.papers.lm_pub_quiz.ranking_results import METADATA

    data = Dataset.from_path(dataset, relation_info, relations)
    if subjects == ():
        raise UserError("--subjects names none; give some, such as it,the place.")
    if subjects:
        data = data.about(subjects)
    out = settings.out or str(Path(model) / "bear" / data.name)
    mine = ("summary.json", "items.jsonl", "by_date.png")
    for name in () if (Path(out) / METADATA).exists() else mine:
        refuse_existing(Path(out) / name, None)
    settings = dataclasses.replace(settings, out=out, bos=False if no_bos else None)
    with counting() as line:

        def show(code: str, done: int, whole: int) -> None:
            line(done + 1, whole, f"relations: {code}")

        results = probe.probe(model, data, settings, show)
    if subjects:
        print(printable(f"{report.biases(results)}\nResults: {out}"))
        return {"results": out}
    scores = report.as_json(results)
    write_json(Path(out) / "summary.json", scores)
    write_jsonl(Path(out) / "items.jsonl", report.items(results))
    if scores.get("dated", {}).get("by_date"):
        write_file(Path(out) / "by_date.png", by_date.plot({results.name: scores["dated"]}))
    print(printable(f"{report.summary(results)}\nResults: {out}"))
    return {"results": out, **scores}


def checkpoints(
    settings: Flat[Settings],
    *,
    model: Repeated,
    dataset: str = "BEAR",
    relations: Names = (),
    relation_info: str | None = None,
) -> dict[str, Any]:
    """Rank by each checkpoint of a run, or of a family: facts learned, kept and forgotten.

    Args:
      model: MODEL_DIR, all of whose checkpoints are taken; or NAME=FOLDER of a model, repeated in
        the order of the curves, such as Pythia's revisions.
      dataset: Folder of BEAR, or of another dataset in its layout.
      relations: Relations, such as P36,P30; by default all.
      relation_info: JSON file of domains by relation.
    """
    from ckl_jax.analysis.sections import refuse_foreign
    from ckl_jax.checkpoints.restore import complete_steps
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.papers.lm_pub_quiz import probe
    from ckl_jax.papers.lm_pub_quiz.analysis import checkpoints as analysis
    from ckl_jax.papers.lm_pub_quiz.analysis import comparison

    data = Dataset.from_path(dataset, relation_info, relations)
    if len(model) == 1 and "=" not in model[0]:
        folders = {f"step {n}": f"{model[0]}/checkpoint_{n}" for n in complete_steps(model[0])}
    else:
        folders = named_folders(model)
    if len(folders) < 2:
        raise UserError(
            f"--model {model[0] if model else ''}: {len(folders)} checkpoints; give a MODEL_DIR "
            "with two or more (SaveCheckpointConfig.keep), or several models as NAME=FOLDER."
        )
    out = Path(settings.out or Path(next(iter(folders.values()))).parent / "checkpoints")
    refuse_foreign(out / "checkpoints.html", None, "checkpoints.json", "checkpoints.png")
    results = {}
    with counting() as line:
        for name, folder in folders.items():

            def show(code: str, done: int, whole: int, name: str = name) -> None:
                line(done + 1, whole, f"{name}: {code}")

            own = dataclasses.replace(settings, out=str(out / name.replace(" ", "_")))
            results[name] = probe.probe(folder, data, own, show)
    page, numbers = analysis.write_curves(comparison.align(results)[0], out)
    print(page)
    return {"page": page, "checkpoints": numbers}


def fill(
    *,
    model: str,
    dataset: str,
    relations: Names = (),
    templates: Templates = (0,),
    out: str | None = None,
    batch_size: int | None = None,
    trust_imports: Names = (),
) -> dict[str, Any]:
    """Fill the mask of a masked model: is the answer its best token, or among its ten best (LAMA).

    Facts whose answer is several tokens are left out, and counted.

    Args:
      model: Hugging Face folder, MODEL_DIR or checkpoint of a BERT or RoBERTa.
      dataset: Folder in BEAR's layout, such as T-REx (`ckl data quiz --source wikidata`).
      relations: Relations, such as P36,P30; by default all.
      templates: Numbers of the templates from 0, such as 0 or 0,2, or all.
      out: Folder of summary.json and items.jsonl; by default MODEL/fill/DATASET.
      batch_size: Rows of the model at once.
      trust_imports: Modules of yours that the run's gin file may import; all is any.
    """
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.files import claimed_folder, write_json, write_jsonl
    from ckl_jax.papers.lm_pub_quiz import mask_filling
    from ckl_jax.papers.lm_pub_quiz.probe import make_filler
    from ckl_jax.papers.lm_pub_quiz.ranking import chosen_templates
    from ckl_jax.train.opening import open_model

    data = Dataset.from_path(dataset, None, relations)
    folder = Path(out or Path(model) / "fill" / data.name)
    with claimed_folder(folder, "ckl probe fill"):
        opened = open_model(model, trusted=trust_imports)
        filler = make_filler(opened.model, opened.params, opened.put_batch, batch_size)
        with opened.on_mesh():
            rows = list(mask_filling.fill_dataset(filler, data, templates))
        summary = mask_filling.measure(rows)
        every = (len(r.instances) * len(chosen_templates(r, templates)) for r in data)
        summary["overall"]["left_out"] = sum(every) - len(rows)
        write_jsonl(folder / "items.jsonl", rows)
        write_json(folder / "summary.json", summary)
    whole = summary["overall"]
    scores = (
        f"{key} {x['value']:.2f} % (95 % interval {x['low']:.2f} to {x['high']:.2f})"
        for key, x in whole.items()
        if key.startswith("precision")
    )
    print(f"{', '.join(scores)} of {whole['items']:,} rows whose answer is one token")
    print(f"{whole['left_out']:,} rows have an answer of several tokens. Results: {folder}")
    return {"results": folder, **summary}


def compare(
    results: Annotated[Positional[tuple[str, ...]], arg(metavar="RESULTS...")],
    *,
    out: str,
    bias: Names = (),
    relation_info: str | None = None,
    common_rows: bool = False,
    prior: Repeated = (),
    popularity: str | None = None,
    leaderboard: bool = False,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Compare the ranking results of several models: differences with tests, in a page and figures.

    Args:
      results: Folders of results, as NAME=FOLDER or FOLDER; the first is what the others are
        compared with.
      out: Folder of report.html, comparison.json and the figures.
      bias: Relations whose biases to draw, such as P30.
      relation_info: JSON file of domains by relation.
      common_rows: Compare models that were scored on different rows, on those that all have.
      prior: NAME=FOLDER of the model's results of generic subjects (`ckl probe bear --subjects`):
        the model is compared once more, with the probability that an option has anyway divided
        out.
      popularity: How popular subjects are, for accuracy by popularity: a JSON file
        {sub_id: number}, or documents (JSONL, CSV, Parquet, a folder) that mention them.
      leaderboard: Put the best model first, and write results.json, as LM-PUB-QUIZ's site has it.
    """
    from ckl_jax.analysis.sections import refuse_foreign
    from ckl_jax.files import read_json, write_json
    from ckl_jax.papers.lm_pub_quiz.analysis import comparison, ranking_report
    from ckl_jax.papers.lm_pub_quiz.analysis.leaderboard import entries
    from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

    named = _named(results)
    drawn = ("calibration", "domains", "popularity", "by_date", *(f"bias_{code}" for code in bias))
    images = (f"{name}.png" for name in drawn)
    refuse_foreign(Path(out) / "report.html", overwrite, "comparison.json", *images)
    info = read_json(relation_info) if relation_info else None
    read = {name: DatasetResults.from_path(path, info) for name, path in named.items()}
    models, coverage = comparison.align(read, common_rows)
    models |= _without_priors(models, prior)
    popular = _popularity(popularity, models) if popularity else None
    if leaderboard:
        board = entries(models)
        order = [x["model_name"] for x in board if x["model_name"] in models]
        models = {name: models[name] for name in order}
    written, numbers = ranking_report.draw(models, out, bias, coverage, popular)
    if leaderboard:
        write_json(Path(out) / "results.json", board)
    differences = ranking_report.changes(models)
    tests = comparison.sentences(numbers["tests"]["overall"], next(iter(models)))
    print("\n".join(written))
    if not any(path.endswith("domains.png") for path in written):
        print("No domains.png: the results have no domains; give --relation-info.")
    if coverage:
        print(f"Compared on common rows alone: {coverage}.")
    for line in (*differences, *tests):
        print(printable(line))
    return {"written": written, "changes": differences, **numbers}


def _named(results: Sequence[str]) -> dict[str, str]:
    """{name: folder} of NAME=FOLDER or FOLDER."""
    named = [text.split("=", 1) if "=" in text else (text, text) for text in results]
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{twice} is named twice; give each folder its own name (NAME=FOLDER).")
    return dict(named)


def _without_priors(models: Mapping[str, Any], prior: Sequence[str]) -> dict[str, Any]:
    """{"<model> without prior": results} of the models named in --prior."""
    from ckl_jax.papers.lm_pub_quiz.analysis import comparison
    from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

    results = {}
    for name, folder in named_folders(prior, "--prior").items():
        if name not in models:
            raise UserError(f"--prior {name}: there is no model {name}; name one of RESULTS.")
        generic = DatasetResults.from_path(folder)
        results[f"{name} without prior"] = comparison.without_prior(models[name], generic)
    return results


def _popularity(path: str, models: Mapping[str, Any]) -> dict[str, float]:
    """How popular the subjects are, by `sub_id`, as a file has it or documents mention them."""
    from ckl_jax.data.text.document_files import read_place
    from ckl_jax.files import read_json_object
    from ckl_jax.probes.mentions import count_mentions

    if not path.endswith(".json"):
        results = next(iter(models.values()))
        labels = {
            row["sub_id"]: row["sub_label"] for of in results.relations.values() for row in of.table
        }
        texts = (document.text for document in read_place(path))
        counts = count_mentions(set(labels.values()), {path: texts})[path]
        return {subject: counts[label] for subject, label in labels.items()}
    popularity = read_json_object(path)
    for subject, value in popularity.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{path}: the popularity of {subject!r} is no number.")
    return popularity
