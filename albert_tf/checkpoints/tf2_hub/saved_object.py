"""Objects saved by TF2 (`tf.saved_model.save`): their variables and assets, without running them.

Such an object is stored twice: in the checkpoint, as the keys of its variables, and in the file
with the graphs, which knows assets and functions.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from albert_tf.checkpoints.original.files import open_tensorflow_checkpoint, read_variables
from albert_tf.checkpoints.report import DamagedError, LoadError
from albert_tf.data.files import reason_of
from albert_tf.data.strict_json import shown

GRAPH_FILE = "saved_model.pb"
VARIABLES = os.path.join("variables", "variables")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
_ROOT = 0


def is_saved_object(path: str) -> bool:
    """Whether a path is a directory with a SavedModel of TF2, of whatever it may be."""
    if not tf.io.gfile.exists(os.path.join(path, GRAPH_FILE)):
        return False
    try:
        variables = open_tensorflow_checkpoint(os.path.join(path, VARIABLES))
    except LoadError:
        return False
    return _OBJECT_GRAPH in variables.get_variable_to_shape_map()


class SavedVariables:
    """The variables of a saved object.

    Args:
        checkpoint: `<SavedModel>/variables/variables`.

    Attributes:
        keys: of all variables, by the names the variables have.
        shapes: by key.

    Raises:
        LoadError: they cannot be read.
    """

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._reader = open_tensorflow_checkpoint(checkpoint)
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self._graph = trackable_object_graph_pb2.TrackableObjectGraph()
        try:
            self._graph.ParseFromString(self.value(_OBJECT_GRAPH))
        except LoadError:
            raise
        except Exception as error:  # protobuf's DecodeError is public under no stable name
            raise DamagedError(
                f"The checkpoint {checkpoint!r} is damaged: {reason_of(error)}"
            ) from error
        self.keys = {
            attribute.full_name: attribute.checkpoint_key
            for node in self._graph.nodes
            for attribute in node.attributes
            if attribute.name == _VALUE
        }
        keys = {*self.keys.values(), *filter(None, map(self._key, range(len(self._graph.nodes))))}
        if not _is_connected(self._graph) or not keys <= self.shapes.keys():
            raise DamagedError(
                f"The checkpoint {checkpoint!r} is damaged: its objects are not those of its "
                "variables."
            )

    def keys_of_dictionary(self, name: str) -> dict[str, str]:
        """Returns the keys of the variables in a dictionary that is an attribute of the object."""
        number = _children(self._graph, _ROOT).get(name)
        if number is None:
            return {}
        keys = {inner: self._key(node) for inner, node in _children(self._graph, number).items()}
        return {inner: key for inner, key in keys.items() if key is not None}

    def attribute(self, name: str) -> Any:
        """Returns the value of a variable that is an attribute of the object, None without one."""
        number = _children(self._graph, _ROOT).get(name)
        key = None if number is None else self._key(number)
        return None if key is None else self.value(key)

    def value(self, key: str) -> Any:
        """Returns the value of a variable.

        Raises:
            LoadError: it cannot be read.
        """
        value = read_variables(self._reader, self._checkpoint, [key])[key]
        if np.shape(value) != self.shapes[key]:
            raise DamagedError(f"The checkpoint {self._checkpoint!r} has {shown(key)} twice.")
        return value

    def _key(self, number: int) -> str | None:
        attributes = self._graph.nodes[number].attributes
        return next((a.checkpoint_key for a in attributes if a.name == _VALUE), None)


class SavedGraph:
    """The file with the graphs of a saved object.

    Args:
        path: of the SavedModel.
        flag: the flag the path came from, for messages.

    Attributes:
        content: of the file.

    Raises:
        DamagedError: it cannot be read.
    """

    def __init__(self, path: str, flag: str) -> None:
        file, saved_model = os.path.join(path, GRAPH_FILE), saved_model_pb2.SavedModel()
        try:
            with tf.io.gfile.GFile(file, "rb") as opened:
                self.content = opened.read()
            saved_model.ParseFromString(self.content)
            self._graph = saved_model.meta_graphs[0]
        except Exception as error:  # protobuf's DecodeError is public under no stable name
            raise DamagedError(f"{flag}={path}: {file!r} is damaged: {reason_of(error)}") from error
        self._path, self._flag, self._objects = path, flag, self._graph.object_graph_def
        if not _is_connected(self._objects):
            raise DamagedError(
                f"{flag}={path}: {file!r} is damaged: an object has a part that there is not."
            )

    def asset(self, name: str) -> str | None:
        """Returns the path of a file that is an attribute of the object, None without one.

        Raises:
            LoadError: the object has such a file, but it is not there.
        """
        number = _children(self._objects, _ROOT).get(name)
        if number is None:
            return None
        index = self._objects.nodes[number].asset.asset_file_def_index
        names = [asset.filename for asset in self._graph.asset_file_def]
        if not 0 <= index < len(names):
            raise DamagedError(
                f"{self._flag}={self._path}: {GRAPH_FILE} is damaged: it has no asset {index}, its "
                f"{name}."
            )
        file = os.path.join(self._path, "assets", names[index])
        if not tf.io.gfile.exists(file):
            raise LoadError(
                f"{self._flag}={self._path} is half a model: its {name}, {file[-200:]!r}, is "
                "missing. Copy the whole directory again."
            )
        return file

    def length_of_output(self, name: str) -> int:
        """Returns the length of a list that calling the object gives by a name, 0 without one."""
        call = self._objects.nodes[_children(self._objects, _ROOT).get("__call__", _ROOT)]
        for function in call.function.concrete_functions:
            outputs = self._objects.concrete_functions[function].output_signature.dict_value.fields
            if name in outputs:
                return len(outputs[name].list_value.values)
        return 0


def _is_connected(graph: Any) -> bool:
    """Whether every part of an object is there, and the object that all are parts of."""
    last = len(graph.nodes) - 1
    return last >= _ROOT and all(
        0 <= child.node_id <= last for node in graph.nodes for child in node.children
    )


def _children(graph: Any, number: int) -> dict[str, int]:
    """The parts of an object of a graph of objects: their names and their numbers."""
    return {child.local_name: child.node_id for child in graph.nodes[number].children}
