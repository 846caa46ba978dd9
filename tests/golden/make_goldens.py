#!/usr/bin/env python3
"""Makes the golden files that the C++ tests compare with: transformers on the CPU, in fp32.

For each case, a folder tests/golden/data/CASE with
  config.json         as transformers 5 writes it
  config_v4.json      the same model as transformers 4 wrote it (rope_theta, rope_scaling)
  model.safetensors   random weights, fp32
  golden.safetensors  tokens [5, batch, seq + 1] int32; of the first step: logits, loss,
                      grad.NAME; of five AdamW steps: losses, grad_norms, param.NAME
and data/rope.txt (rotary tables) and data/versions.json.

Needs torch, transformers, safetensors and no network. Runs in about a minute:
  python3 tests/golden/make_goldens.py [--out FOLDER] [--only CASE ...]
"""

import argparse
import json
import math
import pathlib
import platform
import shutil
import sys
import time

import safetensors
import safetensors.torch
import torch
import transformers
from transformers import (GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

STEPS, BATCH, SEQUENCE, VOCABULARY = 5, 7, 13, 67

# Small odd sizes: nothing is a multiple of a vector or a tile.
COMMON = dict(vocab_size=VOCABULARY, hidden_size=28, intermediate_size=37, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, head_dim=6,
              max_position_embeddings=32, tie_word_embeddings=False, bos_token_id=1,
              eos_token_id=2, pad_token_id=None, attention_dropout=0.0)


def rope(kind="default", theta=1e4, **values):
    return {"rope_type": kind, "rope_theta": theta, **values}


# Few rotations over a short original context, so that every branch of a formula has its pair.
LLAMA3 = rope("llama3", 50.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
              original_max_position_embeddings=24)
YARN = rope("yarn", 100.0, factor=4.0, beta_fast=3.0, beta_slow=0.7,
            original_max_position_embeddings=32)

ROPES = {
    "default": rope(),
    "linear": rope("linear", 1e4, factor=2.5),
    "llama3": LLAMA3,
    "llama3_real": rope("llama3", 5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=8192),
    "yarn": YARN,
    "yarn_default_betas": rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=4096),
    "yarn_no_truncate": {**YARN, "truncate": False},
    "yarn_no_truncate_real": rope("yarn", 1.5e5, factor=32.0, truncate=False,
                                  original_max_position_embeddings=4096),
    "yarn_attention_factor": {**YARN, "attention_factor": 0.8},
    "yarn_mscale": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.3},
    "yarn_mscale_both_one": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    "yarn_mscale_alone": {**YARN, "mscale": 0.707},
    # The upper end of the correction range lies beyond the last dimension and is clamped.
    "yarn_clamped": rope("yarn", 10.0, factor=4.0, original_max_position_embeddings=4096),
    # Both ends are the same after rounding and clamping.
    "yarn_degenerate": rope("yarn", 1e4, factor=4.0, beta_fast=2.0, beta_slow=2.0, truncate=False,
                            original_max_position_embeddings=32),
}


