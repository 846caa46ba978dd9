#!/usr/bin/env python3
"""Measures how training scales over the GPUs of one host, each row beside its prediction.

    docs/benchmarks/gpus.py MEGATRAIN [--gpus 1,2,4,8] [--models qwen2.5-7b,qwen2.5-14b,qwen2.5-32b]
                            [--tokens 65536,8192] [--sequence 4096] [--groups all,half]
                            [--steps 8] [--host-memory GIB] [--dry-run] [OPTION...]

Runs `megatrain train` on random tokens by `megatrain launch`, a rank a GPU. A row's prediction is
made by `megatrain plan` before its run. Prints a table, and raw lines of each run: seconds a step,
and how long each stream was busy in the third one, beside the prediction. A layout that the memory
does not hold has a row that says so, and so has a run that fails, with exit code 1 at the end; the
others are run all the same. An OPTION is given to train and plan, as --rates FILE or --moments bf16.

--dry-run starts nothing: it predicts, and prints the commands. It needs no GPU, but --device-memory
SIZE (of a GPU) and --host-memory GIB (of the host) where there is none.
"""
import argparse
import json
import pathlib
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STREAMS = ("compute", "fetch", "offload", "spill", "gather", "scatter", "update")


class Refused(Exception):
    """What plan said."""


class Failed(Exception):
    """What the run said."""


def numbers(text):
    return [int(part) for part in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("program")
    parser.add_argument("--gpus", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--models", type=lambda text: text.split(","),
                        default=["qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b"])
    parser.add_argument("--tokens", type=numbers, default=[65536, 8192], help="a step and GPU")
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--groups", type=lambda text: text.split(","), default=["all", "half"],
                        help="shard groups: all the GPUs, or half of them (two replicas)")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--host-memory", type=int, help="GiB of the host, for all ranks")
    parser.add_argument("--dry-run", action="store_true")
    options, options.more = parser.parse_known_args()
    if options.steps < 3:
        parser.error("--steps: the first two warm up, and the third is looked into")
    return options


def layouts(options):
    """GPUs, and how many of them hold the model once between them."""
    for gpus in options.gpus:
        groups = {gpus if share == "all" else gpus // 2 for share in options.groups if gpus > 1}
        for group in sorted(groups or {1}, reverse=True):
            yield gpus, group


def common(options, model, tokens, gpus, group):
    command = ["--model", model, "--seq-len", str(options.sequence), "--batch-tokens",
               str(tokens * gpus), "--shard-group", str(group), "--device", options.device]
    if options.host_memory:
        command += ["--host-memory", f"{options.host_memory * 1024 // gpus}MiB"]
    return command + options.more


def launch(options, folder, *shape):
    return [options.program, "launch", "--nproc-per-node", str(shape[2]), "train",
            *common(options, *shape), "--data", str(folder / "tokens.bin"), "--out",
            str(folder / "run"), "--steps", str(options.steps), "--trace",
            str(folder / "trace.json")]


def predict(options, *shape):
    command = [options.program, "plan", "--ranks", str(shape[2]), "--json",
               *common(options, *shape)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise Refused(result.stderr.strip())
    return json.loads(result.stdout)


def run(command, trace):
    """Runs it until its steps are done, of which the trace tells: nobody wants the model."""
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT) as process:
            while process.poll() is None and not trace.exists():
                time.sleep(0.1)
            # The first asks to end at a step, the second, more than a second later, at once.
            for pause in (1.5, 0):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    time.sleep(pause)
        said.seek(0)
        if not trace.exists():
            raise Failed(f"{shlex.join(command)}\n{said.read()[-2000:]}")


def union(spans):
    """Of times [begin, end), sorted and without overlap."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(spans):
    return sum(end - begin for begin, end in spans)


def read_trace(path):
    """Seconds that each stream of rank 0 was busy in the traced step, and those of "exposed"
    communication: while nothing was computed."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events
             if event["name"] == "thread_name"}
    spans = {name: [] for name in STREAMS}
    for event in events:
        if event["ph"] == "X" and names[event["tid"]] in spans:
            begin = 1e-6 * event["ts"]
            spans[names[event["tid"]]].append((begin, begin + 1e-6 * event["dur"]))
    busy = {name: length(union(of_stream)) for name, of_stream in spans.items()}
    both = union(spans["compute"] + spans["gather"] + spans["scatter"])
    return busy | {"exposed": length(both) - busy["compute"]}


