"""Names and colours of methods, metrics and fact states, the same in every table and figure."""

METHODS = {
    "initial": "Initial",
    "vanilla": "Vanilla",
    "recadam": "RecAdam",
    "mix_review": "Mix-Review",
    "lora": "LoRA",
    "k_adapter_k2": "K-Adapter (k=2)",
    "k_adapter_k3": "K-Adapter (k=3)",
    "modular": "Modular",
    "replay": "Replay",
    "lora_mix_review": "LoRA + Mix-Review",
    "ewc": "EWC",
    "lwf": "LwF",
    "ema": "EMA",
}
METRICS = {"accuracy": "acc.", "em": "EM", "em_old": "old answer", "f1": "F1", "rouge_l": "R-L"}
# Okabe and Ito's palette: distinct under every common colour blindness. Figures vary marker and
# line style as well.
COLORS = {
    "initial": "#7f7f7f",
    "vanilla": "#000000",
    "recadam": "#E69F00",
    "mix_review": "#56B4E9",
    "lora": "#009E73",
    "k_adapter_k2": "#0072B2",
    "k_adapter_k3": "#CC79A7",
    "modular": "#D55E00",
}
MARKERS = {
    "initial": "*",
    "vanilla": "o",
    "recadam": "s",
    "mix_review": "D",
    "lora": "^",
    "k_adapter_k2": "v",
    "k_adapter_k3": "<",
    "modular": "P",
}
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


def method_label(key: str) -> str:
    return METHODS.get(key, key)


def color(key: str, position: int = 0) -> str:
    return COLORS.get(key) or _SPARE[position % len(_SPARE)]


def marker(key: str, position: int = 0) -> str:
    return MARKERS.get(key) or _SPARE_MARKERS[position % len(_SPARE_MARKERS)]


def count(number: int, noun: str) -> str:
    """Such as "1 fact" or "2 facts"."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")
