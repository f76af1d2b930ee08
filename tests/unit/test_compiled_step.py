"""Programs compiled for accelerators that are not present: `benchmarks.compiled_step`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla.service import hlo_pb2

from albert_tf.config import AlbertConfig
from benchmarks import compiled_step
from benchmarks.compiled_program import kernels, product_operations

JAX_SITE = Path(__file__).parents[2] / ".venv" / "jax"  # created by ./test.sh --all
B, S, P = 8, 128, 20


def small_config(dropout=0.0):
    return AlbertConfig(
        vocab_size=1000,
        embedding_size=64,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=S,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def test_kernels_are_counted_by_what_they_move_and_how_often():
    @tf.function(jit_compile=True, autograph=False)
    def program(x, w, stack):
        def body(i, x, stack):
            x = tf.sin(tf.matmul(x, w))
            start = tf.stack([i, 0, 0])
            return i + 1, x, xla.dynamic_update_slice(stack, x[None], start)

        return tf.while_loop(lambda i, *_: i < 5, body, (0, x, stack))

    compiler = program.experimental_get_compiler_ir(*map(tf.zeros, ([6, 8], [8, 8], [5, 6, 8])))
    optimized = compiler(stage="optimized_hlo_proto_serialized")
    run = kernels(hlo_pb2.HloProto.FromString(optimized).hlo_module)
    (product,) = (kernel for kernel in run if kernel.operations)
    assert product[1:5] == (4 * (6 * 8 + 8 * 8 + 6 * 8), 2 * 6 * 8 * 8, 0, 5)
    (update,) = (kernel for kernel in run if "dynamic-update-slice" in kernel.name)
    assert update[1:5] == (4 * (6 * 8 + 1 + 6 * 8), 0, 0, 5)  # the slice, its index, the slice
    exported = hlo_pb2.HloModuleProto.FromString(compiler(stage="hlo_serialized"))
    assert product_operations(exported) == 5 * 2 * 6 * 8 * 8


@pytest.mark.slow
def test_loops_of_a_rematerialized_step_are_counted():
    config = small_config().replace(num_hidden_layers=4)
    plain, remat = (
        product_operations(
            hlo_pb2.HloModuleProto.FromString(
                compiled_step.export_step(
                    "v5e", config, B, S, P, precision="bfloat16", attention="plain", remat=remat
                )
            )
        )
        for remat in (False, True)
    )
    assert 1.1 * plain < remat < 4 / 3 * plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "attention", "dropout", "moved", "temporaries"),
    # Megabytes. Replace a figure by a smaller one; a larger one is a regression.
    [
        ("h200", "plain", 0.0, 183.4, 18.9),
        ("h200", "plain", 0.1, 183.3, 16.7),
        ("h200", "cudnn", 0.0, 168.2, 16.3),
        ("v5e", "plain", 0.0, 8.1, 4.2),  # the rest stays on the chip
        ("v5e", "plain", 0.1, 8.1, 4.3),
    ],
)
def test_a_compiled_step_does_not_need_more_memory(target, attention, dropout, moved, temporaries):
    settings = {"precision": "bfloat16", "attention": attention}
    program = compiled_step.export_step(target, small_config(dropout), B, S, P, **settings)
    compiled = compiled_step.compile_program(program, target, str(JAX_SITE))
    figures = compiled_step.figures(program, compiled, target, 1.0)
    assert round(figures.moved / 1e6, 1) <= moved
    assert round(figures.temporaries / 1e6, 1) <= temporaries
    calls = [i for c in compiled.module.computations for i in c.instructions]
    targets = {call.custom_call_target for call in calls}
    assert ("__cudnn$fmhaSoftmaxBackward" in targets) == (attention == "cudnn")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "replicas"), [("v5e", 4), ("v5e", 8), ("h200", 8)])
def test_devices_add_their_gradients_once(target, replicas):
    program = compiled_step.export_step(
        target, small_config(), B, S, P, replicas=replicas, precision="bfloat16"
    )
    compiled = compiled_step.compile_program(program, target, str(JAX_SITE), replicas=replicas)
    reduced = compiled_step.figures(program, compiled, target, 1.0).reduced
    parameters = 1000 * 64 + (S + 2) * 64 + 64 * 128 + 4 * 128 * 128 + 2 * 128 * 512
    assert 4 * parameters < reduced < 1.2 * 4 * parameters  # gradients are float32


@pytest.mark.slow
@pytest.mark.parametrize(
    "export", [compiled_step.export_evaluation, compiled_step.export_prediction]
)
def test_evaluation_and_prediction_compile_for_a_tpu(export):
    program = export("v5e", small_config(), B, S, P)
    compiled = compiled_step.compile_program(program, "v5e", str(JAX_SITE))
    host = {"infeed", "outfeed", "send", "recv"}
    opcodes = {i.opcode for c in compiled.module.computations for i in c.instructions}
    assert not opcodes & host
    assert sum(kernel.cycles for kernel in kernels(compiled.module)) > 0


@pytest.mark.slow
def test_an_evaluation_can_be_compiled_for_a_gpu():
    assert compiled_step.export_evaluation("h200", small_config(), B, S, P)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_bundle_runs_without_tensorflow(tmp_path, precision):
    bundle = tmp_path / "bundle"
    settings = {"precision": precision, "attention": "plain"}
    compiled_step.export_bundle(
        str(bundle), "h200", small_config(), B, S, P, str(JAX_SITE), **settings
    )
    assert sum(file.stat().st_size for file in bundle.iterdir()) < 1e6
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(JAX_SITE)}
    command = [sys.executable, "-S", bundle / "run_bundle.py", bundle, "--steps=2"]

    def run():
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("| 2 x 128, 8 x 128 | cpu")
    report = json.loads((bundle / "bundle.json").read_text())
    report["losses"][2] *= 1.01
    (bundle / "bundle.json").write_text(json.dumps(report))
    assert "The loss differs by 0.9" in run().stderr
