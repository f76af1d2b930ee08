"""Files for code hosts and other tools: workflow, hooks, templates, citation."""

import shlex
from pathlib import Path

import yaml

from albert_tf.version import __version__
from tests.documentation import ROOT

GITHUB = ROOT / ".github"


def read(path: Path):
    return yaml.safe_load(path.read_text("utf-8"))


def test_workflow_runs_all_checks_and_weekly_the_slow_tests():
    workflow = read(GITHUB / "workflows" / "tests.yml")
    jobs, triggers = workflow["jobs"], workflow[True]  # YAML 1.1 reads the key `on` as a boolean
    assert jobs["tests"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert 'requires-python = ">=3.11,<3.14"' in (ROOT / "pyproject.toml").read_text("utf-8")
    commands = {name: job["steps"][-1]["run"] for name, job in jobs.items()}
    assert commands == {
        "tests": "PYTHON=python${{ matrix.python }} ./test.sh",
        "slow": "PYTHON=python3.13 ./test.sh --all -m slow",
    }
    assert triggers["schedule"][0]["cron"].split()[2:] == ["*", "*", "1"]
    assert {"push", "pull_request"} <= triggers.keys()
    assert "schedule" in jobs["slow"]["if"]


def test_hooks_run_the_linters_of_test_sh():
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    found = [shlex.split(hook["entry"])[2:] for hook in repository["hooks"]]
    lines = (ROOT / "test.sh").read_text("utf-8").splitlines()
    checks = [line.split()[1:] for line in lines if line.startswith(("run ruff", "run mypy"))]
    assert found == checks


def test_issue_templates():
    paths = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
    assert [path.stem for path in paths] == ["bug_report", "feature_request"]
    for path in paths:
        form = read(path)
        assert {"name", "description", "body"} <= form.keys()
        identifiers = [field["id"] for field in form["body"]]
        assert len(set(identifiers)) == len(identifiers) > 0
        assert all(field["type"] == "textarea" and field["attributes"] for field in form["body"])


def test_citation():
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()  # required by the format
    assert citation["version"] == __version__
    assert citation["preferred-citation"]["title"].startswith("ALBERT: A Lite BERT")
