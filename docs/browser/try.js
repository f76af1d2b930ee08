// The demonstration of docs/browser.md. All files are next to this one; scripts/browser_files.py
// writes them. After loading, nothing is fetched any more.

const ANSWERS = 5;

const TASKS = {
  fill: {
    title: "Fill a mask",
    hint: "Write [MASK] where a word is missing.",
    examples: [
      "He was born in London and studied at the [MASK] of Cambridge.",
      "The river flows into the Atlantic [MASK].",
      "She won the gold [MASK] at the Olympic Games.",
      "The population was 2,340 at the 2010 [MASK].",
      "He died of a heart [MASK] at the age of 72.",
    ],
    answer: fillMask,
  },
  classify: {
    title: "Is a film review positive?",
    hint: "Write a sentence about a film.",
    examples: [
      "A moving and beautifully acted story about friendship.",
      "Two hours of boring jokes and terrible acting.",
      "One of the best comedies of the year.",
      "The plot is a mess and the dialogue is painful.",
    ],
    answer: classify,
  },
};

let shared; // ONNX Runtime and the tokenizer
let loading; // promise of the same, so that two models load them once
let queue = Promise.resolve(); // a session can run only one text at a time

/** Returns the content of a file, decompressed. */
async function read(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${name} cannot be loaded (status ${response.status}).`);
  const bytes = await response.arrayBuffer();
  const [first, second] = new Uint8Array(bytes);
  if (first !== 0x1f || second !== 0x8b) return bytes; // the browser has already decompressed it
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const readJson = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));

async function loadShared() {
  const [ort, { Tokenizer }, wasm, rules, settings] = await Promise.all([
    import("./ort.js"),
    import("./tokenizers.js"),
    read("ort.wasm.gz"),
    readJson("tokenizer.json.gz"),
    readJson("tokenizer_config.json"),
  ]);
  ort.env.wasm.numThreads = 1; // threads would need headers that most static servers do not send
  ort.env.wasm.wasmBinary = wasm;
  const tokenizer = new Tokenizer(rules, settings);
  return { ort, tokenizer, pieces: rules.model.vocab, longest: settings.model_max_length };
}

/** Returns the logits of a text, and its token ids. */
async function run(session, text) {
  const { ort, tokenizer, longest } = shared;
  const { ids } = tokenizer.encode(text);
  if (ids.length > longest) {
    throw new Error(`The text has ${ids.length} tokens. The model reads at most ${longest}.`);
  }
  const tensor = (values) =>
    new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, ids.length]);
  const inputs = {
    input_ids: tensor(ids),
    attention_mask: tensor(ids.map(() => 1)),
    token_type_ids: tensor(ids.map(() => 0)),
  };
  const { logits } = await session.run(inputs, ["logits"]);
  return { ids, logits: logits.data };
}

/** Returns the most likely names with their probabilities. */
function ranked(logits, nameOf) {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const powers = Array.from(logits, (value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b);
  const best = powers.map((value, index) => [nameOf(index), value / sum]);
  return best.sort((a, b) => b[1] - a[1]).slice(0, ANSWERS);
}

async function fillMask({ session }, text) {
  const { tokenizer, pieces } = shared;
  const { ids, logits } = await run(session, text);
  const position = ids.indexOf(tokenizer.token_to_id("[MASK]"));
  if (position < 0) throw new Error(TASKS.fill.hint);
  const size = pieces.length;
  const scores = logits.subarray(position * size, (position + 1) * size);
  return ranked(scores, (index) => pieces[index][0].replace("▁", ""));
}

async function classify({ session, labels }, text) {
  if (!text.trim()) throw new Error(TASKS.classify.hint);
  const names = { 0: "negative", 1: "positive" }; // labels of SST-2
  return ranked((await run(session, text)).logits, (index) => names[labels[index]] ?? labels[index]);
}

function element(kind, className, text, parent) {
  const made = document.createElement(kind);
  made.className = className;
  made.textContent = text;
  parent?.append(made);
  return made;
}

function showAnswers(list, answers) {
  list.replaceChildren();
  for (const [name, probability] of answers) {
    const row = element("li", "", "", list);
    element("span", "try-name", name, row);
    element("meter", "", "", row).value = probability;
    element("span", "try-share", `${(100 * probability).toFixed(1)}%`, row);
  }
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

/** Adds a form that answers while a text is written. */
function addForm(section, task, model, loaded) {
  const input = element("textarea", "", "", section);
  input.rows = 2;
  input.setAttribute("aria-label", task.hint);
  const examples = element("p", "try-examples", "", section);
  const list = element("ol", "try-answers", "", section);
  const status = element("p", "try-status", "", section);
  status.setAttribute("aria-live", "polite");
  const answer = async () => {
    try {
      const start = performance.now();
      const answers = await task.answer(model, input.value);
      const time = performance.now() - start;
      showAnswers(list, answers);
      status.textContent = `${loaded} Answered in ${time.toFixed(1)} ms.`;
    } catch (error) {
      list.replaceChildren();
      status.textContent = error.message;
    }
  };
  const update = () => (queue = queue.then(answer));
  input.addEventListener("input", update);
  for (const text of task.examples) {
    element("button", "", text, examples).addEventListener("click", () => {
      input.value = text;
      update();
    });
  }
  input.value = task.examples[0];
  update();
}

/** Adds a task with a button that loads its model. */
function addTask(root, name, files) {
  const task = TASKS[name];
  const section = element("section", "try-task", "", root);
  element("h3", "", task.title, section);
  element("p", "", task.hint, section);
  const button = element("button", "try-load", "", section);
  const bytes = () => files[name].bytes + (shared ? 0 : files.shared.bytes);
  const label = () => (button.textContent = `Load the model (${megabytes(bytes())})`);
  root.addEventListener("loaded", label);
  label();
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const [size, start] = [bytes(), performance.now()];
      const [common, content] = await Promise.all([
        (loading ??= loadShared()),
        read(`${name}.onnx.gz`),
      ]);
      shared = common;
      const session = await shared.ort.InferenceSession.create(content);
      const seconds = ((performance.now() - start) / 1000).toFixed(1);
      button.remove();
      const loaded = `Loaded ${megabytes(size)} in ${seconds} s. You can go offline now.`;
      addForm(section, task, { session, labels: files[name].labels }, loaded);
      root.dispatchEvent(new Event("loaded"));
    } catch (error) {
      loading = shared;
      button.disabled = false;
      button.textContent = `${error.message} Try again.`;
    }
  });
}

const root = document.getElementById("try");
const files = await readJson("files.json");
root.replaceChildren();
for (const name of Object.keys(TASKS)) if (files[name]) addTask(root, name, files);
