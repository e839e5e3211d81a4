"""TempLAMA (Dhingra et al., 2022) as a probe set: facts with dates, each asked as of its year.

A line of its files is {"query": "Valentino Rossi plays for _X_.", "answer": [{"wikidata_id": ...,
"name": "Yamaha Motor Racing"}], "date": "2010", "id": "Q169814_P54_2010", "relation": "P54"}.
"""

from collections.abc import Iterator
from pathlib import Path

from ckl_jax.data.facts.probe import Probe, ProbeItem
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl


def templama(file: str, role: str | None = "updated") -> Probe:
    """The probe set of one file; gin binds `file`, below PROBE_DIR or absolute, and the role."""
    return Probe(
        name="templama",
        file=file,
        read=read_templama,
        short="TLAMA",
        long="TempLAMA",
        role=role,
        columns=("starts_alike",),
        metrics={"starts_alike": starts_alike},
        input_length=50,
        target_length=12,
    )


def read_templama(probe: Probe, folder: Path) -> Iterator[ProbeItem]:
    """Yields an item of each line; all names that were right in its year are accepted."""
    path = probe.path(folder)
    for number, row in enumerate(read_jsonl(path), 1):
        try:
            item = ProbeItem(
                id=row["id"],
                input=f"year: {row['date']} text: {row['query']}",
                answers=tuple(answer["name"] for answer in row["answer"]),
                relation=row["relation"],
                date=row["date"],
            )
        except (KeyError, TypeError) as e:
            raise UserError(f"{path}, line {number}: not a line of TempLAMA ({e!r}).") from e
        yield item


def starts_alike(prediction: str, answers: tuple[str, ...]) -> float:
    """A metric of our own: 1 if the prediction begins with the first word of an answer."""
    first = prediction.lower().split()[:1]
    return float(any(first and first == answer.lower().split()[:1] for answer in answers))
