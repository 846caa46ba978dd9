"""Opens an exported folder with Hugging Face's own libraries and compares.

usage: hf_oracle.py FOLDER EXPECTED [FOLDER EXPECTED]...
EXPECTED is JSON: {"architecture", "config": {attribute: value}, "sums": {tensor: sum of values}}.
Exit status 77: the libraries are not there. torch is optional: with it, the model is loaded too.
"""

import json
import struct
import sys
from pathlib import Path

try:
    import numpy
    from safetensors.numpy import load_file
    from transformers import AutoConfig, AutoTokenizer
except ImportError as error:
    print(error)
    sys.exit(77)


def check_weights(folder, sums):
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    tensors = {}
    for name in files:
        path = folder / name
        (length,) = struct.unpack("<Q", path.open("rb").read(8))
        assert (8 + length) % 4096 == 0, f"{name}: data begins at {8 + length}"
        tensors.update(load_file(path))
    assert tensors.keys() == sums.keys(), tensors.keys() ^ sums.keys()
    for name, tensor in tensors.items():
        total = float(tensor.astype(numpy.float64).sum())
        assert abs(total - sums[name]) <= 1e-9 * max(1.0, abs(total)), (name, total, sums[name])


def check_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == 258, len(tokenizer)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (256, 257)
    for text in ["Hello,  world!\n", "\u00e9\u20ac\U0001f600", "\x00\x7f\t ", "it's <x> 123"]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == list(text.encode()), (text, ids)
        assert tokenizer.decode(ids) == text, text


def check_model(folder, architecture):
    try:
        from transformers import AutoModelForCausalLM
        import torch
    except ImportError:
        return
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == architecture, type(model)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], (key, report[key])
    with torch.no_grad():
        assert torch.isfinite(model(torch.arange(8)[None]).logits).all()


def check_folder(folder, expected):
    config = AutoConfig.from_pretrained(folder)
    for key, value in expected["config"].items():
        assert getattr(config, key) == value, (key, getattr(config, key), value)
    check_weights(folder, expected["sums"])
    check_tokenizer(folder)
    check_model(folder, expected["architecture"])


def main():
    for folder, expected in zip(sys.argv[1::2], sys.argv[2::2]):
        print(folder)
        check_folder(Path(folder), json.loads(Path(expected).read_text()))


main()
