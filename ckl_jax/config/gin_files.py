"""Searches for gin files: in the user's folders, then among the bundled ones. Imports no gin."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import ckl_jax
from ckl_jax.errors import UserError, nearest_name

BUNDLED = (Path(ckl_jax.__file__).parent / "gin_configs").resolve()
# Of T5X's own files those for which there is nothing here.
_OF_T5X_ALONE = (
    "t5x/configs/runs/export",
    "t5x/configs/runs/infer_from_tfexample_file.gin",
    "t5x/examples/decoder_only/",
    "t5x/examples/scalable_t5/",
)


def bundled_files(root: Path | None = None) -> list[str]:
    """Returns the bundled gin files, relative to their folder, sorted."""
    root = root or BUNDLED
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.gin"))


def bundled_methods() -> list[str]:
    """Returns the names of methods, those of `methods/NAME.gin`, sorted."""
    names = (path.stem for path in (BUNDLED / "methods").glob("*.gin"))
    # What a decoder's job binds otherwise, and that of a model without a base.
    return sorted(name for name in names if not name.startswith(("gpt2_", "initial")))


def search_folders(search_paths: Iterable[str], gin_files: Iterable[str] = ()) -> list[Path]:
    """Returns where names of gin files are looked up, in order.

    The user's `search_paths`, the working folder, the folders of the given files, the bundled.
    """
    folders = [Path(path).expanduser() for path in search_paths]
    folders.append(Path.cwd())
    folders += [Path(name).expanduser().absolute().parent for name in gin_files if "/" in name]
    folders.append(BUNDLED)
    return list(dict.fromkeys(folders))


def find_include(name: str, folders: Sequence[Path]) -> Path | None:
    """Returns the file that `include 'name'` refers to, or None."""
    for folder in folders:
        path = folder / os.path.expanduser(name)
        if os.path.lexists(path) and not path.is_dir():
            return path
    return None


def find(name: str, folders: Sequence[Path]) -> Path:
    """Returns the file that `--gin_file=name` refers to.

    A bare name that is in none of the folders may lie anywhere below the bundled folder.

    Raises:
      UserError: no such file, or several bundled ones of that name.
    """
    path = find_include(name, folders)
    if path is not None:
        return path
    bundled = bundled_files()
    deeper = [file for file in bundled if file.rsplit("/", 1)[-1] == name]
    if len(deeper) == 1:
        return BUNDLED / deeper[0]
    if deeper:
        raise UserError(f"--gin_file={name} could be any of {', '.join(deeper)}; give one of them.")
    raise UserError(unknown_file(name, folders))


def unknown_file(name: str, folders: Sequence[Path]) -> str:
    """The error for a gin file that was not found: the folders searched and the nearest name."""
    if Path(name).is_dir():
        return f"--gin_file={name} is a folder; give a file."
    if Path(name).is_absolute():
        return f"There is no gin file {name}."
    if name.startswith(_OF_T5X_ALONE):
        return (
            f"T5X's {name} is not offered by the native runner (docs/t5x.md); use "
            "--runner=upstream."
        )
    # Without the suffix, in which all names are alike.
    by_path = {file.removesuffix(".gin"): file for file in bundled_files()}
    by_name = {stem.rsplit("/", 1)[-1]: file for stem, file in by_path.items()}
    stem = name.removesuffix(".gin")
    similar = by_path.get(nearest_name(stem, by_path)) or by_name.get(nearest_name(stem, by_name))
    hint = similar and f" Did you mean {similar!r}?"
    searched = ", ".join(map(str, folders))
    return f"There is no gin file {name!r} in {searched}.{hint or ' `t5x --help` lists the files.'}"
