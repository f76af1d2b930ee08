"""The zip for GLUE's server: which seeds, which names, the same bytes, nothing missing unsaid."""

import os
import zipfile

import pytest
from absl import logging

from albert_tf.data.glue_tasks import GLUE_TASKS
from albert_tf.glue_results.runs import GlueRun
from albert_tf.glue_results.submission import TEST_ROWS, choose_files, write_submission

FILES = [
    "AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv", "QQP.tsv",
    "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv",
]  # fmt: skip


def make_run(folder, task, seed, score=None, predicts=True):
    path = folder / f"{task}-seed{seed}"
    path.mkdir()
    if predicts:
        file = path / GLUE_TASKS[task].submission_file
        file.write_text(f"index\tprediction\n0\t{task}{seed}\n")
    scores = {} if score is None else {GLUE_TASKS[task].best_metric: score}
    return GlueRun(task, seed, str(path), scores)


@pytest.fixture
def files(tmp_path):
    return choose_files([make_run(tmp_path, task, 1, 0.5) for task in GLUE_TASKS])


class TestChoice:
    def test_the_seed_with_the_best_development_score(self, tmp_path):
        runs = [make_run(tmp_path, "rte", seed, s) for seed, s in ((1, 0.5), (2, 0.7), (3, 0.6))]
        runs += [make_run(tmp_path, "cola", seed, s) for seed, s in ((1, 0.2), (2, 0.2))]
        assert choose_files(runs) == {
            "rte": str(tmp_path / "rte-seed2" / "RTE.tsv"),
            "cola": str(tmp_path / "cola-seed1" / "CoLA.tsv"),
        }

    def test_a_seed_without_predictions_cannot_be_chosen(self, tmp_path):
        runs = [
            make_run(tmp_path, "rte", 1, 0.5),
            make_run(tmp_path, "rte", 2, 0.9, predicts=False),
        ]
        assert choose_files(runs) == {"rte": str(tmp_path / "rte-seed1" / "RTE.tsv")}

    def test_the_sets_of_mnli_are_answered_by_one_model(self, tmp_path):
        runs = [make_run(tmp_path, "mnli", seed, s) for seed, s in ((1, 0.5), (2, 0.7))]
        runs += [make_run(tmp_path, "mismnli", seed, s) for seed, s in ((1, 0.9), (2, 0.3))]
        runs += [make_run(tmp_path, "ax", 1)]
        assert choose_files(runs) == {
            "mnli": str(tmp_path / "mnli-seed2" / "MNLI-m.tsv"),
            "mismnli": str(tmp_path / "mismnli-seed2" / "MNLI-mm.tsv"),
        }


class TestZip:
    def test_it_has_the_names_and_contents_glue_wants(self, tmp_path, files):
        write_submission(str(tmp_path / "out.zip"), files)
        with zipfile.ZipFile(tmp_path / "out.zip") as archive:
            assert archive.namelist() == FILES
            assert archive.read("MNLI-mm.tsv") == b"index\tprediction\n0\tmismnli1\n"
            assert archive.testzip() is None

    def test_the_same_predictions_give_the_same_bytes(self, tmp_path, files):
        write_submission(str(tmp_path / "1.zip"), files)
        for path in files.values():
            os.utime(path, (10**9, 10**9))
            os.chmod(path, 0o600)
        write_submission(str(tmp_path / "2.zip"), dict(reversed(files.items())))
        assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()

    def test_missing_tasks_are_an_error_that_names_them(self, tmp_path, files):
        del files["qqp"], files["ax"]
        with pytest.raises(ValueError, match=r"QQP\.tsv \(qqp\), AX\.tsv \(ax\).*--allow_missing"):
            write_submission(str(tmp_path / "out.zip"), files)
        assert not (tmp_path / "out.zip").exists()

    def test_what_there_is_can_be_zipped(self, tmp_path, files):
        del files["qqp"]
        write_submission(str(tmp_path / "out.zip"), files, allow_missing=True)
        with zipfile.ZipFile(tmp_path / "out.zip") as archive:
            assert archive.namelist() == [name for name in FILES if name != "QQP.tsv"]
        with pytest.raises(ValueError, match="missing: CoLA"):
            write_submission(str(tmp_path / "none.zip"), {}, allow_missing=True)

    def test_a_file_of_something_else_is_refused(self, tmp_path, files):
        for content in ("", "0\tentailment\n"):
            with open(files["rte"], "w") as file:
                file.write(content)
            with pytest.raises(ValueError, match=r"RTE\.tsv is no file of predictions"):
                write_submission(str(tmp_path / "out.zip"), files)
            assert not (tmp_path / "out.zip").exists()

    def test_another_number_of_rows_than_glue_has_is_said(self, tmp_path, files, monkeypatch):
        with open(files["wnli"], "w") as file:
            file.write("index\tprediction\n" + "".join(f"{i}\t0\n" for i in range(146)))
        warnings = []
        monkeypatch.setattr(
            logging, "warning", lambda text, *values: warnings.append(text % values)
        )
        write_submission(str(tmp_path / "out.zip"), files)
        assert len(warnings) == 10
        assert any("RTE.tsv has 1 rows" in text and "has 3000" in text for text in warnings)
        assert not any("WNLI.tsv" in text for text in warnings)

    def test_the_size_of_every_test_set_is_known(self):
        assert set(TEST_ROWS) == set(GLUE_TASKS)
