"""The public names of the package, and what importing it loads."""

import subprocess
import sys

import albert_tf


def test_every_public_name_loads():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
    assert set(albert_tf.__all__) <= set(dir(albert_tf))


def test_importing_the_package_loads_no_tensorflow():
    code = "import sys, albert_tf; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_class_loads_models_when_only_its_module_is_imported():
    code = (
        "from albert_tf.modeling.encoder import AlbertEncoder as Encoder; import sys;"
        "assert 'albert_tf.checkpoints.loading' not in sys.modules;"
        "assert type(Encoder.load('mini')) is Encoder"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
