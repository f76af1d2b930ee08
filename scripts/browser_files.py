"""Writes the files of the page "Try it in the browser" next to a built site.

    python -m scripts.browser_files docs/_build [CLASSIFIER]

They are ONNX Runtime and the tokenizers library for browsers, from npm, and int8 ONNX files: of
`mini`, and of CLASSIFIER, a fine-tuned model for single texts with the same tokenizer. Without
Node.js, nothing is written, and the page describes how to get the files.
"""

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import albert_tf

PACKAGES = {"onnxruntime-web": "1.30.0", "@huggingface/tokenizers": "0.2.0"}
MODEL, QUANTIZED = "mini", "onnx/model_quantized.onnx"

# File of the page, and its source in `node_modules`.
LIBRARIES = {
    "ort.js": "onnxruntime-web/dist/ort.wasm.bundle.min.mjs",
    "ort.wasm.gz": "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",
    "tokenizers.js": "@huggingface/tokenizers/dist/tokenizers.min.mjs",
}


def install(folder: Path) -> None:
    """Installs the packages of npm without their scripts."""
    names = [f"{name}@{version}" for name, version in PACKAGES.items()]
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(["npm", "install", *options, *names], cwd=folder, check=True)


def export(model: str, folder: Path) -> Path:
    """Exports a model for JavaScript."""
    albert_tf.export_onnx(model, layout="transformers.js", output_dir=folder)
    return folder


def page_files(work: Path, classifier: str | None) -> tuple[dict[str, bytes], dict]:
    """Returns the content of the files by their names, and the description that the page reads."""
    shared = {name: (work / "node_modules" / path).read_bytes() for name, path in LIBRARIES.items()}
    fill = export(MODEL, work / "fill")
    shared["tokenizer.json.gz"] = (fill / "tokenizer.json").read_bytes()
    shared["tokenizer_config.json"] = (fill / "tokenizer_config.json").read_bytes()
    models = {"fill": fill}
    if classifier:
        models["classify"] = export(classifier, work / "classify")
        rules = (models["classify"] / "tokenizer.json").read_bytes()
        if rules != shared["tokenizer.json.gz"]:
            raise SystemExit(f"{classifier} has another tokenizer than {MODEL}. Fine-tune {MODEL}.")
    files = shared | {f"{task}.onnx.gz": (p / QUANTIZED).read_bytes() for task, p in models.items()}
    files = {n: gzip.compress(c, mtime=0) if n.endswith(".gz") else c for n, c in files.items()}
    described: dict = {"shared": {"bytes": sum(len(files[name]) for name in shared)}}
    for task, path in models.items():
        labels = json.loads((path / "config.json").read_text("utf-8")).get("id2label", {})
        described[task] = {
            "bytes": len(files[f"{task}.onnx.gz"]),
            "labels": [labels[str(number)] for number in range(len(labels))],
        }
    return files, described


def main(site: str, classifier: str | None = None) -> None:
    """Writes the files, the program of the page and its style."""
    if not shutil.which("npm"):
        print('Node.js is not installed. "Try it in the browser" describes how to add its models.')
        return
    source = Path(__file__).parents[1] / "docs" / "browser"
    target = Path(site) / "docs" / "browser"
    with tempfile.TemporaryDirectory() as work:
        install(Path(work))
        files, described = page_files(Path(work), classifier)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (target / name).write_bytes(content)
    for path in source.iterdir():
        shutil.copy(path, target)
    (target / "files.json").write_text(json.dumps(described), encoding="utf-8")
    print({name: f"{task['bytes'] / 1e6:.2f} MB" for name, task in described.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
