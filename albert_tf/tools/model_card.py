"""The plan of `pretrain` as text, and its summary, which is also the model card `README.md`."""

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tqdm import tqdm

from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.config import AlbertConfig
from albert_tf.data.files import read_utf8, write_files
from albert_tf.modeling.parameter_sharing import parameter_counts
from albert_tf.pretraining.fill_mask import MASK, FillMask
from albert_tf.tokenization.base import WORD_START, Tokenizer
from albert_tf.tools.pretrain_stages import RUN
from albert_tf.training.curves import draw_curves
from albert_tf.training.run_records import METRICS_FILE, read_records

_SHOWN_TEXTS = 3
_PIECES_OF_TEXT = 8, 27  # lengths of the texts in which a word is masked
_CARD = """\
---
language: "{language}"
library_name: transformers
pipeline_tag: fill-mask
---

# ALBERT, {size}, {language}

```text
{summary}
```

![Losses and accuracies of all stages](training_curves.png)

```text
{plan}
```

```bash
{commands}
```
"""
_COMMANDS = """\
# fine-tune
albert_tf run_classifier --task_name=custom --albert_hub_module_handle={run}/model \\
  --train_file=train.csv --dev_file=dev.csv --output_dir=classifier --do_train --do_eval \\
  --max_seq_length={max_seq_length}
# train longer: the same command with {longer}
# export, share
albert_tf export_onnx --model={run}/model --output_file=model.onnx
hf upload NAME {run}/model
hf upload NAME {run}/README.md README.md"""


def describe_plan(plan: Mapping[str, Any], about: str = "", done: float = 0.0) -> Iterator[str]:
    """Yields the lines of a plan.

    `about` is prepended to its estimates, and `done` is the time in seconds of finished stages.
    """
    text = plan["text"]
    yield f"model     {_model(plan)}"
    yield (
        f"text      {about}{text['bytes'] / 1e6:,.1f} MB, {about}{text['tokens'] / 1e6:,.1f} "
        f"million tokens; 1/{text['parts']} is held out"
    )
    yield (
        f"training  {about}{plan['tokens'] / 1e6:,.1f} million tokens, "
        f"{about}{plan['tokens'] / text['tokens']:.2g} times the text"
    )
    for row in plan["stages"]:
        steps, time = "", about + tqdm.format_interval(row["seconds"])
        if row["name"].startswith("training"):
            steps = (
                "{num_train_steps:,} steps of {train_batch_size}, learning rate {learning_rate:g}"
            ).format(**row["settings"])
        yield f"  {row['name']:24} {time:14} {steps}".rstrip()
    seconds = sum(row["seconds"] for row in plan["stages"]) - done
    end = datetime.now() + timedelta(seconds=seconds)
    yield f"end       {about}{end:%A %H:%M}, after {tqdm.format_interval(seconds)}"
    yield from filter(None, [plan.get("note")])


def _model(plan: Mapping[str, Any]) -> str:
    config = AlbertConfig.from_dict(plan["config"])
    counts = parameter_counts(config)
    return (
        f"{plan['size']}: {config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{(counts.encoder + counts.masked_lm_head) / 1e6:.1f} million parameters, "
        f"{config.vocab_size:,} pieces, {config.max_position_embeddings} positions"
    )


def write_card(run: str, plan: Mapping[str, Any], scores: Mapping[str, float]) -> Iterator[str]:
    """Writes `README.md` and the curves of all stages. Yields the lines of the summary."""
    model, settings = os.path.join(run, "model"), plan["settings"]
    tokenizer = load_tokenizer(model)
    texts = [*filter(None, read_utf8(os.path.join(run, "text", "heldout.txt")).splitlines())]
    rows = tokenizer.encode_batch(texts)
    counts = Counter(i for ids in rows for i in ids)
    [(frequent, number)], total = counts.most_common(1), counts.total()
    order = scores.get("sentence_order_accuracy")
    lines = [
        f"model              {_model(plan)}",
        f"held-out text      {len(texts):,} sentences, {total:,} pieces, "
        f"{counts[tokenizer.unk_id] / total:.2%} unknown",
        f"masked-LM accuracy {scores['masked_lm_accuracy']:.1%}, against {number / total:.1%} for "
        f"always predicting {tokenizer.tokens[frequent]!r}",
        *([f"sentence order     {order:.1%}, against 50.0% by chance"] if order else []),
        "",
        *_guesses(model, tokenizer, rows, plan["config"]["max_position_embeddings"]),
    ]
    limit = "num_train_steps" if "num_train_steps" in settings else "hours"
    values = {**settings, "run": run, "size": plan["size"], "summary": "\n".join(lines)}
    values["longer"] = f"--{limit}={2 * settings[limit]:g}"
    commands = _COMMANDS.format(**{n: shlex.quote(str(v)) for n, v in values.items()})
    stages = "\n".join(line for line in describe_plan(plan) if not line.startswith("end "))
    card = _CARD.format(**values, plan=stages, commands=commands)
    records, before = [], 0
    for row in plan["stages"]:
        if row["name"].startswith("training"):
            folder = row["settings"]["output_dir"].replace(RUN, run)
            found = read_records(os.path.join(folder, METRICS_FILE))
            records += [{**record, "step": before + record["step"]} for record in found]
            before += row["settings"]["num_train_steps"]
    records.append({"step": before, "phase": "eval", **scores})
    picture = draw_curves(records, os.path.basename(os.path.abspath(run)))
    names = (os.path.join(run, name) for name in ("README.md", "training_curves.png"))
    write_files(dict(zip(names, (card, picture), strict=True)))
    written = f"{run}: model/ (for all commands and libraries), README.md, training_curves.png"
    yield from ("", *lines, "", written, "", commands)


def _guesses(
    model: str, tokenizer: Tokenizer, rows: Sequence[Sequence[int]], positions: int
) -> Iterator[str]:
    """Yields held-out texts with a masked word, and the model's guesses."""
    least, most = _PIECES_OF_TEXT
    fitting = [ids for ids in rows if least <= len(ids) <= min(most, positions - 4)]
    chosen, texts, answers = fitting[:: len(fitting) // _SHOWN_TEXTS or 1][:_SHOWN_TEXTS], [], []
    for ids in chosen:
        pieces = tokenizer.convert_ids_to_tokens(ids)
        starts = [i for i, piece in enumerate(pieces) if piece.startswith(WORD_START)]
        whole = [i for i in starts if i + 1 in starts] or [len(ids) // 2]  # words of one piece
        place = whole[len(whole) // 2]
        before, after = (tokenizer.decode(part) for part in (ids[:place], ids[place + 1 :]))
        texts.append(f"{before} {MASK} {after}".strip())
        answers.append(pieces[place].removeprefix(WORD_START))
    guesses = FillMask.load(model)(texts, top_k=3) if texts else []
    for text, answer, (candidates, *_) in zip(texts, answers, guesses, strict=True):
        found = ", ".join(f"{one.token} {one.probability:.0%}" for one in candidates)
        yield from (text, f"  {found} (in the text: {answer})")
