#!/usr/bin/env python3
"""Predicts how training scales over GPUs: the table of docs/scaling.md.

    docs/benchmarks/scaling.py MEGATRAIN [--rates FILE]

Asks `megatrain plan --ranks N` for a machine of 8 GPUs of 141 GB; needs none of them.
"""
import json
import subprocess
import sys

SEQUENCE = 4096
NODE = 8


def plan(program, extra, model, tokens, ranks):
    command = [
        program, "plan", "--model", model, "--device", "cuda", "--device-memory", "130GiB",
        "--host-memory", "1800GiB", "--seq-len", str(SEQUENCE), "--batch-tokens",
        str(tokens * ranks), "--ranks", str(ranks), "--shard-group", str(min(ranks, NODE)),
        "--json", *extra]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    program, *extra = sys.argv[1:]
    print("| model | tokens a step and GPU | GPUs | step | tokens/s a GPU | of one GPU "
          "| store a GPU | bound by |")
    print("|---|---|---|---|---|---|---|---|")
    for model in ("qwen2.5-7b", "qwen2.5-14b"):
        for tokens in (65536, 8192):
            alone = None
            for ranks in (1, 2, 4, 8, 64, 512):
                found = plan(program, extra, model, tokens, ranks)
                seconds = found["predicted_step_seconds"]
                rate = tokens / seconds
                alone = alone or rate
                print(f"| {model} | {tokens} | {ranks} | {seconds:.2f} s | {rate:.0f} "
                      f"| {100 * rate / alone:.1f} % | {found['store_bytes'] / 2**30:.1f} GiB "
                      f"| {found['bound_by']} |")


if __name__ == "__main__":
    main()