def cases():
    # So short a wavelength that a shift of the keys matters (a key bias has a gradient) at once.
    default = rope(theta=30.0)

    def common(**values):
        merged = {**COMMON, "rope_parameters": default, **values}
        return {k: v for k, v in merged.items() if v != "drop"}

    llama = lambda **v: LlamaConfig(**common(**v))
    mistral = lambda **v: MistralConfig(**common(**v))
    qwen2 = lambda **v: Qwen2Config(**common(**{"head_dim": "drop", "hidden_size": 24, **v}))
    qwen3 = lambda **v: Qwen3Config(**common(**v))

    def gpt2(**v):
        return GPT2Config(**{**dict(vocab_size=VOCABULARY, n_embd=21, n_layer=2, n_head=3,
                                    n_inner=None, n_positions=19, resid_pdrop=0.0, embd_pdrop=0.0,
                                    attn_pdrop=0.0, bos_token_id=1, eos_token_id=2), **v})

    return {
        "llama": llama(),
        "llama_bias_tied": llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                 head_dim=12),
        "llama_bias_attention": llama(attention_bias=True),
        "llama_mha": llama(num_key_value_heads=4),
        "llama_mqa": llama(num_key_value_heads=1),
        "llama_linear": llama(rope_parameters=ROPES["linear"]),
        "llama_llama3": llama(rope_parameters=ROPES["llama3"], head_dim=10),
        "llama_yarn": llama(rope_parameters=ROPES["yarn"], head_dim=10),
        "mistral": mistral(sliding_window=None),
        "mistral_window": mistral(sliding_window=5, head_dim=8),
        "qwen2": qwen2(use_sliding_window=False),
        "qwen2_tied_window": qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=1,
                                   tie_word_embeddings=True),
        "qwen2_yarn": qwen2(rope_parameters=ROPES["yarn_no_truncate"]),
        "qwen3": qwen3(head_dim=10),
        "qwen3_bias_tied": qwen3(attention_bias=True, tie_word_embeddings=True),
        "qwen3_window": qwen3(use_sliding_window=True, sliding_window=6, max_window_layers=1,
                              head_dim=12),
        "qwen3_yarn": qwen3(rope_parameters=ROPES["yarn_mscale"], head_dim=8),
        "gpt2": gpt2(),
        "gpt2_inverse_layer": gpt2(scale_attn_by_inverse_layer_idx=True),
        "gpt2_unscaled_untied": gpt2(scale_attn_weights=False, n_inner=50,
                                     tie_word_embeddings=False),
        # The seed of a case is its place: new ones go to the end.
        "mistral_linear_mqa_tied": mistral(rope_parameters=ROPES["linear"], sliding_window=None,
                                           num_key_value_heads=1, tie_word_embeddings=True),
        "mistral_llama3_mha_window": mistral(rope_parameters=ROPES["llama3"], sliding_window=3,
                                             num_key_value_heads=4, head_dim=10),
        "mistral_yarn": mistral(rope_parameters=ROPES["yarn_attention_factor"],
                                sliding_window=None, head_dim=10),
        "qwen2_linear_mha_head": qwen2(rope_parameters=rope("linear", 30.0, factor=2.5),
                                       num_key_value_heads=4, head_dim=10),
        "qwen3_linear_mha": qwen3(rope_parameters=ROPES["linear"], num_key_value_heads=4),
        "qwen3_llama3_mqa": qwen3(rope_parameters=ROPES["llama3"], num_key_value_heads=1,
                                  head_dim=10),
        "qwen2_llama3_mqa": qwen2(rope_parameters=ROPES["llama3"], num_key_value_heads=1),
    }


