"""The public names of the package."""

import subprocess

import albert_tf
from tests.programs import ROOT, isolated_python


def test_every_public_name_loads():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
    assert dir(albert_tf) == sorted(albert_tf.__all__)


def test_a_model_class_loads_models_when_only_its_module_is_imported():
    code = (
        "from albert_tf.modeling.encoder import AlbertEncoder as Encoder; import sys;"
        "assert 'albert_tf.checkpoints.loading' not in sys.modules;"
        "assert type(Encoder.load('mini')) is Encoder"
    )
    subprocess.run([isolated_python(), "-c", code], cwd=ROOT, check=True)


def test_loading_and_predicting_import_only_small_packages():
    code = """
import sys, keras
before = {*sys.modules}
from albert_tf import FillMask, MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
TextClassifier.load('mini', labels=['bad', 'good'])(['A good film.'])
new = {name.partition('.')[0] for name in sys.modules.keys() - before}
assert 'albert_tf' in new
assert not new & {'sklearn', 'tensorflow_text', 'huggingface_hub', 'tokenizers', 'matplotlib'}, new
"""
    subprocess.run([isolated_python(), "-c", code], cwd=ROOT, check=True)
