"""Which model a notebook starts from."""

import pytest

from albert_tf.checkpoints.report import LoadError
from albert_tf.notebook import choose_model, model


@pytest.fixture
def fetched(monkeypatch):
    """The addresses that were fetched."""
    urls = []
    monkeypatch.setattr(model, "local_directory", lambda url, flag: urls.append(url))
    return urls


def test_a_size_is_a_released_model(fetched):
    url = choose_model("xlarge")
    assert url.endswith("/albert_xlarge_v2.tar.gz")
    assert fetched == [url]


def test_without_a_network_it_is_the_model_of_the_package(monkeypatch, capsys):
    def fail(url, flag):
        raise LoadError(f"{flag}={url} cannot be fetched")

    monkeypatch.setattr(model, "local_directory", fail)
    assert choose_model("base") == "mini"
    printed = capsys.readouterr().out
    assert "albert_base_v2.tar.gz" in printed
    assert "mini" in printed


@pytest.mark.parametrize("other", ["mini", "some/path", "https://tfhub.dev/google/albert_base/3"])
def test_any_other_model_is_taken_as_it_is(fetched, other):
    assert choose_model(other) == other
    assert fetched == []
