#!/usr/bin/env python3
"""The rival of `megatrain bench` on one GPU: PyTorch and transformers with everything resident.

    torch_resident.py --model qwen2.5-0.5b --sequences 16 --seq-len 4096 [--compile] [--checkpoint]

Random weights of a Qwen2.5 shape, random tokens, bf16 weights and AdamW states (fused), scaled dot
product attention, the loss in chunks of 8192 tokens so that logits never exist at once. Model FLOPs
are those of `megatrain bench`: 6 x parameters that multiply + 6 x layers x heads x head size x
sequence a token.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import Qwen2Config, Qwen2ForCausalLM

# hidden, intermediate, layers, query heads, key heads, vocabulary, tied embeddings
SHAPES = {
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 151936, True),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 151936, True),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, 152064, False),
    "qwen2.5-14b": (5120, 13824, 48, 40, 8, 152064, False),
}
LOSS_CHUNK = 8192


def make_model(name, sequence):
    hidden, intermediate, layers, heads, kv_heads, vocabulary, tied = SHAPES[name]
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=sequence, tie_word_embeddings=tied, use_cache=False,
        attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return Qwen2ForCausalLM(config)


def flops_per_token(model, sequence):
    config = model.config
    multiply = sum(p.numel() for p in model.parameters())
    if not config.tie_word_embeddings:
        multiply -= model.get_input_embeddings().weight.numel()
    width = config.num_attention_heads * (config.hidden_size // config.num_attention_heads)
    return 6 * multiply + 6 * config.num_hidden_layers * width * sequence


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, required=True)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--checkpoint", action="store_true", help="recompute every block")
    args = parser.parse_args()

    model = make_model(args.model, args.seq_len)
    model.train()
    if args.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
    ids = torch.randint(0, 150_000, (args.sequences, args.seq_len + 1), device="cuda")
    body = torch.compile(model.model) if args.compile else model.model

    def chunk_loss(hidden, targets):
        return F.cross_entropy(model.lm_head(hidden).float(), targets, reduction="sum")

    if args.compile:
        chunk_loss = torch.compile(chunk_loss)

    def train_step():
        for part in ids.chunk(args.micro_batches):
            hidden = body(input_ids=part[:, :-1]).last_hidden_state.flatten(0, 1)
            targets = part[:, 1:].flatten()
            loss = sum(checkpoint(chunk_loss, hidden[c:c + LOSS_CHUNK], targets[c:c + LOSS_CHUNK],
                                  use_reentrant=False)
                       for c in range(0, targets.numel(), LOSS_CHUNK))
            (loss / (args.sequences * args.seq_len)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = []
    for step in range(args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        train_step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        print(f"step {step + 1}  {seconds[-1]:.3f} s", flush=True)
    median = statistics.median(seconds[2:])
    tokens = args.sequences * args.seq_len
    tflops = flops_per_token(model, args.seq_len) * tokens / median / 1e12
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"torch {torch.__version__} {args.model} {'compiled' if args.compile else 'eager'}"
          f"{', checkpointing' if args.checkpoint else ''}: {tokens / median:.0f} tok/s, "
          f"{tflops:.0f} model TFLOPS, {peak:.1f} GiB on the GPU")


if __name__ == "__main__":
    main()
