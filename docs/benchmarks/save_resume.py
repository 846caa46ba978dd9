#!/usr/bin/env python3
"""Measures saving while training goes on, and proves that a resumed run has the same bits.

    docs/benchmarks/save_resume.py MEGATRAIN FOLDER [--model qwen2.5-7b] [--tokens 65536]
                                   [--sequence 4096] [--steps 7] [--save 4] [-- TRAIN OPTION...]

In FOLDER, on the disk to measure: a run saves at --save with the host memory that is free as its
buffer; a second goes on from that checkpoint, and its model must be byte for byte that of the first;
a third saves without a buffer. Beside them, what dd writes and reads directly on that disk. FOLDER
needs room for two states (12 bytes a parameter each) and three models: a run that saves does so at its end too.
"""
import argparse
import filecmp
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time


def arguments():
    own, train = sys.argv[1:], []
    if "--" in own:
        own, train = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-7b")
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--save", type=int, default=4)
    options = parser.parse_args(own)
    options.train = train
    return options


def dd(what, *command):
    started = time.monotonic()
    last = subprocess.run(["dd", *command], check=True, capture_output=True, text=True).stderr
    print(f"    dd {what}: {last.splitlines()[-1]} ({time.monotonic() - started:.1f} s)", flush=True)


class Runs:
    def __init__(self, options):
        self.options = options
        self.tokens = options.folder / "tokens.bin"
        # 16-bit tokens below 256: every model has them.
        data = bytearray(2 << 21)
        data[::2] = random.Random(0).randbytes(1 << 21)
        self.tokens.write_bytes(data)

    def train(self, name, *more):
        """Trains into FOLDER/name and prints what it says of steps and checkpoints."""
        o = self.options
        out = o.folder / name
        command = [o.program, "train", "--model", o.model, "--data", str(self.tokens), "--out",
                   str(out), "--seq-len", str(o.sequence), "--batch-tokens", str(o.tokens),
                   "--steps", str(o.steps), "--deterministic", *o.train, *more]
        print("    " + " ".join(command), flush=True)
        started = time.monotonic()
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise SystemExit(result.stdout[-3000:] + result.stderr[-3000:])
        for line in result.stdout.splitlines():
            if re.match(r"plan|memory|host store|step |checkpoint |going on", line):
                print("    " + line)
        print(f"    {time.monotonic() - started:.1f} s in all", flush=True)
        return out

    def seconds(self, out):
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: self.options.tokens / line["tokens_per_s"]
                for line in lines if "loss" in line}


def main():
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    zeros = options.folder / "zeros"
    dd("writes", "if=/dev/zero", f"of={zeros}", "bs=16M", "count=512", "oflag=direct")
    dd("reads", f"if={zeros}", "of=/dev/null", "bs=16M", "iflag=direct")
    zeros.unlink()
    runs = Runs(options)

    print("\nStraight, saving with a buffer:\n")
    straight = runs.train("straight", "--save-every", str(options.save))
    checkpoint = straight / "checkpoints" / f"step_{options.save:08d}"
    print("\nResumed:\n")
    for other in (straight / "checkpoints").glob("step_*"):
        if other != checkpoint:
            shutil.rmtree(other)
    resumed = runs.train("resumed", "--resume", str(checkpoint))
    files = sorted(path.name for path in (straight / "model").iterdir())
    _, differing, missing = filecmp.cmpfiles(straight / "model", resumed / "model", files, False)
    if differing or missing:
        raise SystemExit(f"the resumed run's model differs: {differing + missing}")
    print(f"\nThe models are equal, byte for byte: {', '.join(files)}\n")
    shutil.rmtree(checkpoint)
    shutil.rmtree(resumed)
    print("Saving without a buffer:\n")
    bare = runs.train("bare", "--save-every", str(options.save), "--save-buffer", "0")

    print("\n| step | with a buffer | without |\n|---|---|---|")
    for step, with_buffer in runs.seconds(straight).items():
        print(f"| {step} | {with_buffer:.2f} s | {runs.seconds(bare)[step]:.2f} s |")


if __name__ == "__main__":
    main()
