"""Reports errors of SeqIO tasks in one sentence: task, user's function, file, error."""

import contextlib
import re
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from ckl_jax.config import user_tracebacks
from ckl_jax.errors import UserError

_NODE = re.compile(r"\{\{node (\w+)")


@contextlib.contextmanager
def explained(where: str, task: Any = None) -> Iterator[None]:
    """Turns exceptions from SeqIO, TensorFlow and the functions of a task into `UserError`.

    An error of this package's own code, or of a device, goes on as it is.

    Args:
      where: the start of the sentence, such as "Task 'x', split 'train'".
      task: of SeqIO, or a mixture: in whose preprocessors a failed function is looked for.
    """
    try:
        yield
    except (UserError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as e:
        # The chain of causes; the last one is where it began.
        *_, first = user_tracebacks.chain(e)
        if isinstance(first, UserError):  # raised below SeqIO, which wraps what it meets
            raise first from e
        # A bug here should be seen with its traceback, not be reported as the user's.
        if user_tracebacks.raised_in_package(e):
            raise
        raise UserError(sentence(where, e, task)) from e


def sentence(where: str, error: Exception, task: Any = None) -> str:
    """Task, user's function, original error, and what to do where that is known."""
    text = user_tracebacks.described(error)
    if "does not exist in any of the task cache directories" in text:
        text = text.partition(": ")[2]
        return (
            f"{where}: {text}; set USE_CACHED_TASKS = False (--gin.USE_CACHED_TASKS=False) to make "
            "its examples as they are read, or --seqio_additional_cache_dirs to where its cache is."
        )
    if match := re.search(r"type for feature '(\w+)'.*Got string, expected int", text):
        return (
            f"{where}: its feature {match[1]!r} is text, not token ids; name it in the task's "
            "output_features and have seqio.preprocessors.tokenize among its preprocessors."
        )
    if any(frame.f_code.co_name == "mixing_rate_num_examples" for frame in _frames(error)):
        return (
            f"{where}: a mixing rate counts the examples of a task whose number is not known; give "
            "num_input_examples to the source of each task of the mixture, or numbers as rates."
        )
    if wrong := _metric_without_names(error):
        return f"{where}: {wrong}; a metric function returns a dict of numbers by name."
    place = user_tracebacks.place(error) or _place_in_graph(error, task)
    at = f", in {place}" if place else ""
    return f"{where}: {text}{at}; {user_tracebacks.TRACEBACK_VARIABLE}=1 shows the traceback."


def load_vocabulary(vocabulary: Any, where: str) -> None:
    """Raises `UserError` if a vocabulary's file cannot be read."""
    try:
        getattr(vocabulary, "vocab_size", None)  # reads the file
    except UserError:
        raise
    except Exception as e:
        raise UserError(
            f"{where} cannot be read: {user_tracebacks.described(e)}; give the path of a "
            "SentencePiece model that is there."
        ) from e


def _place_in_graph(error: BaseException, task: Any) -> str | None:
    """The preprocessor of a task in which TensorFlow's graph failed; a graph has no line numbers.

    It names the node that failed, most often after the function that made it: "assert_less/Assert".
    """
    text = " ".join(map(str, user_tracebacks.chain(error)))
    if task is None or "user-defined function" not in text:
        return None
    steps = [step for part in getattr(task, "tasks", [task]) for step in part.preprocessors]
    node = _NODE.search(text)
    if node and (place := user_tracebacks.use(node[1], steps)):
        return place
    # The node's name says nothing: then all of the user's functions are candidates.
    own = user_tracebacks.definitions(steps)
    return " or ".join(own) if own else None


def _metric_without_names(error: BaseException) -> str | None:
    """Describes the value of a metric function on which SeqIO's evaluator failed."""
    for frame in _frames(error):
        # SeqIO calls the functions in this frame, whose variables hold what they returned.
        if frame.f_code.co_name == "_compute_clu_metrics":
            names = ", ".join(map(_name, frame.f_locals["task"].metric_fns))
            for result in frame.f_locals.get("task_metrics", ()):
                if not isinstance(result, Mapping):
                    return f"a metric function ({names}) returned a {type(result).__name__}"
    return None


def _name(function: Any) -> str:
    return getattr(function, "__name__", str(function))


def _frames(error: BaseException) -> Iterator[types.FrameType]:
    for each in user_tracebacks.chain(error):
        for frame, _ in traceback.walk_tb(each.__traceback__):
            yield frame
