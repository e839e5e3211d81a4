"""GPT-2 in `ckl experiment` (CKL, appendix G): updated on SMALL, light-tuned, then asked.

Each model is tuned on items of a kind before it is probed with that kind, `Running.tunings` times
with different seeds; scores are means over them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ckl_jax.papers.ckl.scenarios import INITIAL, OVERLAYS, Cell, Scenario, Tuning
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.train import subprocess_runs

GPT2_INITIAL = "gpt2_initial"  # the Initial model: a folder beside the cells
_IMPORTED = "gpt2"  # what `ckl import-hf` made, in the folder of the published files
_METHOD = "temporalwiki_{}.gin"


def trainings(scenario: Scenario, running: Running) -> list[subprocess_runs.Training]:
    """The Initial model's training, those of the cells, and the light-tunings of all."""
    initial = running.root / GPT2_INITIAL
    files = _initial_files(running)
    base = str(Path(running.data) / _IMPORTED) if running.is_full else None
    made = [_train(GPT2_INITIAL, initial, files, running, INITIAL_CHECKPOINT_PATH=base)]
    made += _tunings(GPT2_INITIAL, initial, files, scenario, running)
    cells = running.chosen(scenario)
    for cell in cells:
        name, files = f"{scenario.name} {cell.name}", _files(running, scenario, cell)
        # The first makes the cached tasks.
        after = (GPT2_INITIAL, *(f"{scenario.name} {c.name}" for c in cells[:1] if c != cell))
        folder = running.folder(scenario, cell)
        made.append(
            _train(name, folder, files, running, after, INITIAL_CHECKPOINT_PATH=str(initial))
        )
        made += _tunings(name, folder, files, scenario, running)
    return made


def tuned_folders(scenario: Scenario, running: Running) -> dict[str, dict[str, list[Path]]]:
    """{row: {probe: the light-tuned runs that were asked it, one of each seed}}."""
    models = {INITIAL: running.root / GPT2_INITIAL}
    models |= {c.name: running.folder(scenario, c) for c in running.chosen(scenario)}
    seeds = range(running.tunings)
    return {
        row: {t.probe: [_tuned(folder, t, seed) for seed in seeds] for t in scenario.tunings}
        for row, folder in models.items()
    }


def _tuned(folder: Path, tuning: Tuning, seed: int) -> Path:
    return folder / "light_tuned" / f"{tuning.name}_{seed}"


def _initial_files(running: Running) -> list[str]:
    if not running.is_full:
        return [_METHOD.format("initial"), *_size(running)]
    return [_METHOD.format("vanilla"), OVERLAYS.format("gpt2_initial"), *_size(running)]


def _files(running: Running, scenario: Scenario, cell: Cell) -> list[str]:
    return [_METHOD.format(cell.method), scenario.overlay, *_size(running)]


def _size(running: Running) -> list[str]:
    if running.is_full:
        model = Path(running.data) / _IMPORTED / "model.gin"
        return [OVERLAYS.format("gpt2_full"), str(model)]
    tiny = ["temporalwiki_tiny.gin"] if running.size == "tiny" else []
    return [*tiny, *([OVERLAYS.format("gpt2_wikidata")] if running.source == "wikidata" else [])]


def _train(
    name: str,
    folder: Path,
    files: list[str],
    running: Running,
    after: tuple[str, ...] = (),
    **macros: Any,
) -> subprocess_runs.Training:
    macros = running.macros(folder) | macros
    command = subprocess_runs.t5x("train", files, macros, running.of(tuned=False))
    return subprocess_runs.Training(name, folder, command, after)


def _tunings(
    name: str, folder: Path, files: list[str], scenario: Scenario, running: Running
) -> Iterator[subprocess_runs.Training]:
    world = [] if running.is_full else [OVERLAYS.format("gpt2_world")]
    for tuning in scenario.tunings:
        for seed in range(running.tunings):
            target = _tuned(folder, tuning, seed)
            macros = running.macros(folder) | {
                "RANDOM_SEED": seed,
                "LIGHT_TUNE_NAME": target.name,
                "PROBE_DIR": str(running.probe_dir),
                "INITIAL_CHECKPOINT_PATH": str(folder),
            }
            overlays, bindings = [tuning.overlay, *world], running.of_tunings
            command = subprocess_runs.t5x("train", [*files, *overlays], macros, bindings)
            yield subprocess_runs.Training(
                f"{name} {target.name}",
                target,
                command,
                (name,),
                keeps_model=running.keep_light_tuned,
            )
