"""Estimates the speed of pretraining on a GPU or TPU from the program that XLA compiles for it.

No accelerator is required. TensorFlow exports the training step as it would run on the target, and
the compilers for GPUs and TPUs, which are part of JAX, compile it (see `xla_compiler`):

    pip install --no-deps --target=jax_site -r benchmarks/jax.txt -r benchmarks/jax-tpu.txt
    python -m benchmarks.compiled_step --jax_site=jax_site --target=h200,v5e --layers=2,4

With two numbers of layers, such as `--layers=2,4`, the figures of the whole model are extrapolated.
A row of the table describes one program, which processes one batch on each device:

- memory: arguments and temporary buffers, as placed by the compiler;
- moved: bytes that all kernels read from and write to the memory of the device;
- reduced: bytes that are added over the devices, once per step;
- operations: of all matrix products, with recomputation;
- bounds: minimum time of the operations at the peak rate, and of the bytes at the full bandwidth;
- estimate: for TPUs, the compiler's estimate of the time of the kernels; for an H200, a range. Its
  lower end assumes that memory access and arithmetic overlap in each kernel, and its upper end that
  they do not. The assumed rates are 4.0 TB/s and 650 TFLOP/s, which an H200 can sustain;
- share of peak: the rate of the model's matrix products, without recomputation, divided by the
  peak rate. It assumes that the estimate is correct.

`--export_bundle=DIRECTORY` writes the step for `run_bundle.py`, which measures it on a real device.

The host, the launching of kernels and the transfers between devices are not included. Without a
device, the compiler cannot select kernels by timing them. Use the figures only to compare programs.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import keras
import tensorflow as tf
from absl import app, flags
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.xla.service import hlo_pb2

from albert_tf.config import ATTENTIONS, BFLOAT16, FLOAT32, PRECISIONS, AlbertConfig
from albert_tf.modeling import fused_attention
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import step
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.strategies import create_strategy
from benchmarks.compiled_program import kernels, product_operations
from benchmarks.matmul import pretraining_operations
from benchmarks.pretraining import random_batch
from benchmarks.run_bundle import draw

FLAGS = flags.FLAGS
_HERE = Path(__file__).parent


class Target(NamedTuple):
    """A device to compile for.

    Attributes:
        peak: matrix operations per second in bfloat16.
        bandwidth: bytes per second of the memory.
        clock: cycles per second of a TPU. `None` for GPUs.
        topologies: argument of `xla_compiler` by number of devices. `None` means any number.
        sustained: operations and bytes per second that a GPU sustains.
    """

    peak: float
    bandwidth: float
    topologies: dict[int | None, str]
    clock: float | None = None
    sustained: tuple[float, float] = (math.nan, math.nan)


TARGETS = {
    "h200": Target(989e12, 4.8e12, {None: str(_HERE / "h200.txtpb")}, sustained=(650e12, 4.0e12)),
    # At these clocks, the matrix units reach the peak.
    "v5e": Target(197e12, 819e9, {1: "v5e:1x1", 4: "v5e:2x2", 8: "v5e:2x4"}, clock=1.5e9),
    "v5p": Target(459e12, 2765e9, {1: "v5p:1x1x1", 4: "v5p:2x2x1", 8: "v5p:2x2x2"}, clock=1.75e9),
    "v6e": Target(918e12, 1640e9, {1: "v6e:1x1", 4: "v6e:2x2", 8: "v6e:2x4"}, clock=1.75e9),
}


class Compiled(NamedTuple):
    """A compiled program.

    Attributes:
        module: result of the compiler.
        arguments: bytes.
        temporaries: bytes in addition to arguments and results.
        seconds: duration of the compilation.
    """

    module: hlo_pb2.HloModuleProto
    arguments: int
    temporaries: int
    seconds: float


def export_step(
    target: str, config: AlbertConfig, B: int, S: int, P: int, *, replicas: int = 1, **settings: Any
) -> bytes:
    """Returns a training step as a serialized `HloModuleProto`, as the target would run it.

    Args:
        target: a name in `TARGETS`.
        config: model configuration.
        B: sequences per replica.
        S: sequence length.
        P: prediction slots per sequence.
        replicas: number of devices, whose gradients are added.
        **settings: other fields of `TrainerConfig`.
    """
    with _pretended_device(target, replicas):
        training = _training(target, _task(target, config, S, P), B, settings)
        return _export(training.update.python_function, random_batch(config, B, S, P))


def export_evaluation(target: str, config: AlbertConfig, B: int, S: int, P: int) -> bytes:
    """Returns the evaluation of a batch; for the arguments see `export_step`."""
    with _pretended_device(target, 1):
        task, strategy = _task(target, config, S, P), create_strategy("one_device")
        model = step.build_model(task.build_model, BFLOAT16, strategy)
        evaluator = Evaluator(task, model, strategy, B, jit_compile=True)
        return _export(evaluator._sums_of_replica, random_batch(config, B, S, P))


def export_prediction(target: str, config: AlbertConfig, B: int, S: int, P: int) -> bytes:
    """Returns the outputs of the encoder for a batch; for the arguments see `export_step`."""
    with _pretended_device(target, 1):
        task, strategy = _task(target, config, S, P), create_strategy("one_device")
        model = step.build_model(task.build_model, BFLOAT16, strategy)
        batch = random_batch(config, B, S, P)
        inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
        return _export(lambda features: model.encoder(features)["pooled_output"], inputs)


def export_bundle(
    directory: str,
    target: str,
    config: AlbertConfig,
    B: int,
    S: int,
    P: int,
    jax_site: str,
    **settings: Any,
) -> None:
    """Writes a training step that `run_bundle.py` runs where TensorFlow is not installed.

    The directory contains the step as StableHLO, one batch, the distributions of the initial
    values, the losses of three steps computed on this machine in float32, and `run_bundle.py`.

    Args:
        directory: a new directory.
        target: a name in `TARGETS`.
        config: model configuration.
        B: sequences.
        S: sequence length.
        P: prediction slots per sequence.
        jax_site: directory of JAX's packages.
        **settings: other fields of `TrainerConfig`.
    """
    path = Path(directory)
    path.mkdir(parents=True)
    batch = random_batch(config, B, S, P)
    with _pretended_device(target, 1):
        training = _training(target, _task(target, config, S, P), B, settings)
        function = tf.function(training.update.python_function, jit_compile=True, autograph=False)
        traced = function.get_concrete_function(batch)
        program = function.experimental_get_compiler_ir(batch)(stage="hlo_serialized")
    source = path / "step.hlo"
    source.write_bytes(program)
    command = [sys.executable, "-S", _HERE / "xla_compiler.py", jax_site, source, "stablehlo", "1"]
    subprocess.run([*command, path / "step.stablehlo"], check=True)
    source.unlink()

    shape = hlo_pb2.HloModuleProto.FromString(program).host_program_shape.result
    dtypes = {1: "bool", 4: "int32", 5: "int64", 11: "float32", 16: "bfloat16"}
    variables = _all_variables(training)
    by_handle = {id(v.value.handle): number for number, v in enumerate(variables)}
    order = [by_handle[id(handle)] for handle in traced.captured_inputs]
    described = [
        _initial_value(variables[number], training.model, config.initializer_range)
        for number in order
    ]
    sums = traced.structured_outputs["sums"]
    flat = tf.nest.flatten(traced.structured_outputs)
    positions = {id(tensor): number for number, tensor in enumerate(flat)}
    losses = [sums[name] for name in sums if name.endswith("_loss")]
    report = {
        "name": f"{config.num_hidden_layers} x {config.hidden_size}, {B} x {S}",
        "batch": [(batch[name].numpy().tolist(), batch[name].dtype.name) for name in sorted(batch)],
        "batch_size": B,
        "variables": described,
        "results": [(list(s.dimensions), dtypes[s.element_type]) for s in shape.tuple_shapes],
        "sums_and_weights": [[positions[id(part)] for part in loss] for loss in losses],
        "operations": 3 * pretraining_operations(config, B, S, P),
        "losses": _losses_on_cpu(config, S, P, batch, dict(zip(order, described, strict=True))),
        "tolerance": 1e-4 if settings["precision"] == FLOAT32 else 2e-3,  # relative
    }
    (path / "bundle.json").write_text(json.dumps(report))
    shutil.copy(_HERE / "run_bundle.py", path)


def _training(
    target: str, task: PretrainingTask, B: int, settings: dict[str, Any]
) -> step.TrainingStep:
    jit_compile = target == "h200"  # a TPU always compiles
    trainer = TrainerConfig("unused", train_batch_size=B, jit_compile=jit_compile, **settings)
    optimizer = OptimizerConfig(optimizer="lamb", num_warmup_steps=0)
    return step.TrainingStep(task, trainer, optimizer, create_strategy("one_device"))


def _all_variables(training: step.TrainingStep) -> list[keras.Variable]:
    return [*training.model.variables, *training.optimizer.variables]


def _initial_value(variable: keras.Variable, model: keras.Model, stddev: float) -> dict[str, Any]:
    """Describes the initial value for `run_bundle.draw`."""
    described = {
        "shape": list(variable.shape),
        "dtype": keras.backend.standardize_dtype(variable.dtype),
    }
    is_kernel = len(variable.shape) == 2 and any(variable is v for v in model.variables)
    if is_kernel:
        return {**described, "stddev": stddev}
    return {**described, "value": 1 if variable.path.endswith("gamma") else 0}


def _losses_on_cpu(
    config: AlbertConfig,
    S: int,
    P: int,
    batch: dict[str, tf.Tensor],
    described: dict[int, dict[str, Any]],
) -> list[float]:
    """Returns the losses of three steps from the described initial values, in float32."""
    B = len(batch["input_ids"])
    training = _training("cpu", _task("h200", config, S, P), B, {"precision": FLOAT32})
    variables = _all_variables(training)
    for seed, (number, description) in enumerate(described.items()):
        variables[number].assign(draw(description, seed))
    losses = []
    for _ in range(3):
        sums = training.update(batch)["sums"]
        losses.append(
            sum(float(s.sum / s.weight) for name, s in sums.items() if name.endswith("_loss"))
        )
    return losses


def _task(target: str, config: AlbertConfig, S: int, P: int) -> PretrainingTask:
    return PretrainingTask(
        config,
        max_seq_length=S,
        max_predictions_per_seq=P,
        use_one_hot_embeddings=target != "h200",
    )


def _export(function: Callable[..., Any], batch: dict[str, tf.Tensor]) -> bytes:
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(batch)(stage="hlo_serialized")


@contextmanager
def _pretended_device(target: str, replicas: int) -> Iterator[None]:
    """Patches the package so that it treats this machine as the target."""
    kind = "GPU" if target == "h200" else "TPU"
    patches = [
        mock.patch.object(step, "device_type", return_value=kind),
        mock.patch.object(fused_attention, "compute_capabilities", return_value=[(9, 0)]),
        mock.patch.object(fused_attention, "disagreement", return_value=None),
    ]
    if kind == "TPU":
        one_device = tf.distribute.OneDeviceStrategy
        patches.append(mock.patch.object(tf.distribute, "TPUStrategy", one_device))
    if replicas > 1:

        def all_reduce(_: Any, operation: tf.distribute.ReduceOp, values: Any) -> Any:
            assert operation == tf.distribute.ReduceOp.SUM
            return tf.nest.map_structure(
                lambda value: gen_xla_ops.xla_all_reduce(
                    input=value,
                    group_assignment=[[*range(replicas)]],
                    reduce_op="Add",
                    mode="CrossReplica",
                ),
                values,
            )

        patches.append(mock.patch.object(tf.distribute.ReplicaContext, "all_reduce", all_reduce))
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def compile_program(program: bytes, target: str, jax_site: str, *, replicas: int = 1) -> Compiled:
    """Compiles a serialized `HloModuleProto` with the packages in `jax_site`."""
    topologies = TARGETS[target].topologies
    with tempfile.TemporaryDirectory() as directory:
        source, result = Path(directory, "program"), Path(directory, "compiled")
        source.write_bytes(program)
        topology = topologies.get(replicas) or topologies[None]
        script = [sys.executable, "-S", _HERE / "xla_compiler.py", jax_site]
        done = subprocess.run(
            [*script, source, topology, str(replicas), result],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        measured = json.loads(done.stdout.splitlines()[-1])
        module = hlo_pb2.HloModuleProto.FromString(result.read_bytes())
    return Compiled(module, **measured)


class Figures(NamedTuple):
    """Figures of a program that processes one batch on each device.

    Attributes:
        memory: bytes of arguments and temporaries.
        temporaries: bytes.
        moved: bytes.
        reduced: bytes that all-reduces add over the devices.
        operations: of all matrix products.
        model_operations: of the matrix products of the model, without recomputation.
        shortest, longest: estimated time in seconds.
    """

    memory: float
    temporaries: float
    moved: float
    reduced: float
    operations: float
    model_operations: float
    shortest: float
    longest: float

    def row(self, name: str, target: str) -> str:
        """Returns a row of the table."""
        device = TARGETS[target]
        bounds = self.operations / device.peak, self.moved / device.bandwidth
        times = sorted({self.shortest, self.longest})
        shares = [self.model_operations / time / device.peak for time in times]
        cells = [
            name,
            target,
            f"{self.memory / 1e9:.2f} GB",
            f"{self.temporaries / 1e9:.2f} GB",
            f"{self.moved / 1e9:.1f} GB",
            f"{self.reduced / 1e6:.1f} MB",
            f"{self.operations / 1e12:.2f} TFLOP",
            " / ".join(f"{bound * 1e3:.1f}" for bound in bounds) + " ms",
            " to ".join(f"{time * 1e3:.1f}" for time in times) + " ms",
            " to ".join(f"{share:.1%}" for share in shares),
        ]
        return f"| {' | '.join(cells)} |"


HEADER = (
    "| program | target | memory | temporaries | moved | reduced | operations | bounds "
    "| estimate | share of peak |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def figures(program: bytes, compiled: Compiled, target: str, model_operations: float) -> Figures:
    """Returns the figures of an exported and compiled program."""
    device, run = TARGETS[target], kernels(compiled.module)
    if device.clock is not None:
        shortest = longest = sum(kernel.cycles * kernel.runs for kernel in run) / device.clock
    else:
        rate, bandwidth = device.sustained
        times = [(k.operations / rate, k.bytes / bandwidth, k.runs) for k in run]
        shortest = sum(runs * max(arithmetic, memory) for arithmetic, memory, runs in times)
        longest = sum(runs * (arithmetic + memory) for arithmetic, memory, runs in times)
    return Figures(
        compiled.arguments + compiled.temporaries,
        compiled.temporaries,
        sum(kernel.bytes * kernel.runs for kernel in run),
        sum(kernel.reduced * kernel.runs for kernel in run),
        product_operations(hlo_pb2.HloModuleProto.FromString(program)),
        model_operations,
        shortest,
        longest,
    )


def extrapolate(few: Figures, more: Figures, layers: Sequence[int], wanted: int) -> Figures:
    """Extrapolates linearly from models with `layers` layers to a model with `wanted` layers."""
    factor = (wanted - layers[0]) / (layers[1] - layers[0])
    return Figures(*(a + factor * (b - a) for a, b in zip(few, more, strict=True)))


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("jax_site", ".venv/jax", "Directory of JAX's packages.")
    flags.DEFINE_multi_enum("target", ["h200"], TARGETS, "Devices. Repeat the flag for more.")
    flags.DEFINE_enum("program", "step", ["step", "evaluation", "prediction"], "What to compile.")
    flags.DEFINE_integer("replicas", 1, "Devices that train together.")
    flags.DEFINE_string("preset", "base_v2", "Model.")
    flags.DEFINE_list("layers", None, "Layers to compile, one or two numbers. Default: all.")
    flags.DEFINE_integer("batch_size", 32, "Sequences per device.")
    flags.DEFINE_integer("max_seq_length", 512, "Sequence length.")
    flags.DEFINE_integer("max_predictions_per_seq", 77, "Prediction slots per sequence.")
    flags.DEFINE_enum("precision", BFLOAT16, PRECISIONS, "As in run_pretraining.py.")
    flags.DEFINE_float("dropout", 0.0, "Dropout rate of hidden states.")
    flags.DEFINE_float("attention_dropout", None, "Attention dropout. Default: --dropout.")
    flags.DEFINE_enum("attention", "plain", ATTENTIONS, "As in run_pretraining.py.")
    flags.DEFINE_bool("remat", False, "As in run_pretraining.py.")
    flags.DEFINE_string("export_bundle", None, "New directory for a step that run_bundle.py runs.")
    flags.DEFINE_integer("top", 0, "Number of kernels to list, the slowest first.")


def _sizes() -> tuple[int, int, int]:
    return FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq


def _settings() -> dict[str, Any]:
    return {name: FLAGS[name].value for name in ("precision", "attention", "remat")}


def _compile(target: str, config: AlbertConfig) -> Figures:
    B, S, P = _sizes()
    operations = pretraining_operations(config, B, S, P)
    if FLAGS.program == "step":
        program = export_step(target, config, B, S, P, replicas=FLAGS.replicas, **_settings())
        operations *= 3
    else:
        export = export_evaluation if FLAGS.program == "evaluation" else export_prediction
        program = export(target, config, B, S, P)
    compiled = compile_program(program, target, FLAGS.jax_site, replicas=FLAGS.replicas)
    run = sorted(kernels(compiled.module), key=lambda k: -k.runs * max(k.cycles, k.bytes))
    for kernel in run[: FLAGS.top]:
        print(
            f"    {kernel.runs} x {kernel.cycles} cycles, {kernel.bytes / 1e9:.3f} GB, "
            f"{kernel.operations / 1e9:.1f} GFLOP: {kernel.name}"
        )
    return figures(program, compiled, target, operations)


def main(_: list[str]) -> None:
    """Prints the table."""
    attention_dropout = FLAGS.attention_dropout
    whole = AlbertConfig.from_preset(FLAGS.preset).replace(
        hidden_dropout_prob=FLAGS.dropout,
        attention_probs_dropout_prob=FLAGS.dropout
        if attention_dropout is None
        else attention_dropout,
    )
    depths = [int(n) for n in FLAGS.layers or [whole.num_hidden_layers]]
    if FLAGS.export_bundle is not None:
        config = whole.replace(num_hidden_layers=depths[0])
        export_bundle(
            FLAGS.export_bundle, FLAGS.target[0], config, *_sizes(), FLAGS.jax_site, **_settings()
        )
        return
    print(HEADER)
    for target in FLAGS.target:
        found = []
        for depth in depths:
            found.append(_compile(target, whole.replace(num_hidden_layers=depth)))
            print(found[-1].row(f"{FLAGS.preset}, {depth} layers", target), flush=True)
        if len(found) == 2:
            result = extrapolate(*found, layers=depths, wanted=whole.num_hidden_layers)
            print(
                result.row(
                    f"{FLAGS.preset}, {whole.num_hidden_layers} layers, extrapolated", target
                )
            )


if __name__ == "__main__":
    define_flags()
    app.run(main)
