"""A program without this package that runs a reusable SavedModel.

python tf2_hub_program.py SAVED_MODEL BATCH.npz RESULTS.pickle WAY...
"""

import os
import pickle
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

HUB_NAMES = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
POSITIONS = "masked_lm_positions"


def arrays(values):
    return tf.nest.map_structure(lambda value: value.numpy(), values)


def by_name(variables):
    return {variable.name.split(":")[0]: variable.numpy() for variable in variables}


def error_of(function, inputs):
    try:
        function(inputs)
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        return str(error)
    return None


def with_tensorflow(path, batch):
    """Returns outputs, gradients and errors of the loaded model."""
    loaded = hub.load(path)
    inputs = {name: batch[name] for name in HUB_NAMES}
    theirs = {HUB_NAMES[name]: batch[name] for name in HUB_NAMES}
    positions = {POSITIONS: batch[POSITIONS]}
    results = {
        "variables": by_name(loaded.variables),
        "losses": [len(part.regularization_losses) for part in (loaded, loaded.mlm, loaded.sop)],
        "trainable": [
            sorted(by_name(part.trainable_variables)) for part in (loaded, loaded.mlm, loaded.sop)
        ],
        "files": {
            name: tf.io.read_file(getattr(loaded, name).asset_path).numpy()
            for name in ("albert_config_file", "sp_model_file")
        },
        "do_lower_case": bool(loaded.do_lower_case),
        "encoder": arrays(loaded(inputs)),
        "encoder, names of TF-Hub": arrays(loaded(theirs, training=False)),
        "mlm, names of TF-Hub": arrays(loaded.mlm({**theirs, **positions})),
        "sop, names of TF-Hub": arrays(loaded.sop(theirs)),
        "signatures": {
            "serving_default": arrays(loaded.signatures["serving_default"](**theirs)),
            "tokens": arrays(loaded.signatures["tokens"](**inputs)),
            "mlm": arrays(loaded.signatures["mlm"](**inputs, **positions)),
            "sop": arrays(loaded.signatures["sop"](**inputs)),
        },
        "other sizes": loaded({name: values[:1, :2] for name, values in inputs.items()})[
            "sequence_output"
        ].numpy(),
        "errors": {
            "too long": error_of(
                loaded, {name: tf.tile(values, [1, 4]) for name, values in inputs.items()}
            ),
            "mask": error_of(loaded, {**inputs, "input_mask": batch["input_mask"][:1]}),
            "position": error_of(loaded.mlm, {**inputs, POSITIONS: batch[POSITIONS] + 6}),
            "rows": error_of(loaded.mlm, {**inputs, POSITIONS: batch[POSITIONS][:1]}),
            "missing": error_of(loaded, {"input_ids": batch["input_ids"]}),
        },
    }

    with tf.GradientTape() as tape:
        outputs = loaded.mlm({**inputs, **positions})
        loss = tf.reduce_sum(tf.sin(outputs["sequence_output"]))
        loss += tf.reduce_mean(tf.cos(outputs["mlm_logits"]))
        loss += tf.reduce_sum(outputs["pooled_output"] ** 2)
    results["mlm"] = arrays(outputs)
    variables = list(loaded.mlm.trainable_variables)
    gradients = tape.gradient(loss, variables)
    names = list(by_name(variables))
    results["gradients"] = dict(zip(names, arrays(gradients), strict=True))

    results["with dropout"] = [loaded(inputs, training=True)["sequence_output"].numpy()]
    results["with dropout"].append(loaded(theirs, training=True)["sequence_output"].numpy())
    loaded.dropout_state.assign([0, 0])
    results["with dropout"].append(loaded(theirs, training=True)["sequence_output"].numpy())
    return results


def with_xla(path, batch):
    """Returns the outputs of the compiled function, and its error for a mask with one row."""
    loaded = tf.saved_model.load(path)
    compiled = tf.function(
        lambda inputs: loaded.mlm(inputs)["mlm_logits"], jit_compile=True, autograph=False
    )
    one_mask = {**batch, "input_mask": batch["input_mask"][:1]}
    return compiled(batch).numpy(), error_of(compiled, one_mask)


def with_replicas(path, batch):
    """Two replicas count training calls separately and receive different rows."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        loaded = tf.saved_model.load(path)

    def rows(context):
        row = context.replica_id_in_sync_group
        return {name: tf.constant(batch[name][row : row + 1]) for name in HUB_NAMES}

    inputs = strategy.experimental_distribute_values_from_function(rows)
    step = tf.function(
        lambda inputs: loaded(inputs, training=True)["sequence_output"], autograph=False
    )
    return arrays(strategy.experimental_local_results(strategy.run(step, [inputs])))


WAYS = {"tensorflow": with_tensorflow, "xla": with_xla, "replicas": with_replicas}


def main(path, batch_file, results_file, *ways):
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    with np.load(batch_file) as file:
        batch = dict(file)
    tensors = {name: tf.constant(values) for name, values in batch.items()}
    results = {way: WAYS[way](path, tensors) for way in ways}
    assert "albert_tf" not in sys.modules
    with open(results_file, "wb") as file:
        pickle.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
