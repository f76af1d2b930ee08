"""The wheel: its files, its metadata, and the installed commands."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from albert_tf import __version__
from tests.programs import ROOT

INFO = f"albert_tf-{__version__}.dist-info"
BUILD = "import sys, setuptools.build_meta as backend; backend.build_{}(sys.argv[1])"
PRETRAINED = ROOT / "albert_tf" / "pretrained"


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
    modules = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "albert_tf").rglob("*.py*")
        if path.suffix in (".py", ".pyi")
    ]
    data = [str(path.relative_to(ROOT)) for path in PRETRAINED.glob("*/*")]
    licenses = ("licenses/LICENSE", "licenses/albert_tf/pretrained/mini/README.md")
    about = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", *licenses)
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


def test_the_license_covers_code_and_weights(metadata):
    assert metadata["License-Expression"] == "Apache-2.0 AND CC-BY-SA-3.0"


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


COMMANDS = """
set -e
albert_tf --version
albert_tf train_sentencepiece --input_file=text.txt --model_prefix=vocab/small --vocab_size=150
python - <<'END'
import albert_tf
assert albert_tf.load("mini").config.vocab_size == 8000
config = albert_tf.AlbertConfig(
    vocab_size=150, embedding_size=8, hidden_size=12, num_hidden_layers=3, num_attention_heads=2,
    intermediate_size=20,
)
config.to_json_file("albert_config.json")
END
flags="--spm_model_file=vocab/small.model --max_seq_length=32 --max_predictions_per_seq=5"
albert_tf create_pretraining_data $flags --input_file=text.txt --output_file=records --dupe_factor=2
albert_tf run_pretraining $flags --input_file=records --output_dir=pretrained \\
    --albert_config_file=albert_config.json --train_batch_size=4 --num_train_steps=2
albert_tf inspect pretrained
albert_tf convert_checkpoint --model=pretrained --output_dir=converted --format=huggingface
"""


@pytest.mark.slow
def test_from_text_to_a_model_with_the_installed_command(environment, golden, tmp_path):
    shutil.copy(golden / "pretraining_data" / "corpus.txt", tmp_path / "text.txt")
    done = subprocess.run(
        ["bash", "-c", COMMANDS],
        cwd=tmp_path,
        env={"PATH": f"{environment}/bin:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"albert_tf {__version__}\n")
    assert "model.ckpt-2" in done.stdout
    assert (tmp_path / "converted" / "model.safetensors").exists()
