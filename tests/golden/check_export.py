#!/usr/bin/env python3
"""Opens exported golden folders with transformers and asks for the golden logits.

usage: check_export.py GOLDEN EXPORTED [GOLDEN EXPORTED]...
GOLDEN is a case of make_goldens.py, EXPORTED what became of it in fp32.
Exit status 77: torch or transformers is not there.
"""

import pathlib
import sys

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(error)
    sys.exit(77)


def check(golden, exported):
    values = safetensors.torch.load_file(golden / "golden.safetensors")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        exported, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], (key, report[key])
    tokens = values["tokens"][0, :, :-1].long()
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits
    expected = values["logits"]
    error = ((logits - expected).norm() / expected.norm()).item()
    print(f"{golden.name:28} {type(model).__name__:20} error {error:.1e}")
    # Another release of torch may add in another order.
    assert error < 1e-6, error


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    folders = [pathlib.Path(argument) for argument in sys.argv[1:]]
    for golden, exported in zip(folders[::2], folders[1::2], strict=True):
        check(golden, exported)


main()
