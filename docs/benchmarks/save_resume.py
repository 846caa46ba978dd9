#!/usr/bin/env python3
"""Measures saving while training goes on, and proves that a resumed run has the same bits.

    docs/benchmarks/save_resume.py MEGATRAIN FOLDER [--models FOLDER] [--model qwen2.5-7b]
                                   [--tokens 65536] [--sequence 4096] [--steps 10] [--save 3]
                                   [-- TRAIN OPTION...]

In FOLDER, on the disk to measure: a run saves at --save with the host memory that is free as its
buffer, and is killed once the checkpoint is published. Another goes on from that checkpoint, and its
model must be byte for byte that of a run that was neither killed nor ever saved. A last one saves
without a buffer. Beside them, what dd writes and reads directly on that disk.

FOLDER needs room for one state (8 bytes a parameter and those of its moments' format), and --models,
which may be another disk, for one model at a time (2 bytes a parameter).
"""
import argparse
import hashlib
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

SHOWN = re.compile(r"plan|memory|host store|step |checkpoint |going on")
PUBLISHED = re.compile(r"checkpoint step_\d+: ")


def arguments():
    own, train = sys.argv[1:], []
    if "--" in own:
        own, train = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-7b")
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--save", type=int, default=3)
    options = parser.parse_args(own)
    options.models = options.models or options.folder
    options.train = train
    return options


def dd(what, *command):
    last = subprocess.run(["dd", *command], check=True, capture_output=True, text=True).stderr
    print(f"    dd {what}: {last.splitlines()[-1]}", flush=True)


def digests(folder):
    """Of every file of a model, by name; the folder goes, to make room."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    shutil.rmtree(folder)
    return found


class Runs:
    def __init__(self, options):
        self.options = options
        self.tokens = options.folder / "tokens.bin"
        # 16-bit tokens below 256: every model has them.
        data = bytearray(2 << 21)
        data[::2] = random.Random(0).randbytes(1 << 21)
        self.tokens.write_bytes(data)

    def train(self, out, *more, killed=False):
        """Trains into `out` and prints what it says of steps and checkpoints; `killed`: only until a
        step has ended after a checkpoint was published."""
        o = self.options
        command = [o.program, "train", "--model", o.model, "--data", str(self.tokens), "--out",
                   str(out), "--seq-len", str(o.sequence), "--batch-tokens", str(o.tokens),
                   "--steps", str(o.steps), "--deterministic", *o.train, *more]
        print("    " + " ".join(command), flush=True)
        started = time.monotonic()
        lines = []
        published = ended = False
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as process:
            for line in process.stdout:
                lines.append(line)
                if SHOWN.match(line):
                    print("    " + line.rstrip(), flush=True)
                if killed and published and line.startswith("step "):
                    process.kill()
                    ended = True
                published = published or PUBLISHED.match(line) is not None
        if killed and not ended or not killed and process.returncode != 0:
            raise SystemExit("it ended otherwise than expected:\n" + "".join(lines[-40:]))
        print(f"    {time.monotonic() - started:.1f} s in all", flush=True)
        return out

    def seconds(self, out):
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: self.options.tokens / line["tokens_per_s"]
                for line in lines if "loss" in line}


def main():
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.models.mkdir(parents=True, exist_ok=True)
    zeros = options.folder / "zeros"
    dd("writes", "if=/dev/zero", f"of={zeros}", "bs=16M", "count=512", "oflag=direct")
    dd("reads", f"if={zeros}", "of=/dev/null", "bs=16M", "iflag=direct")
    zeros.unlink()
    runs = Runs(options)
    saves = ["--save-every", str(options.save)]

    print("\nStraight:\n")
    straight = runs.train(options.models / "straight")
    expected = digests(straight / "model")
    print("\nSaving with a buffer, then killed:\n")
    saved = runs.train(options.folder / "saved", *saves, killed=True)
    checkpoint = saved / "checkpoints" / f"step_{options.save:08d}"
    print("\nResumed:\n")
    # Before and after, because a disk may remember.
    shard = f"if={checkpoint / 'shard_00000.h5'}"
    dd("reads a shard", shard, "of=/dev/null", "bs=16M", "iflag=direct")
    resumed = runs.train(options.models / "resumed", "--resume", str(checkpoint))
    dd("reads it again", shard, "of=/dev/null", "bs=16M", "iflag=direct")
    found = digests(resumed / "model")
    if found != expected:
        raise SystemExit(f"the resumed run's model differs: {found}, not {expected}")
    print(f"\nThe models are equal, byte for byte: {', '.join(found)}\n")
    shutil.rmtree(saved / "checkpoints")
    print("Saving without a buffer, then killed:\n")
    bare = runs.train(options.folder / "bare", *saves, "--save-buffer", "0", killed=True)

    columns = [runs.seconds(run) for run in (straight, saved, bare)]
    print("\n| step | saving nothing | with a buffer | without |\n|---|---|---|---|")
    for step in columns[0]:
        cells = [f"{seconds[step]:.2f} s" if step in seconds else "" for seconds in columns]
        print(f"| {step} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
