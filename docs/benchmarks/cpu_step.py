#!/usr/bin/env python3
"""The rival on the CPU: PyTorch and transformers train the shapes of our tiny presets.

One step is what `megatrain train` does in one: forward, loss, backward, clipping at norm 1 and
AdamW, over the same number of tokens. Prints one line a measured step and the medians: of the
time that passed, and of the processor time, which other work on the machine disturbs less.

    python3 cpu_step.py --model llama-tiny --compute bf16
"""

import argparse
import statistics
import time

import torch
import transformers

VOCABULARY = 258  # 256 bytes, beginning and end of text


def make_model(name):
    common = {"vocab_size": VOCABULARY, "bos_token_id": 256, "eos_token_id": 257}
    block = {
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "use_cache": False,
    }
    configs = {
        "llama-tiny": lambda: transformers.LlamaConfig(
            **common, **block, rms_norm_eps=1e-5, tie_word_embeddings=False
        ),
        "qwen2-tiny": lambda: transformers.Qwen2Config(
            **common, **block, rms_norm_eps=1e-6, tie_word_embeddings=True
        ),
        "gpt2-tiny": lambda: transformers.GPT2Config(
            **common,
            n_embd=192,
            n_inner=768,
            n_layer=4,
            n_head=6,
            n_positions=1024,
            use_cache=False,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
        ),
    }
    return transformers.AutoModelForCausalLM.from_config(
        configs[name](), attn_implementation="sdpa"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llama-tiny", choices=["llama-tiny", "qwen2-tiny", "gpt2-tiny"])
    parser.add_argument(
        "--compute",
        default="fp32",
        choices=["fp32", "autocast", "bf16"],
        help="autocast: fp32 parameters, bf16 products; bf16: parameters and moments in bf16 too",
    )
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences at once; 0: all")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    model = make_model(options.model).train()
    if options.compute == "bf16":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    sequences = options.batch_tokens // options.seq_len
    micro_batch = options.micro_batch or sequences
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.compute == "autocast")

    seconds, processor = [], []
    for step in range(options.warmup + options.steps):
        tokens = torch.randint(0, 256, (sequences, options.seq_len + 1))
        begin, begin_processor = time.perf_counter(), time.process_time()
        loss_sum = 0.0
        for part in tokens.split(micro_batch):
            with autocast:
                logits = model(part[:, :-1]).logits
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum"
                )
                loss = loss / options.batch_tokens
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        elapsed = time.perf_counter() - begin
        if step >= options.warmup:
            seconds.append(elapsed)
            processor.append(time.process_time() - begin_processor)
            print(f"step {step}: loss {loss_sum:.4f}, {elapsed * 1e3:.1f} ms", flush=True)
    median = statistics.median(seconds)
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {options.model}, "
        f"{options.compute}, {options.threads} threads, micro-batch {micro_batch}: median "
        f"{median * 1e3:.1f} ms ({statistics.median(processor) * 1e3:.1f} ms of processor time), "
        f"{options.batch_tokens / median:.0f} tok/s"
    )


if __name__ == "__main__":
    main()
