"""Types of settings that are options of the `ckl` command, each with how it is written there."""

from typing import Annotated, TypeVar

from tyro.conf import UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from ckl_jax.errors import UserError


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names, each once, without the blanks around them."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def named_folders(given: tuple[str, ...], flag: str = "--model") -> dict[str, str]:
    """{name: folder} of NAME=FOLDER.

    Raises:
      UserError: an entry has no name or no folder, or two have the same name.
    """
    folders: dict[str, str] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not (equals and name and folder) or name in folders:
            raise UserError(f"{flag} {text!r}: give each as NAME=FOLDER, with a name of its own.")
        folders[name] = folder
    return folders


def _some_names(text: str) -> tuple[str, ...]:
    if values := names(text):
        return values
    raise ValueError(f"{text!r} and names none; give some names, or leave it out")


def _numbers(text: str, kind: type) -> tuple:
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r}; give numbers with commas between") from None


def _years(text: str) -> tuple[int, ...]:
    """Years with commas between, of which A..B stands for all from A to B."""
    years = []
    for part in names(text):
        first, _, last = part.partition("..")
        if not (first.isdigit() and (last or first).isdigit() and int(first) <= int(last or first)):
            raise ValueError(f"{text!r}; give years, such as 2012..2019 or 2012,2015")
        years += range(int(first), int(last or first) + 1)
    return tuple(sorted(set(years)))


def _with_commas(read, metavar: str) -> PrimitiveConstructorSpec:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(map(str, value))],
    )


Names = Annotated[tuple[str, ...], _with_commas(names, "A,B")]
SomeNames = Annotated[tuple[str, ...], _with_commas(_some_names, "A,B")]
Floats = Annotated[tuple[float, ...], _with_commas(lambda text: _numbers(text, float), "X,Y")]
Ints = Annotated[tuple[int, ...], _with_commas(lambda text: _numbers(text, int), "M,N")]
Years = Annotated[tuple[int, ...], _with_commas(_years, "A..B")]
Files = Annotated[tuple[str, ...], arg(metavar="FILE...")]
Facts = Annotated[str | None, arg(aliases=("--probes",))]
# Given once for each entry: --documents A --documents B.
Repeated = UseAppendAction[tuple[str, ...]]
Bindings = Annotated[
    tuple[str, ...],
    UseAppendAction,
    arg(
        name="gin",
        metavar="NAME=VALUE",
        help="Gin binding for all runs, which --gin.NAME=VALUE gives too.",
    ),
]
Models = Annotated[tuple[str, ...], UseAppendAction, arg(name="model", metavar="NAME=FOLDER")]
_T = TypeVar("_T")
Flat = Annotated[_T, arg(name="")]  # of a settings dataclass: its fields are options of their own
