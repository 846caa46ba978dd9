"""Reads the files of the test Hdf5Interop with h5py, then writes some for it to read.

usage: hdf5_oracle.py FOLDER
Exit status 77: h5py is not there.
"""

import shutil
import sys
from pathlib import Path

try:
    import h5py
    import numpy
except ImportError as error:
    print(error)
    sys.exit(77)


def check_values(path):
    with h5py.File(path, "r") as file:
        assert file.attrs["step"] == 12
        norm = file["params/model.norm.weight"]
        assert norm.dtype == "<f4" and norm.shape == (3,), norm
        assert norm.chunks is None and norm.compression is None and norm.external is None
        numpy.testing.assert_array_equal(norm[()], numpy.float32([1.5, -0.0, 2.0**127]))
        assert norm.id.get_offset() % 4096 == 0
        assert norm.attrs["layer"] == 4
        assert norm.attrs["note"].decode() == "h\u00e4\u00df"
        assert norm.attrs["dtype"].decode() == "F32"
        scalar = file["optim/exp_avg/b"]
        assert scalar.shape == () and scalar[()] == -123456789012
        assert file["none"].shape == (0, 7) and file["none"].dtype == "<f2"


def check_bf16(folder):
    bits = numpy.uint16([[0x3F80, 0xC020], [0x714A, 0x0001]])
    with h5py.File(folder / "u.h5", "r") as file:
        numpy.testing.assert_array_equal(file["params/b"][()], bits)
        assert file["params/b"].attrs["dtype"].decode() == "BF16"
    with h5py.File(folder / "f.h5", "r") as file:
        data = file["params/b"]
        raw = numpy.zeros((2, 2), "u2")
        # The stored type on both sides: bytes as they are.
        data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=data.id.get_type())
        numpy.testing.assert_array_equal(raw, bits)
        kind = data.id.get_type()
        assert kind.get_size() == 2 and kind.get_fields() == (15, 7, 8, 0, 7)
        assert kind.get_ebias() == 127


def write_files(folder):
    with h5py.File(folder / "h5py.h5", "w") as file:
        half = file.create_dataset("params/half", data=numpy.float16([1, -2, numpy.inf]))
        half.attrs["name"] = "h\u00e4lf"
        half.attrs["count"] = 3
        half.attrs["scale"] = 0.25
        half.attrs["list"] = [1, 2]
        file.create_dataset("chunked", data=numpy.zeros(100), chunks=(10,), compression="gzip")
        file.create_dataset("boolean", data=numpy.array([True, False]))
        file.create_dataset("text", data="words")
    shutil.copy(folder / "f.h5", folder / "edited.h5")
    with h5py.File(folder / "edited.h5", "r+") as file:
        file["params/model.norm.weight"][1] = 42


def main():
    folder = Path(sys.argv[1])
    check_values(folder / "f.h5")
    check_values(folder / "u.h5")
    check_bf16(folder)
    with h5py.File(folder / "view.h5", "r") as view:
        assert view["params/model.norm.weight"][0] == 1.5
        assert view["optim/exp_avg/b"][()] == -123456789012
    write_files(folder)


main()
