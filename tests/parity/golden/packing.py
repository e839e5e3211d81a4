"""Many small arrays in few entries: a float16 vector and a JSON list of (name, shape)."""

import json

import numpy as np


def pack(arrays):
    """{name: array} -> {"values", "index"}; the values must be float16 numbers."""
    index = [(name, list(np.shape(a))) for name, a in arrays.items()]
    values = np.concatenate([np.ravel(a) for a in arrays.values()])
    assert (values.astype(np.float16) == values).all()
    return {"values": values.astype(np.float16), "index": np.array(json.dumps(index))}


def unpack(stored):
    """The inverse: {name: float32 array}."""
    values, out, start = stored["values"].astype(np.float32), {}, 0
    for name, shape in json.loads(str(stored["index"])):
        end = start + int(np.prod(shape))
        out[name] = values[start:end].reshape(shape)
        start = end
    return out
