"""The wheel: its files, its metadata, and the installed commands."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from albert_tf import __version__
from tests.programs import ROOT, command_line

INFO = f"albert_tf-{__version__}.dist-info"
BUILD = "import sys, setuptools.build_meta as backend; backend.build_{}(sys.argv[1])"
PRETRAINED = ROOT / "albert_tf" / "pretrained"
# Code of a library that uses this package.
CONSUMER = """
import albert_tf

config = albert_tf.AlbertConfig.from_preset("base_v2")
reveal_type(config.hidden_size)
albert_tf.load(path=3)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy without the files of earlier builds."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("albert_tf", "benchmarks", "scripts", "requirements", "docs"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "tests").mkdir()
    (checkout / "tests" / "conftest.py").touch()
    for path in [*ROOT.glob("*.py"), *ROOT.glob("*.txt"), *ROOT.glob("*.md")]:
        shutil.copy(path, checkout)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    shutil.copy(ROOT / "LICENSE", checkout)
    return checkout


def built(checkout: Path, kind: str) -> Path:
    """Builds a "wheel" or an "sdist" and returns its path."""
    folder = checkout.parent / f"{checkout.name}-{kind}"
    command = [sys.executable, "-c", BUILD.format(kind), folder]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    return built(checkout, "wheel")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{INFO}/METADATA").decode())


def requirements(file: str, extra: str = "") -> set[str]:
    """Returns the normalized requirements in a file, as requirements of an extra."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines())
    found = [Requirement(line) for line in lines if line]
    for requirement in found if extra else ():
        own = f"({requirement.marker}) and " if requirement.marker else ""
        requirement.marker = Marker(f'{own}extra == "{extra}"')
    return set(map(str, found))


def test_the_wheel_contains_only_the_package_and_one_command(wheel):
    assert wheel.name == f"albert_tf-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        found = archive.namelist()
        commands = archive.read(f"{INFO}/entry_points.txt").decode().split()
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "albert_tf").rglob("*.py")]
    data = [str(path.relative_to(ROOT)) for path in PRETRAINED.glob("*/*")]
    about = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    expected = [*modules, *data, "albert_tf/py.typed", *(f"{INFO}/{name}" for name in about)]
    assert sorted(found) == sorted(expected)
    assert commands == ["[console_scripts]", "albert_tf", "=", "albert_tf.__main__:main"]


def test_the_pretrained_model_is_in_the_source_distribution(checkout):
    with tarfile.open(built(checkout, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path.relative_to(ROOT)) for path in PRETRAINED.glob("*/*")} <= names


def test_requirements_equal_the_requirements_files(metadata):
    found = {str(Requirement(line)) for line in metadata.get_all("Requires-Dist")}
    expected = requirements("requirements.txt") | requirements("requirements-dev.txt", "dev")
    for path in (ROOT / "requirements").glob("*.txt"):
        if path.stem != "tpu":  # installed from the file
            expected |= requirements(f"requirements/{path.name}", path.stem)
            if path.stem != "gpu":
                expected |= requirements(f"requirements/{path.name}", "dev")
    assert found == expected


def test_tpu_requirements_differ_only_in_tensorflow():
    """Packages that require tensorflow are installed by commands in docs/scaling.md."""
    page = (ROOT / "docs" / "scaling.md").read_text("utf-8")
    names = re.findall(r'"([\w.-]+?)[<>=]', page[page.index("--no-deps") :].split("\n\n")[0])
    assert names == ["tensorflow-text", "tf-keras", "tensorflow-hub"]
    there = {line for line in requirements("requirements/tpu.txt") if "tpu" not in line}
    assert there == {
        line for line in requirements("requirements.txt") if not line.startswith("tensorflow")
    }


def test_the_description_has_no_relative_links(metadata):
    description = metadata.get_payload()
    assert description.strip().startswith("# albert_tf\n")
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href)=[\"']([^\"']*)", description)
    assert not [target for target in targets if not any(t.startswith("https://") for t in target)]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a new environment with the wheel and its requirements."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", wheel], check=True)
    return folder


def run(environment: Path, folder: Path, command: str, **flags: object) -> str:
    """Runs the installed command in a folder; returns its output."""
    done = subprocess.run(
        [environment / "bin" / "albert_tf", *command.split(), *command_line(flags)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_from_text_to_a_model_with_the_installed_command(environment, golden, tmp_path):
    (tmp_path / "text.txt").write_bytes((golden / "pretraining_data" / "corpus.txt").read_bytes())
    assert run(environment, tmp_path, "--version") == f"albert_tf {__version__}\n"
    run(
        environment, tmp_path, "train_sentencepiece",
        input_file="text.txt", model_prefix="vocab/small", vocab_size=150,
    )  # fmt: skip
    program = (
        "import albert_tf; assert albert_tf.load('mini').config.vocab_size == 8000; "
        "albert_tf.AlbertConfig(vocab_size=150, embedding_size=8, "
        "hidden_size=12, num_hidden_layers=3, num_attention_heads=2, intermediate_size=20)"
        ".to_json_file('albert_config.json')"
    )
    subprocess.run([environment / "bin" / "python", "-c", program], cwd=tmp_path, check=True)
    run(
        environment, tmp_path, "create_pretraining_data",
        input_file="text.txt", output_file="records", spm_model_file="vocab/small.model",
        max_seq_length=32, max_predictions_per_seq=5, dupe_factor=2, num_workers=2,
    )  # fmt: skip
    pretrained: Mapping[str, object] = {
        "input_file": "records", "output_dir": "pretrained", "train_batch_size": 4,
        "albert_config_file": "albert_config.json", "spm_model_file": "vocab/small.model",
        "max_seq_length": 32, "max_predictions_per_seq": 5, "num_train_steps": 2,
    }  # fmt: skip
    run(environment, tmp_path, "run_pretraining", **pretrained)
    assert "model.ckpt-2" in run(environment, tmp_path, "inspect pretrained")
    run(
        environment, tmp_path, "convert_checkpoint",
        model="pretrained", output_dir="converted", format="huggingface",
    )  # fmt: skip
    assert (tmp_path / "converted" / "model.safetensors").exists()


@pytest.mark.slow
def test_type_checkers_see_the_types_of_the_installed_package(environment, tmp_path):
    (tmp_path / "consumer.py").write_text(CONSUMER)
    python = environment / "bin" / "python"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", f"--python-executable={python}", "consumer.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    notes = done.stdout.splitlines()
    assert notes[0] == 'consumer.py:5: note: Revealed type is "int"'
    assert notes[1].startswith('consumer.py:6: error: Argument "path" to "load" has incompatible')
    assert len(notes) == 3, done.stdout  # the last line is the total
