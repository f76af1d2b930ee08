"""The program of a training step for an H200, without the device: `benchmarks.compiled_step`."""

import sys
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla.service import hlo_pb2

from albert_tf.config import AlbertConfig
from benchmarks.compiled_step import compile_for_h200, export_step, kernels

JAX_SITE = Path(__file__).parents[2] / ".venv" / "jax"  # made by ./test.sh --all
B, S, P = 8, 128, 20
# Of a step by its attention and rate of dropout: megabytes that its kernels move, and those of its
# temporaries. A smaller figure takes the place of one here; a larger one is a regression unless
# something is gained by it.
RECORDED = {
    ("plain", 0.0): (181.8, 16.8),
    ("plain", 0.1): (183.3, 16.7),
    ("cudnn", 0.0): (168.2, 16.3),
}


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
    assert product[1:] == (4 * (6 * 8 + 8 * 8 + 6 * 8), 2 * 6 * 8 * 8, 5)
    (update,) = (kernel for kernel in run if "dynamic-update-slice" in kernel.name)
    assert update[1:] == (4 * (6 * 8 + 1 + 6 * 8), 0, 5)  # the slice, its place, the slice


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="this JAX needs Python 3.11")
@pytest.mark.parametrize(("attention", "dropout"), RECORDED)
def test_what_the_step_moves_and_holds_on_an_h200_does_not_grow(attention, dropout):
    config = AlbertConfig(
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
    program = export_step(config, B, S, P, precision="bfloat16", attention=attention)
    compiled = compile_for_h200(program, str(JAX_SITE))
    run = kernels(compiled.module)
    most_moved, most_held = RECORDED[attention, dropout]
    assert round(sum(kernel.bytes * kernel.runs for kernel in run) / 1e6, 1) <= most_moved
    assert round(compiled.temporaries / 1e6, 1) <= most_held
    calls = [i for c in compiled.module.computations for i in c.instructions]
    targets = {call.custom_call_target for call in calls}
    assert ("__cudnn$fmhaSoftmaxBackward" in targets) == (attention == "cudnn")