def randomise(model, generator):
    """Weights large enough that every part of the model matters and clipping is active, small
    enough that bf16 can follow; norms and biases not trivial."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float32)
            if p.dim() == 1:
                head_norm = name.endswith(("q_norm.weight", "k_norm.weight"))
                p.copy_(0.1 * noise + (0.0 if name.endswith("bias") else 0.8 if head_norm else 1.0))
            else:
                table = "embed" in name or "wte" in name or "wpe" in name
                p.copy_(noise * (0.5 if table else 0.85 / math.sqrt(p.shape[1])))


def v4_config(config):
    """The config.json of transformers 4 for the same model."""
    values = dict(config)
    parameters = values.pop("rope_parameters", None)
    values["torch_dtype"] = values.pop("dtype", "float32")
    values["transformers_version"] = "4.46.0"
    values.pop("layer_types", None)
    if parameters is not None:
        parameters = dict(parameters)
        values["rope_theta"] = parameters.pop("rope_theta")
        scaled = parameters["rope_type"] != "default"
        values["rope_scaling"] = parameters if scaled else None
    return values


def loss_of(logits, tokens):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten().long())


def train(model, tokens):
    """Five steps; returns what golden.safetensors holds of them."""
    named = list(model.named_parameters())  # a tied tensor once, under the embedding's name
    groups = [{"params": [p for _, p in named if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    out, losses, norms = {}, [], []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=tokens[step, :, :-1].long(), use_cache=False).logits
        loss = loss_of(logits, tokens[step])
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().clone()
            out["loss"] = loss.detach().reshape(1)
            for name, p in named:
                out["grad." + name] = p.grad.clone()
        losses.append(loss.detach())
        norms.append(torch.nn.utils.clip_grad_norm_([p for _, p in named], 1.0))
        optimizer.step()
    for name, p in named:
        out["param." + name] = p.detach().clone()
    out["losses"] = torch.stack(losses)
    out["grad_norms"] = torch.stack(norms)
    return out


def smallest_update(golden):
    """The smallest gradient, zeros left out, that the first AdamW step sees. One near eps makes
    that step a matter of rounding: then no program could agree on the parameters."""
    factor = min(1.0, 1 / golden["grad_norms"][0].item())
    smallest = math.inf
    for name, gradient in golden.items():
        if name.startswith("grad."):
            if name.endswith("c_attn.bias"):  # the true gradient of gpt2's key bias is 0
                query, _, value = gradient.chunk(3)
                gradient = torch.cat([query, value])
            sizes = gradient.abs()[gradient != 0]
            smallest = min(smallest, factor * sizes.min().item())
    return smallest


def make_model(config, seed):
    """A model, tokens for it, and what five steps make of them."""
    generator = torch.Generator().manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                                          attn_implementation="eager")
    model.train()
    randomise(model, generator)
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    tokens = torch.randint(0, VOCABULARY, (STEPS, BATCH, SEQUENCE + 1), generator=generator,
                           dtype=torch.int32)
    golden = train(model, tokens)
    golden["tokens"] = tokens
    model.load_state_dict(weights)
    return model, golden


def make_case(name, config, out, seed):
    model, golden = make_model(config, seed)
    while smallest_update(golden) < 3e-8:
        seed += 1000
        model, golden = make_model(config, seed)
    tokens = golden["tokens"]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config_v4.json").write_text(json.dumps(v4_config(saved), indent=2) + "\n")
    safetensors.torch.save_file({k: v.contiguous() for k, v in golden.items()},
                                folder / "golden.safetensors")

    for file in folder.iterdir():
        file.chmod(0o644)

    # The files must be enough to get the same logits again.
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                              dtype=torch.float32)
    with torch.no_grad():
        logits = again(input_ids=tokens[0, :, :-1].long(), use_cache=False).logits
    if not torch.equal(logits, golden["logits"]):
        sys.exit(f"{name}: the saved folder does not give the same logits")
    norms = golden["grad_norms"]
    if not bool((norms > 1).all()):
        sys.exit(f"{name}: clipping is not active (norms {norms.tolist()})")
    size = sum(f.stat().st_size for f in folder.iterdir())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{name:24} {parameters:7} parameters  loss {golden['loss'].item():.5f}  "
          f"norm {norms[0].item():8.4f}  {size / 1024:7.1f} KiB")


def make_ropes(out):
    """rope.txt: a header line a table, then a line `position cos... sin...` each."""
    positions = [0, 1, 2, 5, 13, 31, 1000]
    lines = ["# name head_dim max_positions type theta factor low_freq high_freq original beta_fast"
             " beta_slow attention_factor mscale mscale_all_dim truncate rows  (- : not given)"]
    keys = ["rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
            "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor",
            "mscale", "mscale_all_dim", "truncate"]
    for name, parameters in ROPES.items():
        for head_dim in (10, 64):
            config = LlamaConfig(**{**COMMON, "head_dim": head_dim, "rope_parameters": parameters,
                                    "max_position_embeddings": 4096})
            rotary = LlamaRotaryEmbedding(config)
            ids = torch.tensor([positions])
            cosine, sine = rotary(torch.zeros(1, dtype=torch.float32), ids)
            values = [str(int(parameters[k])) if isinstance(parameters.get(k), bool)
                      else str(parameters.get(k, "-")) for k in keys]
            lines.append(" ".join(["table", name, str(head_dim), "4096", *values,
                                   str(len(positions))]))
            for row, position in enumerate(positions):
                half = head_dim // 2
                numbers = [*cosine[0, row, :half].tolist(), *sine[0, row, :half].tolist()]
                lines.append(" ".join([str(position), *(f"{x:.9g}" for x in numbers)]))
    (out / "rope.txt").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "data")
    parser.add_argument("--only", nargs="*", help="only these cases")
    arguments = parser.parse_args()
    start = time.time()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed, (name, config) in enumerate(cases().items()):
        if not arguments.only or name in arguments.only:
            make_case(name, config, arguments.out, 1000 + seed)
    make_ropes(arguments.out)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "safetensors": safetensors.__version__, "python": platform.python_version(),
                "machine": platform.machine()}
    (arguments.out / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
    total = sum(f.stat().st_size for f in arguments.out.rglob("*") if f.is_file())
    print(f"{versions}\n{total / 2**20:.2f} MiB in {arguments.out}, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
