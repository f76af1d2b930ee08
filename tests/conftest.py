"""Fixtures for all tests: reference data of the original release."""

import contextlib
import gc
import os
import random
import signal
import sys
from pathlib import Path

# Set before TensorFlow is imported, so that it does not log the features of the CPU, and uses
# oneDNN as in commands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import pytest

from tests import programs

GOLDEN = Path(__file__).parent / "golden" / "data"

# Background jobs of shells ignore SIGINT, nohup ignores SIGHUP, and child processes inherit both.
# Tests send these signals to commands, as if they ran in the foreground.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_configure(config):
    """Imports TensorFlow, except in the process that only distributes tests to other processes."""
    if config.getoption("dist", "no") != "no":
        # These processes have imported TensorFlow when they start.
        config.option.tx = [f"popen//python={programs.warm_python()}"] * len(config.option.tx)
        return
    sys.executable = os.path.join(sys.prefix, "bin", "python")
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401  (of PyTorch: imported after TensorFlow, it crashes the process)
    import tensorflow as tf

    from tests import pictures

    # Tests of replicas use two devices. All other tests run on the first one.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    pictures.skip()
    if config.option.markexpr == "not slow":  # ./test.sh --all optimizes as programs do
        optimize_graphs(False)
        # XLA compiles in half the time. Programs that are started inherit the variable.
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    # TensorFlow's millions of objects exist until the end. Garbage collections skip them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_collection_finish():
    gc.freeze()  # also the modules and tests that were collected


def pytest_make_parametrize_id(val, argname):
    """Names bytes after their parameter: gzip files contain the time, and names must not change."""
    return argname if isinstance(val, bytes) else None


def pytest_runtest_setup():
    """Makes the random weights and inputs of a test the same in every run.

    Keras draws the seeds of weights from `random`. TensorFlow's seed is not set, because that would
    delete all kernels, which takes time.
    """
    from keras.src.utils.naming import reset_uids

    random.seed(1)
    np.random.seed(1)
    # Variables get the same names in every test, so that TensorFlow finds their kernels. The public
    # `keras.utils.clear_session` would delete these kernels.
    reset_uids()


def optimize_graphs(value):
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not value})


@pytest.fixture(scope="module")
def eager(pytestconfig):
    """Runs functions eagerly in default tests, which takes less time than tracing them."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(pytestconfig.option.markexpr == "not slow")
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def traced(eager):
    """Traces functions in a test of a module that runs functions eagerly."""
    import tensorflow as tf

    is_eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    yield
    tf.config.run_functions_eagerly(is_eager)


@pytest.fixture
def optimized_graphs(pytestconfig):
    """Optimizes graphs as programs do, for tests that compare all digits with their output."""
    optimize_graphs(True)
    yield
    optimize_graphs(pytestconfig.option.markexpr != "not slow")


@pytest.fixture
def drawn(monkeypatch) -> None:
    """Draws the pictures of a test."""
    from tests import pictures

    monkeypatch.setattr("matplotlib.figure.Figure", pictures.Figure)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Returns the directory of numbers recorded with the original release, which must exist."""
    assert GOLDEN.is_dir(), f"{GOLDEN} is missing: the checkout is incomplete"
    return GOLDEN


@pytest.fixture(scope="session")
def tokenizer(golden):
    """Returns the tokenizer of the recorded SentencePiece model with 1,000 pieces."""
    from albert_tf.tokenization.loading import tokenizer_from_files

    return tokenizer_from_files(spm_model_file=golden / "tokenizer" / "small_1000.model")


@pytest.fixture(scope="session")
def small_pretrained(tokenizer, tmp_path_factory) -> str:
    """Returns the directory of a pretrained model with one layer and random weights."""
    from albert_tf.modeling.models import AlbertForPretraining
    from tests.text_models import CONFIG, write_model

    path = tmp_path_factory.mktemp("pretrained") / "model"
    return write_model(path, AlbertForPretraining(CONFIG), tokenizer)
