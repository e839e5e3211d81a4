"""GPT-2 in `ckl experiment` (CKL, appendix G): updated on SMALL, light-tuned, then probed.

Each model is tuned on items of a kind before it is probed with that kind, `Running.tunings` times
with different seeds; scores are means over them.
"""

from collections.abc import Iterator
from pathlib import Path

from ckl_jax.papers.ckl.scenarios import INITIAL, OVERLAYS, Scenario, Tuning
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.train.subprocess_runs import Training

GPT2_INITIAL = "gpt2_initial"  # the Initial model: a folder beside the cells
IMPORTED = "gpt2"  # what `ckl import-hf` made, in the folder of the published files
_METHOD = "temporalwiki_{}.gin"


def trainings(scenario: Scenario, running: Running) -> list[Training]:
    """The Initial model's training, those of the cells, and the light-tunings of all."""
    initial, size = running.root / GPT2_INITIAL, _size(running)
    files, base = [_METHOD.format("initial"), *size], None
    if running.is_full:
        # The paper warm-starts the public GPT-2 on Wikipedia: an update of an imported model.
        files = [_METHOD.format("vanilla"), OVERLAYS.format("gpt2_initial"), *size]
        base = _imported(running)
    made = [*_train(GPT2_INITIAL, initial, files, base, scenario, running)]
    cells = running.chosen(scenario)
    for cell in cells:
        # The first makes the cached tasks.
        after = (GPT2_INITIAL, *(f"{scenario.name} {c.name}" for c in cells[:1] if c != cell))
        name, folder = f"{scenario.name} {cell.name}", running.folder(scenario, cell)
        files = [_METHOD.format(cell.method), scenario.overlay, *size]
        made += _train(name, folder, files, initial, scenario, running, after)
    return made


def _imported(running: Running) -> Path:
    """The folder of the model that the Initial one is trained from."""
    return Path(running.model or Path(running.data) / IMPORTED)


def tuned_folders(scenario: Scenario, running: Running) -> dict[str, dict[str, list[Path]]]:
    """{row: {probe: its light-tuned runs, one per seed}}."""
    models = {INITIAL: running.root / GPT2_INITIAL}
    models |= {c.name: running.folder(scenario, c) for c in running.chosen(scenario)}
    seeds = range(running.tunings)
    return {
        row: {t.probe: [_tuned(folder, t, seed) for seed in seeds] for t in scenario.tunings}
        for row, folder in models.items()
    }


def _tuned(folder: Path, tuning: Tuning, seed: int) -> Path:
    # Below the model that it was tuned from, so that removing a cell removes its tunings.
    return folder / "light_tuned" / f"{tuning.name}_{seed}"


def _size(running: Running) -> list[str]:
    if running.is_full:
        return [OVERLAYS.format("gpt2_full"), str(_imported(running) / "model.gin")]
    size = [] if running.size == "small" else [f"temporalwiki_{running.size}.gin"]
    return [*size, *([OVERLAYS.format("gpt2_real_facts")] if running.source != "simulated" else [])]


def _train(
    name: str,
    folder: Path,
    files: list[str],
    base: Path | None,
    scenario: Scenario,
    running: Running,
    after: tuple[str, ...] = (),
) -> Iterator[Training]:
    """A training, and the light-tunings of its model."""
    macros = running.macros | {"INITIAL_CHECKPOINT_PATH": base}
    if running.model is not None:  # whose vocabulary cuts the texts
        macros["ROWS_DIR"] = running.prepared / "originals"
    if folder != running.root / GPT2_INITIAL:
        macros |= running.reviewed("D0_TEXT")
    # The update itself, then a light-tuning for each kind of item and seed.
    yield Training.of(name, folder, files, macros, running.of(tuned=False), after=after)
    world = [] if running.is_full else [OVERLAYS.format("gpt2_world")]
    for tuning in scenario.tunings:
        for seed in range(running.tunings):
            target = _tuned(folder, tuning, seed)
            macros = running.macros | {
                "MODEL_DIR": folder,
                "RANDOM_SEED": seed,
                "LIGHT_TUNE_NAME": target.name,
                "PROBE_DIR": running.probe_dir,
                "INITIAL_CHECKPOINT_PATH": folder,
            }
            own, kept = [*files, tuning.overlay, *world], running.keep_light_tuned
            bindings, title = running.of_tunings, f"{name} {target.name}"
            yield Training.of(title, target, own, macros, bindings, after=(name,), keeps_model=kept)
