"""The documentation: links are valid, the index is complete, and all public names are described."""

import inspect
import itertools
import re
import subprocess
from pathlib import Path

import pytest

import albert_tf
from albert_tf.training.cluster import Cluster, cluster_from_environment
from tests.documentation import DOCS, ROOT, blocks_of, prose_of

PAGES = sorted(
    path for folder in (".", "docs", "notebooks") for path in (ROOT / folder).glob("*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
REMOTE = ("http://", "https://", "mailto:")


def prose(path: Path) -> str:
    """Returns a page without code."""
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), prose_of(path))


def anchors(path: Path) -> set[str]:
    """Returns the anchors of the headings, as on GitHub."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE):
        text = LINK.sub("", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        candidates = (f"{slug}-{number}" if number else slug for number in itertools.count())
        found.add(next(candidate for candidate in candidates if candidate not in found))
    return found


def broken_links(path: Path) -> list[str]:
    """Returns the links of a page to missing files or anchors."""
    broken = []
    for link in LINK.findall(prose(path)):
        if link.startswith(REMOTE):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    return broken


def test_broken_links_are_detected(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `code[0]` & more\n## Twice\n## Twice\n"
        "[a](#a-code0--more) [b](#twice-1) [c](page.md#twice)\n"
        "`[no](link)` [d](#twice-2) [e](gone.md) [f](page.md#gone) [g](https://somewhere)\n"
        "```\n[in](code)\n# in code\n```\n[h](#in-code)\n"
    )
    assert broken_links(page) == ["#twice-2", "gone.md", "page.md#gone", "#in-code"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_links_are_valid(path):
    assert broken_links(path) == []


def test_continuous_integration_runs_the_test_command_of_the_readme():
    command = (ROOT / ".ci" / "run").read_text().split()[-1]
    assert re.search(rf"^{re.escape(command)}  # ", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_the_index_lists_every_page():
    listed = {(DOCS / link).resolve() for link in LINK.findall(prose(DOCS / "README.md"))}
    assert [str(path) for path in {*PAGES, *DOCS.glob("api/*.rst")} - listed] == [
        str(DOCS / "README.md")
    ]


def test_the_architecture_lists_all_packages():
    text = (DOCS / "architecture.md").read_text("utf-8")
    table = text.split("| layer |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+(?:\.py|/))`", table))
    there = {path.name for path in (ROOT / "albert_tf").glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in (ROOT / "albert_tf").glob("*/__init__.py")}
    assert there - named == set()
    inner = {path.name for path in (ROOT / "albert_tf").rglob("*.py")} | {"albert_tf/"}
    inner |= {f"{path.name}/" for path in (ROOT / "albert_tf").rglob("*") if path.is_dir()}
    assert {name for name in named - there if name not in inner} == set()


def test_modules_in_pictures_exist():
    source = (DOCS / "pictures" / "data_flow.py").read_text("utf-8")
    named = re.findall(r'"([a-z_]+/[a-z_]*(?:\.py)?)"', source)
    assert len(named) > 25
    assert [name for name in named if not (ROOT / "albert_tf" / name).exists()] == []


def test_the_reference_shows_every_public_name():
    reference = (DOCS / "api" / "public.rst").read_text("utf-8")
    shown = re.findall(
        r"^\.\. (?:autoclass|autofunction|py:data):: (\w+)$", reference, re.MULTILINE
    )
    assert sorted(shown) == sorted(albert_tf.__all__)
    table = reference[: reference.index("Loading and saving models")]
    assert [name for name in albert_tf.__all__ if name not in table] == []


def public_callables() -> list[tuple[str, object]]:
    """Returns public functions, classes, and the public methods that the classes define."""
    found = []
    for name in albert_tf.__all__:
        value = getattr(albert_tf, name)
        if not callable(value):
            continue
        found.append((name, value))
        for method, function in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(function, "__func__", function)
            if not method.startswith("_") and inspect.isfunction(function):
                found.append((f"{name}.{method}", function))
    return found


def undescribed(value: object) -> list[str]:
    """Returns the arguments that the docstring of a callable does not describe."""
    if inspect.isclass(value) and "__init__" not in vars(value):
        return []  # the arguments of its base class
    text = inspect.getdoc(value) or ""
    signature = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls") and parameter.kind != parameter.VAR_KEYWORD
    ]
    if not inspect.isclass(value) and len(names) == 1:
        return []  # the first sentence describes a single argument
    sections = re.findall(r"^(?:Args|Attributes):\n((?: +.*\n?|\n)*)", text, re.MULTILINE)
    entries = re.findall(r"^ {4}\**(\w+(?:, \w+)*):", "\n".join(sections), re.MULTILINE)
    described = set(", ".join(entries).split(", "))
    if "docs/flags.md" in text:  # test_settings.py compares settings and flags
        page = (DOCS / "flags.md").read_text("utf-8")
        described |= set(re.findall(r"^\| `--(?:\[no\])?(\w+)", page, re.MULTILINE))
    return [name for name in names if name not in described and f"`{name}`" not in text]


@pytest.mark.parametrize("name", [name for name, _ in public_callables()])
def test_every_public_name_is_described(name):
    value = dict(public_callables())[name]
    assert inspect.getdoc(value), f"{name} has no docstring"
    assert undescribed(value) == []
    if name.endswith(".call"):
        assert re.search(r"(int32|float\d*) \[B", inspect.getdoc(value)), f"{name} names no shapes"


def test_the_slurm_script_sets_the_cluster(tmp_path):
    """Runs the script of scaling.md with a fake `scontrol` and without the training."""
    (block,) = (b for b in blocks_of(DOCS / "scaling.md") if "scontrol" in b.text)
    lines = block.text.split("exec albert_tf")[0].splitlines()[1:]
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$3" = "n[1-3]" ] && printf "n1\\nn2\\nn3\\n"\n')
    scontrol.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", "\n".join([*lines, 'printf %s "$TF_CONFIG"'])],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SLURM_JOB_NODELIST": "n[1-3]",
            "SLURM_NODEID": "2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    cluster = cluster_from_environment({"TF_CONFIG": done.stdout})
    assert cluster == Cluster(("n1:2222", "n2:2222", "n3:2222"), 2)
