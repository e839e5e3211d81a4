"""What a SeqIO task raises, as one sentence: the task, the user's function and file, the error."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from ckl_jax.errors import UserError
from ckl_jax.jobs import user_code


@contextlib.contextmanager
def explained(where: str) -> Iterator[None]:
    """Turns errors out of SeqIO, TensorFlow and the functions of a task into `UserError`.

    An error of this package's own code, or of a device, goes on as it is.

    Args:
      where: the start of the sentence, such as "Task 'x', split 'train'".
    """
    try:
        yield
    except (UserError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as e:
        if user_code.raised_in_package(e):
            raise
        raise UserError(sentence(where, e)) from e


def sentence(where: str, error: Exception) -> str:
    """Task, user's function, original error, and what to do where that is known."""
    text = user_code.described(error)
    if "does not exist in any of the task cache directories" in text:
        text = text.partition(": ")[2]
        return (
            f"{where}: {text}; set USE_CACHED_TASKS = False (--gin.USE_CACHED_TASKS=False) to make "
            "its examples as they are read, or --seqio_additional_cache_dirs to where its cache is."
        )
    if any(name == "mixing_rate_num_examples" for name in _functions(error)):
        return (
            f"{where}: a mixing rate counts the examples of a task whose number is not known; give "
            "num_input_examples to the source of each task of the mixture, or numbers as rates."
        )
    place = user_code.place(error)
    at = f", in {place}" if place else ""
    return f"{where}: {text}{at}; {user_code.TRACEBACK_VARIABLE}=1 shows the traceback."


def load_vocabulary(vocabulary: Any, where: str) -> None:
    """Raises `UserError` if a vocabulary's file cannot be read."""
    try:
        getattr(vocabulary, "vocab_size", None)  # reads the file
    except UserError:
        raise
    except Exception as e:
        raise UserError(
            f"{where} cannot be read: {user_code.described(e)}; give the path of a SentencePiece "
            "model that is there."
        ) from e


def _functions(error: BaseException) -> Iterator[str]:
    for each in user_code.chain(error):
        trace = each.__traceback__
        while trace is not None:
            yield trace.tb_frame.f_code.co_name
            trace = trace.tb_next
