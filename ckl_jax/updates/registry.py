"""The folder of all updates of a model: one folder per update, and a pointer to the current one.

DIR/registry.json         the model that all began with
DIR/current               the name of the update that is in use; moved by a passing gate alone
DIR/updates/0001/         one update; verdict.json ends it, and shipping exists until all is done
DIR/updates/0001/model/   the model, in Hugging Face's format
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ckl_jax import files
from ckl_jax.errors import UserError
from ckl_jax.parallel.processes import LOCK
from ckl_jax.updates.records import read

_NAME = re.compile(r"\d{4}")
_FORMAT = 1
_SHIPPING = "shipping"
# What no later update needs; the texts are replayed, the items evaluated again.
_REMOVABLE = ("import", "rows", "train")


class Registry:
    """A folder of updates."""

    def __init__(self, root: str | Path, begins_with: str | None = None):
        self.root, self._begins_with = Path(root), begins_with
        self._was_there = self.root.is_dir()

    @classmethod
    def open(cls, root: str | Path, model: str | None) -> "Registry":
        """Opens a registry, or a new one, which `create` writes.

        Args:
          model: the first update's base; None if there are updates already.

        Raises:
          UserError: the folder is of something else, or it is new and no model is given, or it
            began with another model.
        """
        registry = cls(root)
        path = registry.root / "registry.json"
        if path.exists():
            if read(registry.root, path.name)["format"] > _FORMAT:
                raise UserError(
                    f"{path} is of a newer version of ckl_jax; install that version to open it."
                )
            began = registry.model
            if model is None or model == began:
                return registry
            # Until an update has read its documents, nothing has come of the model.
            if any((folder / "sentences.npy").exists() for folder in registry._folders()):
                moved = f" If it was moved, {_moved(path)}." if _is_gone(began) else ""
                raise UserError(
                    f"{root} holds updates of {began}, not of {model}: leave --model out, or give "
                    f"another --out.{moved}"
                )
        elif registry._folders():
            raise UserError(
                f"There is no {path}, which names the model that the updates in {root} began with; "
                f'restore it, or write {{"format": {_FORMAT}, "model": "FOLDER OR NAME"}} into it.'
            )
        elif model is None:
            raise UserError(f"{root} holds no updates yet; give the --model to begin with.")
        else:
            files.refuse_existing(registry.root, overwrite=None)
        return cls(root, begins_with=model)

    def create(self) -> None:
        """Writes a new registry; one that is there stays as it is."""
        if self._begins_with is not None:
            record = {"format": _FORMAT, "model": self._begins_with}
            files.write_json(self.root / "registry.json", record)

    def discard(self) -> None:
        """Removes a registry of which nothing has come: no update has read its documents."""
        folders = self._folders()
        if self.updates() or any((folder / "sentences.npy").exists() for folder in folders):
            return
        for folder in folders:
            shutil.rmtree(folder)
        for name in ("registry.json", LOCK):
            (self.root / name).unlink(missing_ok=True)
        made = [self.root / "updates", self.root]
        for folder in made[:1] if self._was_there else made:
            with contextlib.suppress(OSError):  # it holds files of others
                folder.rmdir()

    @property
    def model(self) -> str:
        """The model that all began with."""
        return self._begins_with or read(self.root, "registry.json")["model"]

    def updates(self) -> list[Path]:
        """The folders of the finished updates, in order."""
        return [p for p in self._folders() if (p / "verdict.json").exists()]

    def _folders(self) -> list[Path]:
        """The folders of updates, finished or not.

        Raises:
          UserError: one is a link, which may lead to files of others, or is not of an update.
        """
        root = self.root / "updates"
        folders = sorted(p for p in root.glob("*") if _NAME.fullmatch(p.name))
        for path in (root, *folders):
            if path.is_symlink():
                raise UserError(f"{path} is a link; put the folder that it leads to in its place.")
        for path in folders:
            # An update writes this file first.
            held = [path.name] if path.is_file() else os.listdir(path)
            if not (path / "update.json").is_file() and any(n[0] != "." for n in held):
                raise UserError(f"{path} is not of an update of {self.root}; move it elsewhere.")
        return folders

    def begin(self) -> Path:
        """The folder of the unfinished update, or of a new one."""
        folders = self._folders()
        if folders and (self.is_shipping(folders[-1]) or folders[-1] not in self.updates()):
            for path in folders[-1].iterdir():
                if path.is_symlink():
                    raise UserError(f"{path} is a link; remove it, or put what it leads to there.")
            return folders[-1]
        number = int(folders[-1].name) + 1 if folders else 1
        return self.root / "updates" / f"{number:04}"

    def finish(self, folder: Path, verdict: dict[str, Any]) -> None:
        """Ends an update with its verdict; `shipped` says that what follows from it is done."""
        files.write_file(folder / _SHIPPING, "")
        files.write_json(folder / "verdict.json", verdict)

    def is_shipping(self, folder: Path) -> bool:
        return (folder / _SHIPPING).exists() and (folder / "verdict.json").exists()

    def shipped(self, folder: Path) -> None:
        (folder / _SHIPPING).unlink(missing_ok=True)

    @property
    def current(self) -> str | None:
        """The update in use, None for the original; raises `UserError` for a damaged pointer."""
        path = self.root / "current"
        if not path.exists():
            return None
        with files.os_errors(path, "read"):
            name = path.read_bytes().decode("ascii", "replace").strip()
        known = [p.name for p in self.updates() if (p / "model").is_dir()]
        if name not in known:
            raise UserError(
                f"{path} names {name[:40]!r}, which is no finished update with a model (there are "
                f"{', '.join(known) or 'none'}); write one of these into it, or remove it to go "
                f"back to {self.model}."
            )
        return name

    def learned(self) -> list[Path]:
        """The finished updates that the current model has learned, in order: its line of bases."""
        folders, name = [], self.current
        while name is not None and (folder := self.root / "updates" / name) in self.updates():
            folders.append(folder)
            name = self._base(folder)
        return folders[::-1]

    def _base(self, folder: Path) -> str | None:
        """The update that one began with, an earlier one; None is the original model."""
        base = read(folder, "update.json")["base"]
        if base is not None and not base < folder.name:
            raise UserError(f"{folder / 'update.json'}: base is {base!r}, and no earlier update.")
        return base

    @property
    def current_model(self) -> str:
        name = self.current
        return str(self.root / "updates" / name / "model") if name else self._first_model()

    def _first_model(self) -> str:
        """The model that all began with; raises `UserError` where it is not there any more."""
        if _is_gone(self.model):
            raise UserError(
                f"{self.root}: there is no folder {self.model}, the model that all began with; "
                f"put it back, or {_moved(self.root / 'registry.json')}."
            )
        return self.model

    def point_to(self, name: str | None) -> None:
        path = self.root / "current"
        if name is None:
            path.unlink(missing_ok=True)
        else:
            files.write_file(path, f"{name}\n")

    def roll_back(self) -> str:
        """Makes the update before current again and returns its model; `UserError` if none."""
        name = self.current
        if name is None:
            raise UserError(f"{self.root}: no update is current, so there is none to take back.")
        before = self._base(self.root / "updates" / name)
        if before and not (self.root / "updates" / before / "model").is_dir():
            raise UserError(
                f"{self.root}: update {before}, from which the current one ({name}) began, has no "
                "model any more (--keep, or removed by hand), so that there is no going back to it."
            )
        if not before:
            self._first_model()
        self.point_to(before)
        self.shipped(self.root / "updates" / name)  # one that was stopped there does not go on
        return self.current_model

    def clean(self, keep: int) -> None:
        """Removes scratch files, and models except the last `keep` ones and what is in use.

        With a `keep` of 2 or more, what a rollback goes back to stays too. The adapter of one that
        stays is loaded over the model that its update began with, so this model stays as well.
        """
        finished = self.updates()
        in_use = {folder.name for folder in self.learned()[-min(keep, 2) :]} | {self.current}
        stay = [f for f in finished if f in finished[-keep:] or f.name in in_use]
        bases = {self._base(folder) for folder in stay if (folder / "adapter").is_dir()}
        for folder in finished:
            gone = () if folder in stay else ("adapter",)
            if folder not in stay and folder.name not in bases:
                gone += ("model",)
            for name in (*_REMOVABLE, *gone):
                shutil.rmtree(folder / name, ignore_errors=True)

    def history(self) -> list[dict[str, Any]]:
        """(name, record, verdict) of each finished update."""
        return [
            {"name": folder.name, **read(folder, "update.json"), **read(folder, "verdict.json")}
            for folder in self.updates()
        ]


def _is_gone(model: str) -> bool:
    return os.path.isabs(model) and not os.path.isdir(model)  # else a name of the hub


def _moved(path: Path) -> str:
    return f"write where it is now as 'model' into {path}"


def run_hook(command: str, model: Path) -> str:
    """Runs what follows a model that ships, with its folder as the last argument.

    Returns:
      Why it failed, or "".
    """
    try:
        code = subprocess.run([*shlex.split(command), str(model)], check=False).returncode
    except OSError as e:
        return f"cannot be run ({e.strerror})"
    if code:
        return f"ended with exit code {code}"
    print("--on-ship ended with exit code 0.", flush=True)
    return ""
