"""Estimates the speed of a training step on an H200 from the program that XLA compiles for it.

No GPU is required. The step is traced with the precision policy of a GPU, exported as HLO, and
compiled by XLA's GPU compiler from JAX (see `xla_gpu`):

    pip install --no-deps --target=jax_site --requirement benchmarks/jax.txt
    python -m benchmarks.compiled_step --jax_site=jax_site --preset=base_v2 --layers=2

The output per sequence is the number of bytes that all kernels read and write, the temporary
buffers of the step, and two estimates of its time at 4.0 TB/s and 650 TFLOP/s, which an H200 can
sustain. The first estimate adds the longer of memory time and arithmetic time of each kernel; the
second adds both times. The share of peak is relative to 989 TFLOP/s and counts only the matrix
products of the model. Kernel launches, atomics and the host are not included, and without a device
the compiler cannot select kernels by timing them. Use the figures only to compare programs.

With two numbers, such as `--layers=2,4`, the figures of the whole model are extrapolated.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from absl import app, flags
from tensorflow.compiler.xla.service import hlo_pb2

from albert_tf.config import ATTENTIONS, BFLOAT16, PRECISIONS, AlbertConfig
from albert_tf.modeling import fused_attention
from albert_tf.training import precision, step
from benchmarks.matmul import pretraining_operations
from benchmarks.pretraining import pretraining_trainer, random_batch

FLAGS = flags.FLAGS
BANDWIDTH = 4.0e12  # bytes per second that an H200 sustains
SUSTAINED = 650e12  # operations per second in half precision
PEAK = 989e12
_HERE = Path(__file__).parent
_MOVES_NOTHING = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all"}
_BITS = {"PRED": 8, "S4": 4, "U4": 4, "C64": 64, "C128": 128}


class Kernel(NamedTuple):
    """One operation of a compiled program, with its repetitions in loops.

    Attributes:
        name: name in the program.
        bytes: number of bytes read and written.
        operations: number of floating-point operations of matrix products.
        runs: number of executions in one run of the program.
    """

    name: str
    bytes: int
    operations: int
    runs: int

    @property
    def seconds(self) -> float:
        """Estimated time of all runs in seconds."""
        return self.runs * max(self.bytes / BANDWIDTH, self.operations / SUSTAINED)

    @property
    def serial_seconds(self) -> float:
        """Estimated time in seconds if memory access and arithmetic do not overlap."""
        return self.runs * (self.bytes / BANDWIDTH + self.operations / SUSTAINED)


class Compiled(NamedTuple):
    """A compiled program.

    Attributes:
        module: the optimized program.
        temporaries: bytes of memory in addition to arguments and results.
        seconds: time of the compilation.
    """

    module: hlo_pb2.HloModuleProto
    temporaries: int
    seconds: float


def export_step(config: AlbertConfig, B: int, S: int, P: int, **settings: Any) -> bytes:
    """Returns a training step for a GPU as a serialized `HloModuleProto`.

    Args:
        config: configuration of the model.
        B: batch size.
        S: sequence length.
        P: number of prediction slots per sequence.
        **settings: other fields of `TrainerConfig`.
    """
    pretended = {
        (precision, "device_type"): "GPU",
        (step, "device_type"): "GPU",
        (fused_attention, "compute_capabilities"): [(9, 0)],
        (fused_attention, "disagreement"): None,
    }
    with ExitStack() as stack:
        for (module, name), value in pretended.items():
            stack.enter_context(mock.patch.object(module, name, return_value=value))
        trainer = pretraining_trainer(
            config, S, P, train_batch_size=B, jit_compile=True, **settings
        )
        program = trainer.train_step.experimental_get_compiler_ir(random_batch(config, B, S, P))
        return program(stage="hlo_serialized")


def compile_for_h200(program: bytes, jax_site: str) -> Compiled:
    """Compiles a serialized `HloModuleProto` in the environment `jax_site`, see `xla_gpu`."""
    with tempfile.TemporaryDirectory() as directory:
        source, result = Path(directory, "program"), Path(directory, "compiled")
        source.write_bytes(program)
        command = [sys.executable, "-S", _HERE / "xla_gpu.py", jax_site, source]
        done = subprocess.run(
            [*command, _HERE / "h200.txtpb", result], stdout=subprocess.PIPE, check=True, text=True
        )
        measured = json.loads(done.stdout.splitlines()[-1])
        module = hlo_pb2.HloModuleProto.FromString(result.read_bytes())
    return Compiled(module, **measured)


def kernels(module: hlo_pb2.HloModuleProto) -> list[Kernel]:
    """Returns the executed operations. Of a conditional, the branch with the most bytes counts."""
    computations = {computation.id: computation for computation in module.computations}
    return list(_kernels(computations[module.entry_computation_id], computations, 1))


def _kernels(computation: Any, computations: Mapping[int, Any], runs: int) -> Iterator[Kernel]:
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    for one in computation.instructions:
        called = [computations[number] for number in one.called_computation_ids]
        if one.opcode in _MOVES_NOTHING or one.opcode.endswith("-done"):
            continue
        if one.opcode == "while":
            body = next(c for c in called if c.root_id and _root(c).shape == one.shape)
            yield from _kernels(body, computations, runs * _trip_count(one))
        elif one.opcode == "conditional":
            yield from max(
                ([*_kernels(branch, computations, runs)] for branch in called),
                key=lambda branch: sum(kernel.bytes for kernel in branch),
            )
        elif one.opcode == "call" or one.opcode.endswith("-start"):
            for inner in called:
                yield from _kernels(inner, computations, runs)
        else:
            operands = [by_id[number] for number in dict.fromkeys(one.operand_ids)]
            inner = called[0] if one.opcode == "fusion" else None
            read = sum(_read(one, operand, inner) for operand in operands)
            yield Kernel(
                one.name,
                read + _written(one, inner),
                _operations(one, by_id, computations),
                runs,
            )


def _trip_count(loop: Any) -> int:
    """Returns the number of iterations of a loop, which the compiler knows for all of our loops."""
    return int(json.loads(loop.backend_config)["known_trip_count"]["n"])


def _root(computation: Any) -> Any:
    return next(i for i in computation.instructions if i.id == computation.root_id)


def _size(shape: Any) -> int:
    """Returns the bytes of an array, or of all arrays of a tuple."""
    if shape.tuple_shapes:
        return sum(map(_size, shape.tuple_shapes))
    name = (
        type(shape)
        .DESCRIPTOR.fields_by_name["element_type"]
        .enum_type.values_by_number[shape.element_type]
        .name
    )
    bits = _BITS.get(name) or int("".join(filter(str.isdigit, name.split("E")[0])) or 0)
    return math.prod(shape.dimensions) * bits // 8


def _read(one: Any, operand: Any, inner: Any | None) -> int:
    """Returns the bytes that an operation reads from an operand; in fusions only the slices."""
    whole = _size(operand.shape)
    if inner is None:
        return whole
    number = list(one.operand_ids).index(operand.id)
    (start,) = (
        i for i in inner.instructions if i.opcode == "parameter" and i.parameter_number == number
    )
    read, names = 0, [start.id]
    for name in names:
        for user in (i for i in inner.instructions if name in i.operand_ids):
            if user.opcode == "bitcast":
                names.append(user.id)
            elif (
                user.opcode in ("dynamic-slice", "slice", "gather") and name == user.operand_ids[0]
            ):
                read += _size(user.shape)
            elif not (user.opcode == "dynamic-update-slice" and name == user.operand_ids[0]):
                return whole
    return min(read, whole)


def _written(one: Any, inner: Any | None) -> int:
    """Returns the bytes that an operation writes. Of updates in place, only the new part counts."""
    if inner is None:
        return _size(one.shape)
    by_id = {i.id: i for i in inner.instructions}
    root = by_id[inner.root_id]
    results = [by_id[n] for n in root.operand_ids] if root.opcode == "tuple" else [root]
    total = 0
    for result in results:
        while result.opcode == "bitcast":
            result = by_id[result.operand_ids[0]]
        updates = result.opcode == "dynamic-update-slice"
        total += _size(by_id[result.operand_ids[1]].shape if updates else result.shape)
    return total


def _operations(one: Any, by_id: Mapping[int, Any], computations: Mapping[int, Any]) -> int:
    """Returns the floating-point operations of the matrix products in one operation."""
    if one.opcode == "fusion":
        inner = computations[one.called_computation_ids[0]].instructions
        ids = {i.id: i for i in inner}
        return sum(_operations(i, ids, computations) for i in inner)
    shapes = [list(by_id[n].shape.dimensions) for n in one.operand_ids]
    if one.opcode == "dot":
        contracted = one.dot_dimension_numbers.lhs_contracting_dimensions
        return 2 * math.prod(one.shape.dimensions) * math.prod(shapes[0][d] for d in contracted)
    if "gemm" in one.custom_call_target or "matmul" in one.custom_call_target:
        config = json.loads(one.backend_config)["gemm_backend_config"]["dot_dimension_numbers"]
        contracted = [int(d) for d in config["lhs_contracting_dimensions"]]
        result = one.shape.tuple_shapes[0] if one.shape.tuple_shapes else one.shape
        return 2 * math.prod(result.dimensions) * math.prod(shapes[0][d] for d in contracted)
    if one.custom_call_target.startswith("__cudnn$fmha"):
        # Two products forward; five backward, which computes the scores again.
        B, N, S, D = shapes[0]
        return (10 if one.custom_call_target.endswith("Backward") else 4) * B * N * S * S * D
    return 0


class Figures(NamedTuple):
    """Figures of a step per sequence of its batch, except `temporaries`, which is per step.

    Attributes:
        gigabytes: GB read and written by all kernels.
        temporaries: memory in GB in addition to arguments and results.
        milliseconds: estimated time, see `Kernel.seconds`.
        serial_milliseconds: estimated time, see `Kernel.serial_seconds`.
        gigaflops: floating-point operations of the matrix products of the model, in 10^9.
    """

    gigabytes: float
    temporaries: float
    milliseconds: float
    serial_milliseconds: float
    gigaflops: float

    def __str__(self) -> str:
        """Returns the figures as one line."""
        share, serial_share = (
            self.gigaflops * 1e12 / time / PEAK
            for time in (self.milliseconds, self.serial_milliseconds)
        )
        return (
            f"{self.gigabytes:.2f} GB per sequence, {self.temporaries:.2f} GB temporaries, "
            f"estimated {self.milliseconds:.2f} to {self.serial_milliseconds:.2f} ms per sequence, "
            f"{share:.1%} to {serial_share:.1%} of peak"
        )


def figures(compiled: Compiled, config: AlbertConfig, B: int, S: int, P: int) -> Figures:
    """Returns the figures of a compiled step of B sequences of S positions and P predictions."""
    run = kernels(compiled.module)
    return Figures(
        sum(kernel.bytes * kernel.runs for kernel in run) / B / 1e9,
        compiled.temporaries / 1e9,
        sum(kernel.seconds for kernel in run) / B * 1e3,
        sum(kernel.serial_seconds for kernel in run) / B * 1e3,
        3 * pretraining_operations(config, B, S, P) / B / 1e9,
    )


def extrapolate(few: Figures, more: Figures, layers: Sequence[int], wanted: int) -> Figures:
    """Extrapolates the figures of models with two numbers of layers to `wanted` layers."""
    factor = (wanted - layers[0]) / (layers[1] - layers[0])
    return Figures(*(a + factor * (b - a) for a, b in zip(few, more, strict=True)))


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("jax_site", None, "Directory with the packages of JAX.", required=True)
    flags.DEFINE_string("preset", "base_v2", "Model.")
    flags.DEFINE_list("layers", None, "Number of layers to compile, or two numbers. Default: all.")
    flags.DEFINE_integer("batch_size", 32, "Number of sequences.")
    flags.DEFINE_integer("max_seq_length", 512, "Sequence length.")
    flags.DEFINE_integer("max_predictions_per_seq", 77, "Prediction slots per sequence.")
    flags.DEFINE_enum("precision", BFLOAT16, PRECISIONS, "As in run_pretraining.py.")
    flags.DEFINE_float("dropout", 0.0, "Dropout rate of hidden states.")
    flags.DEFINE_float("attention_dropout", None, "Dropout rate of attention. Default: --dropout.")
    flags.DEFINE_enum("attention", "auto", ATTENTIONS, "As in run_pretraining.py.")
    flags.DEFINE_bool("remat", False, "As in run_pretraining.py.")
    flags.DEFINE_integer("top", 0, "Number of kernels to list, slowest first.")


def main(_: list[str]) -> None:
    """Prints the figures."""
    attention_dropout = FLAGS.attention_dropout
    whole = AlbertConfig.from_preset(FLAGS.preset).replace(
        hidden_dropout_prob=FLAGS.dropout,
        attention_probs_dropout_prob=FLAGS.dropout
        if attention_dropout is None
        else attention_dropout,
    )
    B, S, P = FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    depths = [int(n) for n in FLAGS.layers or [whole.num_hidden_layers]]
    found = []
    for depth in depths:
        config = whole.replace(num_hidden_layers=depth)
        settings = {name: FLAGS[name].value for name in ("precision", "attention", "remat")}
        program = export_step(config, B, S, P, **settings)
        compiled = compile_for_h200(program, FLAGS.jax_site)
        found.append(figures(compiled, config, B, S, P))
        print(f"{depth} layers, compiled in {compiled.seconds:.0f} s: {found[-1]}", flush=True)
        for kernel in sorted(kernels(compiled.module), key=lambda k: -k.seconds)[: FLAGS.top]:
            print(
                f"    {kernel.seconds * 1e3:.3f} ms, {kernel.runs} x {kernel.bytes / 1e9:.3f} GB, "
                f"{kernel.operations / 1e9:.1f} GFLOP: {kernel.name}"
            )
    if len(found) == 2:
        result = extrapolate(*found, layers=depths, wanted=whole.num_hidden_layers)
        print(f"{whole.num_hidden_layers} layers, extrapolated: {result}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