def train(options, folder, *shape):
    """Seconds of the steps after the first two, bytes of host memory of all ranks, and what the
    trace says."""
    gpus = shape[2]
    shutil.rmtree(folder / "run", ignore_errors=True)
    for trace in folder.glob("trace*.json"):
        trace.unlink()
    run(launch(options, folder, *shape), folder / "trace.json")
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if "loss" in line]
    seconds = [shape[1] * gpus / line["tokens_per_s"] for line in steps[2:]]
    memory = gpus * max(line["host_bytes"] for line in steps)
    return seconds, memory, read_trace(folder / "trace.json")


def measure(options, folder, alone, *shape):
    """A row of the table, its raw lines, and tokens/s a GPU."""
    plan = predict(options, *shape)
    predicted = plan["predicted_step_seconds"]
    raw = []
    if options.dry_run:
        step, memory = predicted, shape[2] * (plan["store_bytes"] + plan["pinned_peak_bytes"])
        cells = [f"{predicted:.3f} s"]
        raw.append(shlex.join(launch(options, folder, *shape)))
    else:
        seconds, memory, busy = train(options, folder, *shape)
        step = statistics.median(seconds)
        cells = [f"{step:.3f} s",
                 f"{predicted:.3f} s ({100 * (predicted / step - 1):+.1f} %)",
                 f"{100 * busy['exposed'] / step:.1f} %"]
        raw.append(" ".join(f"{second:.3f}" for second in seconds))
        raw.append("busy (predicted) " + " ".join(
            f"{name} {busy[name]:.3f} ({plan['busy_seconds'][name]:.3f})" for name in STREAMS))
    rate = shape[1] / step
    share = f"{rate / alone:.3f}" if alone else ""
    cells = [f"{rate:.0f}", share, *cells, f"{memory / 2**30:.1f} GiB", plan["bound_by"]]
    return " | ".join(cells), raw, rate


def main():
    options = arguments()
    steps = "predicted step" if options.dry_run else "step | predicted | exposed communication"
    header = (f"| model | tokens | GPUs | tokens/s a GPU | of one GPU | {steps} "
              "| host memory | predicted bound |")
    print(header)
    print("|" + "---|" * (header.count("|") - 1))
    raw, failed = [], False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path("FOLDER" if options.dry_run else name)
        if not options.dry_run:
            # 16-bit tokens below 256: every model has them.
            tokens = bytearray(2 << 23)
            tokens[::2] = random.Random(0).randbytes(1 << 23)
            (folder / "tokens.bin").write_bytes(tokens)
        for model in options.models:
            for tokens in options.tokens:
                alone = None
                for gpus, group in layouts(options):
                    shape = (model, tokens, gpus, group)
                    title = f"{group} x {gpus // group}" if gpus > group else str(gpus)
                    label = f"{model}, {tokens} tokens, {title}"
                    try:
                        row, lines, rate = measure(options, folder, alone, *shape)
                        if gpus == 1:
                            alone = rate
                    except (Refused, Failed) as why:
                        failed = failed or isinstance(why, Failed)
                        row = f"{type(why).__name__.lower()}, see below"
                        lines = str(why).splitlines()
                    raw += [label, *(f"    {line}" for line in lines)]
                    print(f"| {model} | {tokens} | {title} | {row} |", flush=True)
    print("\nCommands:\n" if options.dry_run else "\nSeconds a step, without the first two:\n")
    print("\n".join(f"    {line}" for line in raw))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
