"""Shared parts of Beam pipelines: options, running, errors, outputs by name, sums, tables.

Counts go with the data, not through Beam's metrics: work that a runner repeats is not counted
twice, and runners that report no metrics will do.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError, if_missing
from ckl_jax.files import atomic_write, write_json

_WHILE = " [while running"  # what Beam puts behind the message of an exception
_ERROR = re.compile(rf"^{UserError.__module__}\.{UserError.__name__}: (.+)", re.MULTILINE)
COUNTS = "counts"  # the output of (name, number) pairs


def import_beam() -> Any:
    """Apache Beam; raises `UserError` if it is not installed."""
    with if_missing(
        "Beam pipelines need the package 'apache-beam': pip install 'ckl-jax[beam]' into an "
        "environment of its own."
    ):
        import apache_beam
        import apache_beam.options.pipeline_options
    return apache_beam


def new_pipeline(arguments: str = "") -> tuple[Any, Any]:
    """(Beam, an empty pipeline).

    Args:
      arguments: options as on a command line, such as `--runner=FlinkRunner --parallelism=8`.

    Raises:
      UserError: Beam is not installed, or does not know an option or its value.
    """
    beam = import_beam()
    flags = known_flags(beam, arguments)
    try:
        return beam, beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(flags))
    except (ValueError, ImportError) as e:  # of the runner's name, of what it needs
        raise UserError(f"--beam {arguments!r}: {' '.join(str(e).split())}") from e


def known_flags(beam, arguments: str) -> list[str]:
    """The options one by one; unknown ones are refused, where Beam would only warn.

    Raises:
      UserError: Beam does not know one, or its value is not of its type.
    """
    modules = beam.options.pipeline_options

    class Parser(modules._BeamArgumentParser):
        def error(self, message):
            raise UserError(f"--beam {arguments!r}: {message}; see Beam's pipeline options.")

    try:
        flags = shlex.split(arguments)
    except ValueError as e:
        raise UserError(f"--beam {arguments!r}: {e}; close every quotation mark.") from e
    parser = Parser(allow_abbrev=False, add_help=False)
    for options in {str(c): c for c in modules.PipelineOptions.__subclasses__()}.values():
        options._add_argparse_args(parser)
    if unknown := parser.parse_known_args(flags)[1]:
        parser.error(f"Beam has no option {unknown[0]!r}")
    return flags


def run_pipeline(pipeline) -> Any:
    """Runs a pipeline to completion; raises a worker's `UserError` as the worker did."""
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as e:
        if (error := _user_error(e)) is None:
            raise
        raise error from e
    return result


def _user_error(error: BaseException | None) -> UserError | None:
    """The `UserError` raised in a worker, recovered from a traceback as text if necessary."""
    while error is not None:
        text = str(error)
        said = text if isinstance(error, UserError) else "".join(_ERROR.findall(text)[:1])
        if said:
            return UserError(said.split(_WHILE)[0])
        if type(error).__name__ == "FutureTimeoutError":  # of grpc
            return UserError("Beam's job server does not answer; start it, and check --beam.")
        if text.startswith("Unable to fetch"):  # the runner's jar or binary
            return UserError(f"Beam's runner: {text.split('. ')[0]}; fetch it, and name its path.")
        error = error.__cause__ or error.__context__
    return None


def outputs(beam, rows, name: str, function: Callable, *args, to: Iterable[str]) -> Any:
    """Applies `function(row, *args)`, which yields (output, value), and returns the outputs `to`.

    The functions so need no Beam.
    """
    return rows | name >> beam.FlatMap(_tagged, function, *args).with_outputs(*to)


def _tagged(row: Any, function: Callable, *args) -> Iterator[Any]:
    from apache_beam.pvalue import TaggedOutput

    for name, value in function(row, *args):
        yield TaggedOutput(name, value)


def counted(counts: dict[Any, int]) -> Iterator[tuple[str, tuple[Any, int]]]:
    """Tags the counts that a function yields, to be summed."""
    return ((COUNTS, pair) for pair in counts.items())


def write_counts(beam, counts: Iterable, name: str, path: Path) -> None:
    """Adds up the (name, number) pairs of some collections and writes {name: sum}."""
    _ = (
        counts
        | f"{name}: flatten" >> beam.Flatten()
        | f"{name}: sum" >> beam.CombinePerKey(sum)
        | f"{name}: together" >> beam.combiners.ToDict()
        | f"{name}: write" >> beam.Map(_write_counts, os.fspath(path))
    )


def _write_counts(counts: dict[str, int], path: str) -> None:
    write_json(path, dict(sorted(counts.items())))


def write_lines(beam, pipeline, lines, name: str, paths: dict[int, Path]) -> None:
    """Writes the pairs (number, line) to the files of their numbers, sorted; some may be empty."""
    files = pipeline | f"{name}: files" >> beam.Create(
        [(number, os.fspath(path)) for number, path in paths.items()]
    )
    _ = (
        {"files": files, "lines": lines}
        | f"{name}: by file" >> beam.CoGroupByKey()
        | f"{name}: write" >> beam.Map(_write_lines)
    )


def _write_lines(group: tuple[int, dict[str, Iterable[str]]]) -> None:
    (path,) = group[1]["files"]
    with atomic_write(path) as f:
        f.writelines(f"{line}\n" for line in sorted(group[1]["lines"]))
