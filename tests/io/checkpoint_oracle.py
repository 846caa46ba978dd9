"""Reads a checkpoint with h5py as anyone would, and edits it.

usage: checkpoint_oracle.py read CHECKPOINT SAFETENSORS...   every dataset against the tensors of these
                                                              files, bit by bit, shards and view alike
       checkpoint_oracle.py edit CHECKPOINT                   one value in place, one dataset anew
Exit status 77: h5py is not there.
"""

import json
import sys
from pathlib import Path

try:
    import h5py
    import numpy
except ImportError as error:
    print(error)
    sys.exit(77)

NORM = "params/model.norm.weight"
TABLE = "params/model.embed_tokens.weight"


def tensors_of(path):
    """Name to (dtype, array of the stored bits) of a safetensors file."""
    content = Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        width = {"F32": "<u4", "BF16": "<u2"}[entry["dtype"]]
        bits = numpy.frombuffer(content[begin:end], width).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], bits)
    return tensors


def datasets_of(path):
    with h5py.File(path, "r") as file:

        def walk(group):
            for name, item in group.items():  # follows the view's links
                if isinstance(item, h5py.Group):
                    yield from walk(item)
                elif isinstance(item, h5py.Dataset):
                    yield item

        for dataset in walk(file):
            yield dataset.name, dataset


def check(dataset, expected):
    kind, bits = expected
    assert dataset.attrs["dtype"].decode() == kind, dataset
    assert dataset.chunks is None and dataset.compression is None and dataset.shape == bits.shape
    values = dataset[()]
    if dataset.dtype.kind == "u":  # the bit patterns
        assert numpy.array_equal(values, bits), dataset
    elif kind == "F32":
        assert dataset.dtype == numpy.dtype("<f4"), dataset.dtype
        assert numpy.array_equal(values.view("<u4"), bits), dataset
    else:  # bf16 as a float type: the library widens it
        widened = (bits.astype("<u4") << 16).view("<f4")
        assert numpy.array_equal(values.astype("<f4"), widened), dataset


def read(checkpoint, files):
    expected = {}
    for file in files:
        for name, tensor in tensors_of(file).items():
            expected[name if name.startswith("/") else "/params/" + name] = tensor
    shards = sorted(Path(checkpoint).glob("shard_*.h5"))
    assert shards
    for sources in (shards, [Path(checkpoint) / "all.h5"]):
        seen = set()
        for source in sources:
            for name, dataset in datasets_of(source):
                check(dataset, expected[name])
                seen.add(name)
        assert seen == set(expected), seen ^ set(expected)


def edit(checkpoint):
    for shard in sorted(Path(checkpoint).glob("shard_*.h5")):
        with h5py.File(shard, "r+") as file:
            if NORM in file:
                file[NORM][3] = 42.0
            if TABLE in file:
                values = file[TABLE][()]
                del file[TABLE]
                file[TABLE] = values * numpy.float32(2)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2], sys.argv[3:])
    else:
        edit(sys.argv[2])
