// Runs models in transformers.js, from local files only. Reads {root, texts, models: [{name, class,
// texts, pairs}]} from the first argument, and writes ids and outputs to the second.
import { readFileSync, writeFileSync } from "node:fs";
import * as transformers from "@huggingface/transformers";

const { AutoTokenizer, env, pipeline } = transformers;
const [input, output] = process.argv.slice(2);
const job = JSON.parse(readFileSync(input, "utf-8"));
env.allowRemoteModels = false;
env.localModelPath = job.root;

const results = { ids: {}, outputs: {}, answers: {} };
for (const { name, kind, task, texts, pairs } of job.models) {
  const tokenizer = await AutoTokenizer.from_pretrained(name);
  if (job.texts[name]) {
    results.ids[name] = job.texts[name].map((text) => tokenizer.encode(text));
  }
  results.outputs[name] = {};
  for (const dtype of ["fp32", "q8"]) {
    const model = await transformers[kind].from_pretrained(name, { dtype });
    for (const text_pair of [null, pairs]) {
      const inputs = tokenizer(texts, { text_pair, padding: true });
      for (const [key, tensor] of Object.entries(await model(inputs))) {
        if (tensor.type !== "float32") continue;
        results.outputs[name][`${dtype} ${text_pair ? "pairs" : "texts"} ${key}`] = tensor.tolist();
      }
    }
  }
  if (task) {
    const run = await pipeline(task, name, { dtype: "fp32" });
    results.answers[name] = await (task === "question-answering"
      ? run(texts[0], pairs[0])
      : run(task === "fill-mask" ? `${texts[0]} [MASK] .` : texts[0]));
  }
}
writeFileSync(output, JSON.stringify(results));
