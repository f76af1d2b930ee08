"""The server and the clients of docs/server.md, in processes that exchange requests."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictResponse
from tensorflow_serving.apis.prediction_service_pb2_grpc import (
    PredictionServiceServicer,
    add_PredictionServiceServicer_to_server,
)

from albert_tf.classification.export import export_text_classifier
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForClassification
from tests.documentation import DOCS, blocks_of
from tests.text_models import CONFIG

pytestmark = pytest.mark.slow


def block_with(text: str) -> str:
    (found,) = [block.text for block in blocks_of(DOCS / "server.md") if text in block.text]
    return found


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("exported"))
    model = AlbertForClassification(CONFIG, 2)
    return export_text_classifier(model, Labels(("no", "yes")), tokenizer, folder, 19, True)


@pytest.fixture(scope="module")
def model(exported):
    return tf.saved_model.load(exported)


def post(url: str, body: bytes) -> tuple[int, dict]:
    try:
        with urlopen(url, body, timeout=600) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def test_the_python_server_answers_the_requests_of_the_page(exported, model, tmp_path):
    function = model.signatures["serving_default"]
    program = tmp_path / "serve.py"
    program.write_text(block_with("ThreadingHTTPServer("))
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, program, f"{exported}/..", str(port)]
    url = f"http://localhost:{port}/v1/models/mrpc:predict"
    with subprocess.Popen(command) as process:
        try:
            for _ in range(6000):
                try:
                    assert json.load(urlopen(url)) == {"state": "AVAILABLE"}
                    break
                except URLError:
                    assert process.poll() is None
                    time.sleep(0.1)
            bodies = [json.loads(body) for body in re.findall("-d '(.*)'", block_with("curl -d"))]
            rows, columns = bodies[0]["instances"], bodies[1]["inputs"]
            assert rows == [{name: texts[0] for name, texts in columns.items()}]
            status, answer = post(url, json.dumps(bodies[0]).encode())
            assert status == 200
            expected = function(**{name: tf.constant(texts) for name, texts in columns.items()})
            (row,) = answer["predictions"]
            assert row["predicted_labels"] == expected["predicted_labels"][0].numpy().decode()
            np.testing.assert_allclose(
                row["probabilities"], expected["probabilities"][0], rtol=0, atol=1e-5
            )
            for body, code in (
                (b"[1]", 400),
                (b"{", 400),
                (b'{"instances": [{"texts_a": "a"}]}', 400),
                (b'{"instances": [{"texts_a": "a", "texts_b": "%s"}]}' % (b"x" * 60_000), 400),
                (b" " * 1_000_001, 413),
            ):
                status, answer = post(url, body)
                assert (status, list(answer)) == (code, ["error"])
        finally:
            process.send_signal(signal.SIGTERM)


def test_the_grpc_client_reads_the_answer(model, capsys):
    function = model.signatures["serving_default"]

    class Service(PredictionServiceServicer):
        """Computes in this process what TensorFlow Serving would answer."""

        def Predict(self, request, context):  # noqa: N802
            assert request.model_spec.name == "mrpc"
            inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
            response = PredictResponse()
            for name, value in function(**{k: tf.constant(v) for k, v in inputs.items()}).items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(ThreadPoolExecutor(1))
    add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    exec(block_with("PredictionServiceStub").replace("8500", str(port)).replace("=5", "=600"), {})
    server.stop(None)
    assert capsys.readouterr().out.strip() in ("no", "yes")
