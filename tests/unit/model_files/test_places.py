"""What the flags of the exporting commands mean."""

from albert_tf.checkpoints.formats import find_weights
from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.model_files.places import model_in


def test_the_named_checkpoint_counts_and_the_default_one_need_not_be_there(golden):
    release, module = str(golden / "hub" / "albert_directory"), str(golden / "hub" / "module")
    best = f"{release}/model.ckpt-best"
    assert model_in(release, "model.ckpt-best", is_named=False) == best
    assert model_in(release, "model.ckpt-7", is_named=True) == f"{release}/model.ckpt-7"
    assert model_in(module, "model.ckpt-best", is_named=False) == module


def test_where_the_default_is_not_there_the_newest_is_taken(tmp_path):
    for step in (20, 100):
        write_checkpoint(str(tmp_path / f"model.ckpt-{step}"), {"a": [1.0]}, step)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-100"')
    model = model_in(str(tmp_path), "model.ckpt-best", is_named=False)
    assert find_weights(model) == str(tmp_path / "model.ckpt-100")
