"""JSON values of which one part is gone, or is another."""

import copy
from collections.abc import Iterator
from typing import Any

OTHERS = (None, True, 7, -1.5, "", "x", [], ["x"], {}, {"x": []})


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of the values inside a value of JSON, of each container the first 50."""
    if isinstance(value, dict | list):
        for key in list(value if isinstance(value, dict) else range(len(value)))[:50]:
            yield value, key
            yield from parts(value[key])


def mutated(value: Any) -> Iterator[Any]:
    for i in range(len(list(parts(value)))):
        for new in ("gone", *OTHERS):
            changed = copy.deepcopy(value)
            part, key = list(parts(changed))[i]
            part.pop(key) if new == "gone" else part.__setitem__(key, new)
            yield changed
