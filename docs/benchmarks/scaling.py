#!/usr/bin/env python3
"""Predicts how training scales over GPUs: the table of docs/scaling.md.

    docs/benchmarks/scaling.py MEGATRAIN [OPTION...]

Asks `megatrain plan --ranks N OPTION...` for machines of 8 GPUs of 141 GB and enough host memory;
needs none of them.
"""
import json
import subprocess
import sys

SEQUENCE = 4096
# GPUs, and how many of them hold the model once between them.
LAYOUTS = [(1, 1), (2, 2), (4, 4), (8, 8), (8, 4), (64, 8), (512, 8)]


def plan(program, extra, model, tokens, ranks, group):
    command = [
        program, "plan", "--model", model, "--device", "cuda", "--device-memory", "130GiB",
        "--host-memory", "1800GiB", "--seq-len", str(SEQUENCE), "--batch-tokens",
        str(tokens * ranks), "--ranks", str(ranks), "--shard-group", str(group), "--json", *extra]
    planned = subprocess.run(command, capture_output=True, text=True)
    if planned.returncode != 0:
        print(planned.stderr, end="", file=sys.stderr)
        sys.exit(2)
    return json.loads(planned.stdout)


def title(ranks, group):
    return f"{group} x {ranks // group}" if ranks > group else str(ranks)


def main():
    program, *extra = sys.argv[1:]
    titles = [title(*layout) for layout in LAYOUTS]
    print(f"| model | tokens | {' | '.join(titles)} | states |")
    print("|---|---|" + "---|" * (len(titles) + 1))
    for model in ("qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b"):
        for tokens in (65536, 8192):
            plans = [plan(program, extra, model, tokens, *layout) for layout in LAYOUTS]
            rates = [tokens / found["predicted_step_seconds"] for found in plans]
            cells = [f"{rate:.0f} ({rate / rates[0]:.2f})" for rate in rates]
            for i, found in enumerate(plans):
                if found["bound_by"] != "compute":
                    cells[i] += f" {found['bound_by']}"
            print(f"| {model} | {tokens} | {' | '.join(cells)} "
                  f"| {plans[0]['store_bytes'] / 2**30:.0f} GiB |")


if __name__ == "__main__":
    main()
