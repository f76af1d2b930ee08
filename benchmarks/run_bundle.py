"""Runs a training step that `benchmarks.compiled_step --export_bundle=DIRECTORY` has written.

Only JAX is required, on a machine with a GPU or TPU:

    python run_bundle.py DIRECTORY

The losses of the first steps are compared with the losses that TensorFlow computed on a CPU in
float32. Then further steps are timed. The last line is a row of a table: device, milliseconds per
step, sequences per second and share of the peak of the device in half precision.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

# Operations per second in half precision, without sparsity, by a part of the name of the device.
PEAKS = {
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
    "L4": 121e12,
    "V100": 125e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


def draw(description: dict[str, Any], seed: int) -> np.ndarray:
    """Returns the initial value of a variable: constant, or random with a standard deviation."""
    shape, dtype = description["shape"], description["dtype"]
    if "stddev" not in description:
        return np.full(shape, description["value"], dtype)
    return (np.random.RandomState(seed).standard_normal(shape) * description["stddev"]).astype(
        dtype
    )


def load_step(program: bytes, arguments: list[np.ndarray], results: list[Any]) -> Any:
    """Returns the step as a function of the batch and the variables."""
    import jax
    from jax import export

    # Exports a placeholder with the signature of the step, and replaces its program.
    values = [jax.numpy.zeros(shape, dtype) for shape, dtype in results]
    placeholder = jax.jit(lambda *_: values, keep_unused=True)
    exported = export.export(placeholder)(*arguments)
    return jax.jit(dataclasses.replace(exported, mlir_module_serialized=program).call)


def main() -> None:
    """Compares the losses and prints the times."""
    import jax  # not at the top, because the exporting program imports `draw`

    jax.config.update("jax_enable_x64", True)  # the number of the step is an int64
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=20, help="number of timed steps")
    parser.add_argument("--peak", type=float, help="peak operations per second of the device")
    given = parser.parse_args()
    bundle = json.loads((given.directory / "bundle.json").read_text())
    batch = [np.asarray(values, dtype) for values, dtype in bundle["batch"]]
    state = [draw(description, seed) for seed, description in enumerate(bundle["variables"])]
    device = jax.devices()[0]
    program = (given.directory / "step.stablehlo").read_bytes()
    run = load_step(program, [*batch, *state], bundle["results"])
    batch, state = jax.device_put((batch, state), device)
    first = len(bundle["results"]) - len(state)  # the new variables follow the other results

    start = time.perf_counter()
    for number, expected in enumerate(bundle["losses"]):
        results = run(*batch, *state)
        state = results[first:]
        loss = sum(float(results[a]) / float(results[b]) for a, b in bundle["sums_and_weights"])
        difference = abs(loss / expected - 1)
        print(f"step {number}: loss {loss:.5f}, expected {expected:.5f}", flush=True)
        if not difference <= bundle["tolerance"]:
            raise SystemExit(f"The loss differs by {difference:.2%}.")
        if not number:
            print(f"compiled in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    for _ in range(given.steps):
        results = run(*batch, *state)
        state = results[first:]
    jax.block_until_ready(state)
    seconds = (time.perf_counter() - start) / given.steps
    kind = device.device_kind
    peak = given.peak or next((PEAKS[name] for name in PEAKS if name in kind), None)
    share = f"{bundle['operations'] / seconds / peak:.1%}" if peak else "unknown peak"
    print(
        f"| {bundle['name']} | {kind}, JAX {jax.__version__} | {seconds * 1e3:.1f} ms | "
        f"{bundle['batch_size'] / seconds:.0f} sequences/s | {share} |"
    )


if __name__ == "__main__":
    main()
