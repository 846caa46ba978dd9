#!/usr/bin/env python3
"""Measures how training scales over the GPUs of one host, each row beside its prediction.

    docs/benchmarks/gpus.py MEGATRAIN [--gpus 1,2,4,8] [--models qwen2.5-7b,qwen2.5-14b]
                            [--tokens 65536,8192] [--sequence 4096] [--groups all,half]
                            [--steps 8] [--rates FILE] [--device cuda] [--dry-run]

Runs `megatrain train` on random tokens by `megatrain launch`, a rank a GPU. A row's prediction is
made by `megatrain plan` before its run. Prints a table, and a raw line a run. --dry-run predicts
only, and needs no GPU but --device-memory and --host-memory (a rank's).
"""
import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile


def numbers(text):
    return [int(part) for part in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--gpus", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--models", type=lambda text: text.split(","),
                        default=["qwen2.5-7b", "qwen2.5-14b"])
    parser.add_argument("--tokens", type=numbers, default=[65536, 8192], help="a step and GPU")
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--groups", type=lambda text: text.split(","), default=["all"],
                        help="shard groups: all the GPUs, or half of them (two replicas)")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rates")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--device-memory")
    parser.add_argument("--host-memory")
    parser.add_argument("--dry-run", action="store_true")
    return parser.parse_args()


def common(options, model, tokens, gpus, group):
    command = ["--model", model, "--seq-len", str(options.sequence), "--batch-tokens",
               str(tokens * gpus), "--shard-group", str(group), "--device", options.device]
    for name in ("rates", "device_memory", "host_memory"):
        if getattr(options, name):
            command += ["--" + name.replace("_", "-"), getattr(options, name)]
    return command


def predict(options, *shape):
    command = [options.program, "plan", "--ranks", str(shape[2]), "--json",
               *common(options, *shape)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def train(options, folder, *shape):
    """Seconds of the steps after the first two, and bytes of host memory of all ranks."""
    gpus = shape[2]
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = [options.program, "launch", "--nproc-per-node", str(gpus), "train",
               *common(options, *shape), "--data", str(folder / "tokens.bin"), "--out", str(out),
               "--steps", str(options.steps)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    seconds = [shape[1] * gpus / line["tokens_per_s"] for line in steps[2:]]
    return seconds, gpus * max(line["host_bytes"] for line in steps)


def main():
    options = arguments()
    print("| model | tokens a step and GPU | GPUs | shard group | tokens/s a GPU | of one GPU "
          "| step | predicted | host memory |")
    print("|---|---|---|---|---|---|---|---|---|")
    raw = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # 16-bit tokens below 256: every model has them.
        tokens = bytearray(2 << 23)
        tokens[::2] = random.Random(0).randbytes(1 << 23)
        (folder / "tokens.bin").write_bytes(tokens)
        for model in options.models:
            for tokens in options.tokens:
                alone = None
                for gpus in options.gpus:
                    for share in options.groups if gpus > 1 else ["all"]:
                        group = gpus if share == "all" else gpus // 2
                        shape = (model, tokens, gpus, group)
                        plan = predict(options, *shape)
                        predicted = plan["predicted_step_seconds"]
                        step, memory = predicted, gpus * plan["store_bytes"]
                        if not options.dry_run:
                            seconds, memory = train(options, folder, *shape)
                            step = statistics.median(seconds)
                            raw.append(f"{shape}: {' '.join(f'{s:.3f}' for s in seconds)}")
                        rate = tokens / step
                        alone = alone or rate
                        print(f"| {model} | {tokens} | {gpus} | {group} | {rate:.0f} "
                              f"| {rate / alone:.3f} | {step:.3f} s | {predicted:.3f} s "
                              f"({100 * (predicted / step - 1):+.1f} %) "
                              f"| {memory / 2**30:.1f} GiB |", flush=True)
    print("\nSeconds a step, without the first two:\n")
    print("\n".join(f"    {line}" for line in raw))


if __name__ == "__main__":
    main()
