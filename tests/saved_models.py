"""Reads and changes the graphs of a SavedModel."""

from tensorflow.core.protobuf import saved_model_pb2


def graphs_of(folder):
    return _read(folder).meta_graphs


def edit_graphs(folder, change):
    """Applies `change` to every graph."""
    saved_model = _read(folder)
    for graph in saved_model.meta_graphs:
        change(graph)
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())


def _read(folder):
    return saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
