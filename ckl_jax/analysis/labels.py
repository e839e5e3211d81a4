"""Names and colours of methods, metrics and fact states, the same in every table and figure."""

# Label, colour and marker of each method. Colours are Okabe and Ito's palette: distinct under every
# common colour blindness. Figures vary marker and line style as well.
_LOOKS = {
    "initial": ("Initial", "#7f7f7f", "*"),
    "vanilla": ("Vanilla", "#000000", "o"),
    "recadam": ("RecAdam", "#E69F00", "s"),
    "mix_review": ("Mix-Review", "#56B4E9", "D"),
    "lora": ("LoRA", "#009E73", "^"),
    "k_adapter_k2": ("K-Adapter (k=2)", "#0072B2", "v"),
    "k_adapter_k3": ("K-Adapter (k=3)", "#CC79A7", "<"),
    "modular": ("Modular", "#D55E00", "P"),
}
COLORS = {method: color for method, (_, color, _) in _LOOKS.items()}
MARKERS = {method: marker for method, (_, _, marker) in _LOOKS.items()}
METHODS = {method: label for method, (label, _, _) in _LOOKS.items()} | {
    "replay": "Replay",
    "lora_mix_review": "LoRA + Mix-Review",
    "ewc": "EWC",
    "lwf": "LwF",
    "ema": "EMA",
}
METRICS = {"accuracy": "acc.", "em": "EM", "em_old": "old answer", "f1": "F1", "rouge_l": "R-L"}
STATE_COLORS = {
    "kept": "#0072B2",
    "updated": "#009E73",
    "learned": "#56B4E9",
    "stale": "#F0E442",
    "forgotten": "#D55E00",
    "never known": "#D9D9D9",
}
_SPARE = ("#8c564b", "#bcbd22", "#17becf", "#9467bd", "#e377c2")
_SPARE_MARKERS = ("X", "p", ">", "h", "d", "8")  # not as many: colour and marker repeat after 30


def method_key(name: str) -> str:
    """A run's name without a leading "ckl_": the key of its label and colour."""
    return name.removeprefix("ckl_")


def order(key: str) -> int:
    """The place of a method in tables: CKL's order, then all that it does not have."""
    return [*METHODS, key].index(key)


def method_label(key: str) -> str:
    """Such as "LoRA", and "LoRA 1e-4" of a run lora-1e-4, at a learning rate."""
    method, _, rate = key.partition("-")
    if method in METHODS and rate[:1].isdigit():
        return f"{METHODS[method]} {rate}"
    return METHODS.get(key, key)


def run_label(name: str) -> str:
    """The label of a run's method, by its folder's name."""
    return method_label(method_key(name))


def color(key: str, position: int = 0) -> str:
    return COLORS.get(key) or _SPARE[position % len(_SPARE)]


def marker(key: str, position: int = 0) -> str:
    return MARKERS.get(key) or _SPARE_MARKERS[position % len(_SPARE_MARKERS)]


def count(number: int, noun: str) -> str:
    """Such as "1 fact" or "2 facts"."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")
