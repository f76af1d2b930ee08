"""How Sphinx makes the documentation site; `./docs.sh` runs it.

The pages are the Markdown files that GitHub shows, at the places where they are: the root of the
site is that of the project, so every link between them, and to files of code, works in both.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import inspect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from albert_tf.version import __version__  # noqa: E402

project = "albert_tf"
author = "the authors of albert_tf"
copyright = "the authors of albert_tf, Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/api/**",
    "notebooks/*.md",
    "notebooks/*.ipynb",
    "albert_tf/pretrained/*/*.md",
]
exclude_patterns = ["docs/_build"]
templates_path = [str(ROOT / "docs" / "templates")]

nb_execution_mode = "off"  # notebooks contain their outputs, see scripts/run_notebooks.py

# Markdown, as GitHub reads it.
myst_heading_anchors = 4
myst_enable_extensions = ["alert"]

# Docstrings.
default_role = "name_or_code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "exclude-members": "set_score_request",  # of scikit-learn, with links into its documentation
}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True
suppress_warnings = ["ref.python"]  # a public name is documented twice: as such, and in its module
# Words in backticks need not be names; other libraries have no inventory here; and what is private
# has no entry.
nitpick_ignore_regex = [
    ("py:obj", ".*"),
    ("py:.*", r"(?!albert_tf\b).*"),
    ("py:.*", r"albert_tf\..*\b(_\w+|Model)"),
    ("py:.*", r"albert_tf\..*\.[A-Z]"),  # type variables
]

# Looks.
html_theme = "furo"
html_title = f"albert_tf {__version__}"
html_additional_pages = {"index": "to_front_page.html"}
html_static_path = html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
smartquotes = False  # would make a dash of the two hyphens of a flag
pygments_style = "friendly"

_INDEX = ROOT / "docs" / "README.md"


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Adds the tree of pages to the front page: those that docs/README.md lists, by its headings.

    In the file itself, GitHub would show the tree as code.
    """
    if name == "notebooks/README":
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n/notebooks/*\n```\n"
    if name != root_doc:
        return
    listed = _pages_by_heading(_INDEX.read_text(encoding="utf-8"))
    source[0] += "\n\n```{toctree}\n:hidden:\n\nAll pages </docs/README>\n```\n"
    for caption, pages in listed.items():
        lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
        source[0] += "\n" + "\n".join(lines) + "\n"


def _pages_by_heading(text: str) -> dict[str, list[str]]:
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    result = {}
    for section in sections:
        links = re.findall(r"\[(.+?)\]\(([\w./]+)\.(?:md|rst|ipynb)\)", section)
        paths = [(_INDEX.parent / link).resolve().relative_to(ROOT) for _, link in links]
        result[section.splitlines()[0]] = [
            f"{title} </{path.as_posix()}>" for (title, _), path in zip(links, paths, strict=True)
        ]
    return result


def name_or_code(
    role: str, rawtext: str, text: str, lineno: int, inliner: Any, *_: Any
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Words in single backticks: code, and a link where they are a name of the package."""
    code = rawtext.strip("`")
    literal = nodes.literal(code, code)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", code):
        return [literal], []
    context = inliner.document.settings.env.ref_context
    kind = "class" if _is_class_name(code) else "obj"
    reference = addnodes.pending_xref("", literal, refdomain="py", reftype=kind, reftarget=code)
    reference["refexplicit"] = False
    reference["py:module"] = context.get("py:module")
    reference["py:class"] = context.get("py:class")
    return [reference], []


def make_fields(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Makes fields of what napoleon does not know, or takes for something else.

    These are the paragraphs `Source:` and `Differs:`, and the sections `Returns:` and `Yields:`,
    whose first colon belongs to the sentence: no type stands before it.
    """
    result: list[str] = []
    field = None
    for line in _repeat_descriptions(lines):
        label = re.match(r"(Source|Differs|Returns|Yields):(.*)", line)
        is_paragraph = field in ("Source", "Differs")
        if label:
            field = label[1]
            result += ["", f":{field}:{label[2]}"]
        elif is_paragraph and line:
            result.append(f"    {line.strip()}")
        else:
            if is_paragraph or (line and not line.startswith(" ")):
                field = None
            result.append(line)
    lines[:] = result


def show_examples(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Shows what is indented in the docstring of a module, commands mostly, as it is written."""
    if what != "module":
        return
    result: list[str] = []
    is_indented = False
    for line in lines:
        if line.startswith("    ") and not is_indented and not result[-1]:
            result += ["::", ""]
        if line:
            is_indented = line.startswith("    ")
        result.append(line)
    lines[:] = result


def _repeat_descriptions(lines: list[str]) -> list[str]:
    """Gives each of several names before one description a description of its own."""
    result: list[str] = []
    names: list[str] = []
    description: list[str] = []
    for line in [*lines, ""]:
        if names and not line.startswith("     "):
            first, *others = description
            for name in names:
                result += [f"    {name}:{first}", *others]
            names = []
        several = re.match(r" {4}((?:\w+, )+\w+):(.*)", line)
        if several:
            names, description = several[1].split(", "), [several[2]]
        elif names:
            description.append(line)
        else:
            result.append(line)
    return result


def _is_class_name(code: str) -> bool:
    return re.fullmatch(r"[A-Z]+[a-z]\w*", code) is not None


def link_by_name(app: Sphinx, doctree: nodes.document) -> None:
    """Looks for classes in all modules, and for anything else in its own module alone.

    Names of classes are those of one thing each; `name` or `config` are those of many.
    """
    for reference in doctree.findall(addnodes.pending_xref):
        if reference["refdomain"] == "py" and reference["reftype"] != "exc":
            reference["refspecific"] = _is_class_name(reference["reftarget"])


def show_constructor(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str, returns: str
) -> tuple[str, str] | None:
    """Shows the arguments of Keras classes, which Keras itself hides behind `*args, **kwargs`."""
    if what != "class" or arguments != "(*args, **kwargs)":
        return None
    signature = inspect.signature(obj.__init__, bound_method=True)
    return inspect.stringify_signature(signature, unqualified_typehints=True), ""


def set_dashes(app: Sphinx, doctree: nodes.document) -> None:
    """Sets the two hyphens between a parameter and its description as a dash."""
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def setup(app: Sphinx) -> None:
    """Registers what is made here."""
    app.add_role("name_or_code", name_or_code)
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", make_fields, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", show_examples)
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("doctree-read", link_by_name)
    app.connect("doctree-read", set_dashes)
