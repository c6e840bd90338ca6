// The script of every page: the colours, the records behind a strip, and, on the front page, search and queries.
// It is one plain file, so that pages work from a folder, where browsers load no modules and fetch nothing.
"use strict";

const root = document.body.dataset.root;
const loaded = {};
const waiting = {};

// The data files call this: recapture_data("cells", {…}).
window.recapture_data = (name, value) => {
  loaded[name] = value;
  for (const resolve of waiting[name] || []) resolve(value);
};

function load(name) {
  if (name in loaded) return Promise.resolve(loaded[name]);
  return new Promise((resolve) => {
    if (!waiting[name]) {
      waiting[name] = [];
      if (name !== "common") {
        const script = document.createElement("script");
        script.src = `${root}assets/${name}.js`;
        document.head.append(script);
      }
    }
    waiting[name].push(resolve);
  });
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null && child !== ""));
  return made;
}

// Colours

document.querySelector(".theme").addEventListener("click", () => {
  const html = document.documentElement;
  const dark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  html.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", html.dataset.theme);
  } catch {
    // A browser may keep no storage for files: the choice then holds for this page.
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    // Without the right to write to the clipboard, the command is selected, to be copied by hand.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "selected";
  }
  setTimeout(() => (button.textContent = "copy"), 1500);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.querySelector("#q, .find input").focus();
  }
});

for (const form of document.querySelectorAll("form.find")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = new FormData(form).get("q");
    location.href = `${root}index.html#q=${encodeURIComponent(words)}`;
  });
}

// A row without records of its own leads to its page, wherever it is clicked.
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-link]");
  if (row && !event.target.closest("a")) row.querySelector("th a").click();
});

// Strips: one stop of the Tab key for each table, and the arrow keys within it

function prepareStrips(table) {
  const links = [...table.querySelectorAll("tbody td > a")];
  links.forEach((link, place) => (link.tabIndex = place ? -1 : 0));
}
document.querySelectorAll("table.strips").forEach(prepareStrips);

// What is wider than a narrow screen begins at its right end, where the newest release is.
document.querySelectorAll(".bars, .scroll:has(.dense:not(.marks))").forEach((wide) => { wide.scrollLeft = wide.scrollWidth; });

document.addEventListener("keydown", (event) => {
  const link = event.target.closest("table.strips td > a");
  if (!link) return;
  const rows = [...link.closest("tbody").querySelectorAll("tr[data-key]")].map((row) => [...row.querySelectorAll("td > a")]);
  const row = rows.findIndex((links) => links.includes(link));
  const column = rows[row].indexOf(link);
  const middle = (one) => {
    const box = one.getBoundingClientRect();
    return (box.left + box.right) / 2;
  };
  const nearest = (links) => {
    const at = middle(link);
    return links && links.reduce((best, one) => (Math.abs(middle(one) - at) < Math.abs(middle(best) - at) ? one : best), links[0]);
  };
  const targets = {
    ArrowRight: rows[row][column + 1],
    ArrowLeft: rows[row][column - 1],
    ArrowDown: nearest(rows.slice(row + 1).find((links) => links.length)),
    ArrowUp: nearest(rows.slice(0, row).reverse().find((links) => links.length)),
    Home: rows[row][0],
    End: rows[row][rows[row].length - 1],
  };
  if (!(event.key in targets)) return;
  event.preventDefault();
  const target = targets[event.key];
  if (!target) return;
  for (const other of link.closest("table").querySelectorAll("td > a[tabindex='0']")) other.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
});

// What a strip says, with its releases, where only its symbol has room
document.addEventListener("mouseover", (event) => {
  const link = event.target.closest("table.strips td > a, table.strips td > div");
  if (!link || link.title || link.closest(".record")) return;
  const cell = link.parentElement;
  const before = [...cell.parentElement.cells].slice(0, cell.cellIndex).reduce((sum, one) => sum + one.colSpan, 0);
  const heads = [...link.closest("table").querySelectorAll("thead th.release")].slice(before - 1, before - 1 + cell.colSpan).map((head) => head.textContent.trim());
  link.title = `${heads[0]}${heads.length > 1 ? `–${heads[heads.length - 1]}` : ""}: ${link.textContent.trim()}`;
});

// The records behind a strip: the address #suite::case::compiler@2.11.0/cpu opens them

const pageData = document.getElementById("page-data");
const page = pageData && JSON.parse(pageData.textContent);

function closeRecords() {
  for (const row of document.querySelectorAll("tr.record")) row.remove();
  for (const row of document.querySelectorAll("tr.open")) row.classList.remove("open");
}

function commands(common, cell, release, capability, group) {
  const [suite, name, compiler] = splitCell(cell);
  const file = page.files[`${suite}::${name}`];
  const image = (common.images[capability] || {})[release] || "";
  const device = capability === "cpu" ? "" : " --device cuda";
  if (file) return [`recapture run ${file} -k ${name} --compiler ${compiler}${device}`];
  const where = image.startsWith("bare-") ? "" : ` --image ${image}`;
  const lines = [`recapture run ${cell}${where}${device}`, `recapture repro ${cell}${device} > repro.py`];
  // The smallest program that shows the same.
  if (group === "silently wrong" || group === "failing") lines.push(`recapture reduce ${cell}${device}`);
  return lines;
}

function splitCell(cell) {
  const [suite, name, ...compiler] = cell.split("::");
  return [suite, name, compiler.join("::")];
}

async function openFromAddress() {
  const address = decodeURIComponent(location.hash.slice(1));
  closeRecords();
  const match = /^(.*::.*::.*)@([^/]+)\/(\w+)$/.exec(address);
  if (!page || !match) return;
  const [, cell, release, capability] = match;
  const strip = page.cells[cell] && page.cells[cell][capability];
  const row = [...document.querySelectorAll("tr[data-key]")].find((one) => one.dataset.key === cell);
  if (!strip || !row) return;
  const common = await load("common");
  const at = common.releases.indexOf(release);
  const [marks, runs] = strip;
  let first = at;
  let last = at;
  while (first > 0 && marks[first - 1] === marks[at]) first -= 1;
  while (last < marks.length - 1 && marks[last + 1] === marks[at]) last += 1;
  const facts = common.marks[marks[at]];
  if (!facts) return;
  const span = (from, to) => (from === to ? common.releases[from] : `${common.releases[from]}–${common.releases[to]}`);
  const [suite, name, compiler] = splitCell(cell);
  const list = element("dl");
  const summary = phrase(common, marks);
  if (summary) list.append(element("dt", {}, "in short"), element("dd", {}, summary.words));
  const within = runs.filter((run, place) => run[0] <= last && (place + 1 === runs.length || runs[place + 1][0] > first));
  for (const run of within) {
    const from = Math.max(run[0], first);
    const next = runs[runs.indexOf(run) + 1];
    const to = Math.min(next ? next[0] - 1 : last, last);
    const text = run[1] == null ? "nothing else is recorded" : page.texts[run[1]];
    const kinds = (run[2] || []).join(", ");
    list.append(element("dt", {}, span(from, to)), element("dd", {}, kinds ? element("strong", {}, `${kinds}: `) : "", element("code", {}, text)));
  }
  const threads = Object.entries(page.threads[`${suite}::${name}`] || {})
    .filter(([, compilers]) => !compilers.length || compilers.includes(compiler))
    .map(([link]) => link);
  if (threads.length) {
    const links = threads.flatMap((link) => [element("a", { href: link, rel: "noreferrer" }, link.replace("https://", "")), element("br")]);
    list.append(element("dt", {}, "threads"), element("dd", {}, ...links));
  }
  const image = (common.images[capability] || {})[release];
  if (image) list.append(element("dt", {}, "record"), element("dd", {}, element("code", {}, `results/${image}/${capability}/conformance.jsonl`)));
  const close = element("button", { type: "button", class: "close" }, "close");
  close.addEventListener("click", () => leaveRecord(row));
  const how = element("div", { class: "how" });
  for (const command of commands(common, cell, release, capability, facts.group)) {
    how.append(element("div", {}, element("span", { class: "command" }, element("code", {}, command), element("button", { type: "button", class: "copy", "data-copy": command, "aria-label": "Copy the command" }, "copy"))));
  }
  const device = capability === "cpu" ? "the CPU" : `${common.hardware[capability] || capability}`;
  const head = element("h4", {}, element("span", { class: `pill t-${facts.tone}` }, `${common.symbols[facts.tone]} ${facts.short}`), element("span", {}, `${compiler}, ${span(first, last)}, on ${device}: ${facts.words}`), close);
  const width = row.cells.length ? [...row.cells].reduce((sum, one) => sum + one.colSpan, 0) : 1;
  row.classList.add("open");
  const record = element("tr", { class: "record" }, element("td", { colspan: width }, head, list, how));
  row.after(record);
  // The browser has scrolled to the part of the page that the address names, if it is an element's: this comes later.
  requestAnimationFrame(() => record.scrollIntoView({ block: "center" }));
}

function leaveRecord(row) {
  history.replaceState(null, "", "#");
  closeRecords();
  const link = row.querySelector("td > a");
  if (link) link.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const open = document.querySelector("tr.open");
  if (open) leaveRecord(open);
});

if (page) {
  addEventListener("hashchange", openFromAddress);
  openFromAddress();
}

// What a strip amounts to, in words, as `recapture.tools.site.strips.phrase` says it; null if nothing is recorded.
function phrase(common, marks) {
  const names = { wrong: "silently wrong", failing: "fails", broken: "right, with graph breaks", right: "right" };
  const spans = [];
  common.releases.forEach((release, at) => {
    const facts = common.marks[marks[at]];
    if (!facts || facts.tone === "none") return;
    const last = spans[spans.length - 1];
    if (last && last.tone === facts.tone) last.last = release;
    else spans.push({ tone: facts.tone, first: release, last: release });
  });
  if (!spans.length) return /^\.*$/.test(marks) ? null : { tone: "none", words: "does not apply to any release" };
  const [begin, middle] = spans;
  const now = spans[spans.length - 1];
  const tone = now.tone;
  const late = begin.first !== common.releases[0];
  const since = late ? `, from ${begin.first} on` : "";
  if (spans.length === 1) {
    if (now.first === now.last) return { tone, words: `${names[tone]} on ${now.first}` };
    return { tone, words: `${names[tone]} on every release${late ? ` from ${begin.first} on` : ""}` };
  }
  if (spans.length === 2) return { tone, words: `${names[begin.tone]} until ${begin.last}, ${names[tone]} since ${now.first}${since}` };
  if (spans.length === 3 && begin.tone === now.tone) {
    return { tone, words: `${names[middle.tone]} since ${middle.first}, ${names[tone]} again in ${now.first}${since}` };
  }
  const words = spans.map((span) => `${names[span.tone]} ${span.first === span.last ? `on ${span.first}` : `${span.first}–${span.last}`}`);
  return { tone, words: words.join(", ") };
}

// Queries over cells

const OUTCOMES = {
  right: (facts) => facts.group === "right",
  breaks: (facts) => facts.tone === "broken",
  wrong: (facts) => facts.group === "silently wrong",
  failing: (facts) => facts.group === "failing",
  refused: (facts, mark) => mark === "E",
  "not-run": (facts) => facts.group === "not run",
};

const KEYS = new Set("always behaviour calls case changed compiler cpu cuda ever family first-bad fixed gpu is kind on suite".split(" "));

class Query {
  // Parses a text; `fault` says what is wrong with it. Words that are no terms are in `words`.
  constructor(text, common) {
    this.common = common;
    this.words = [];
    this.terms = 0;
    this.fault = "";
    this.capability = null;
    this.tokens = text.match(/-?[\w*.>-]+:"[^"]*"|-?seq\([^)]*\)|[()]|[^\s()]+/g) || [];
    this.place = 0;
    this.test = this.either();
    while (this.place < this.tokens.length) {
      this.place += 1; // a closing parenthesis without an opening one
      const more = this.either();
      const before = this.test;
      this.test = (cell) => before(cell) && more(cell);
    }
  }

  either() {
    let test = this.all();
    while (this.tokens[this.place] === "or" && this.terms) {
      this.place += 1;
      const [left, right] = [test, this.all()];
      test = (cell) => left(cell) || right(cell);
    }
    return test;
  }

  all() {
    const tests = [];
    const devices = [];
    while (this.place < this.tokens.length && this.tokens[this.place] !== ")") {
      const token = this.tokens[this.place];
      if (token === "or" && this.terms) break;
      this.place += 1;
      if (token === "(" && this.isTerm(this.tokens[this.place] || "")) {
        const inner = this.either();
        this.place += 1;
        tests.push(inner);
      } else if (this.isTerm(token)) {
        this.terms += 1;
        const negated = token.startsWith("-");
        const term = this.term(negated ? token.slice(1) : token);
        if (term.device && !negated) devices.push(term);
        else tests.push(negated ? (cell) => !this.holds(term, cell) : (cell) => this.holds(term, cell));
      } else {
        this.words.push(token);
      }
    }
    // In one and the same release: the releases of a term are the bits of a number.
    if (devices.length) tests.push((cell) => devices.reduce((bits, term) => bits & term.device(cell), ~0) !== 0);
    return (cell) => tests.every((test) => test(cell));
  }

  holds(term, cell) {
    return term.device ? term.device(cell) !== 0 : term.cell(cell);
  }

  isTerm(token) {
    if (/^-?(seq\(.*\)|no-thread|has-thread|\d+(\.\d+)+:.+)$/.test(token)) return true;
    const match = /^-?([a-z][\w-]*):.+$/.exec(token);
    if (!match || /::|:\/\//.test(token)) return false;
    // Messages have words with a colon, too: what is no term is a mistake only in a short text.
    return KEYS.has(match[1]) || this.common.capabilities.includes(match[1]) || this.tokens.length <= 3;
  }

  outcome(name) {
    const { marks } = this.common;
    const verdicts = new Set(Object.values(marks).map((facts) => facts.verdict));
    const known = name.replace("_", "-");
    const passes = OUTCOMES[known] || (verdicts.has(name) && ((facts) => facts.verdict === name));
    if (passes) {
      const those = new Set(Object.keys(marks).filter((mark) => passes(marks[mark], mark)));
      return (mark) => those.has(mark);
    }
    this.fault = `no outcome ${name}: right, breaks, wrong, failing, refused, not-run, or ${[...verdicts].join(", ")}`;
    return () => false;
  }

  release(name) {
    const at = this.common.releases.indexOf(name);
    const near = this.common.releases.findLastIndex((release) => release.startsWith(`${name}.`));
    if (at < 0 && near < 0) this.fault = `no release ${name}: ${this.common.releases.join(", ")}`;
    return at < 0 ? near : at;
  }

  // A test of a cell: whether one of its strips passes.
  anyStrip(passes) {
    const once = memoized(passes);
    return { cell: (cell) => cell.strips.some(once) };
  }

  // A term is a test of a cell, or, for the outcome on a device, the releases that have it.
  term(token) {
    const sequence = /^seq\((.*)\)$/.exec(token);
    if (sequence) {
      const wanted = sequence[1].trim().split(/\s+/).map((name) => this.outcome(name));
      return this.anyStrip((marks) => inSequence(this.known(marks), wanted));
    }
    if (token === "no-thread") return { cell: (cell) => !cell.thread };
    if (token === "has-thread") return { cell: (cell) => cell.thread };
    const cut = token.indexOf(":");
    const key = token.slice(0, cut);
    const value = token.slice(cut + 1).replace(/^"|"$/g, "");
    const pattern = (text) => new RegExp(`^${text.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*")}$`, "i");
    if (/^\d/.test(key)) {
      const at = this.release(key);
      const test = this.outcome(value);
      return this.anyStrip((marks) => test(marks[at]));
    }
    const capabilities = this.common.capabilities;
    const onDevice = key === "cuda" || key === "gpu" ? capabilities.filter((name) => name !== "cpu") : capabilities.filter((name) => name === key);
    if (onDevice.length || key === "cuda" || key === "gpu") {
      const test = this.outcome(value);
      const places = onDevice.map((name) => capabilities.indexOf(name));
      const bits = memoized((marks) => [...marks].reduce((sum, mark, at) => (test(mark) ? sum | (1 << at) : sum), 0));
      return { device: (cell) => places.reduce((sum, place) => (cell.byCapability[place] ? sum | bits(cell.byCapability[place]) : sum), 0) };
    }
    switch (key) {
      case "compiler": {
        const names = pattern(value);
        if (!this.common.compilers.some((name) => names.test(name))) this.fault = `no compiler ${value}: ${this.common.compilers.join(", ")}`;
        return { cell: (cell) => names.test(cell.compiler) };
      }
      case "family": {
        if (!this.common.families.includes(value)) this.fault = `no family ${value}: ${[...new Set(this.common.families)].join(", ")}`;
        return { cell: (cell) => this.common.families[cell.compilerAt] === value };
      }
      case "suite":
        return { cell: (cell) => cell.name.startsWith(`${value}::`) };
      case "case":
        return { cell: (cell) => cell.name.includes(value) };
      case "behaviour":
        return { cell: (cell) => cell.behaviour === value };
      case "calls":
        return { cell: (cell) => ` ${cell.calls} `.includes(value.includes(".") ? `${value} ` : `${value}`) };
      case "kind": {
        const place = Object.keys(this.common.kinds).indexOf(value);
        if (place < 0) this.fault = `no kind ${value}: ${Object.keys(this.common.kinds).join(", ")}`;
        return { cell: (cell) => (cell.kinds >> place) & 1 };
      }
      case "on": {
        const place = capabilities.indexOf(value);
        if (place < 0) this.fault = `no device ${value}: ${capabilities.join(", ")}`;
        this.capability = value;
        return { cell: (cell) => Boolean(cell.byCapability[place]) };
      }
      case "is": {
        const test = this.outcome(value);
        return this.anyStrip((marks) => test(newest(marks)));
      }
      case "ever": {
        const test = this.outcome(value);
        return this.anyStrip((marks) => [...marks].some(test));
      }
      case "always": {
        const test = this.outcome(value);
        return this.anyStrip((marks) => [...marks].every((mark) => mark === "." || test(mark)));
      }
      case "first-bad":
      case "fixed": {
        const at = this.release(value);
        return this.anyStrip((marks) => this.turn(marks, at) === key);
      }
      case "changed": {
        const [from, to] = value.split("..");
        const before = to === undefined ? this.release(value) - 1 : this.release(from);
        const after = this.release(to === undefined ? value : to);
        return this.anyStrip((marks) => marks[before] !== marks[after] && marks[before] !== undefined && marks[before] !== "." && marks[after] !== ".");
      }
      default:
        this.fault = `no term ${key}: see all terms`;
        return { cell: () => false };
    }
  }

  // The marks that say something, without repetitions of one group.
  known(marks) {
    const seen = [];
    for (const mark of marks) {
      const facts = this.common.marks[mark];
      if (!facts || facts.group === "not run") continue;
      if (!seen.length || this.common.marks[seen[seen.length - 1]].tone !== facts.tone) seen.push(mark);
    }
    return seen;
  }

  // Whether a strip turns bad or right in a release: compared with the last release before that says something.
  turn(marks, at) {
    const bad = (mark) => {
      const facts = this.common.marks[mark];
      return !facts || facts.group === "not run" ? null : facts.group !== "right";
    };
    const now = bad(marks[at]);
    if (now === null) return "";
    for (let before = at - 1; before >= 0; before -= 1) {
      const then = bad(marks[before]);
      if (then !== null) return then === now ? "" : now ? "first-bad" : "fixed";
    }
    return now ? "first-bad" : "";
  }
}

// A function of a strip, which is called once for each: most strips are those of many cells.
function memoized(compute) {
  const seen = new Map();
  return (marks) => {
    if (!seen.has(marks)) seen.set(marks, compute(marks));
    return seen.get(marks);
  };
}

function newest(marks) {
  for (let at = marks.length - 1; at >= 0; at -= 1) if (marks[at] !== ".") return marks[at];
  return ".";
}

// Whether the wanted outcomes follow each other directly somewhere in a strip.
function inSequence(marks, wanted) {
  const passes = (mark, place) => wanted[place](mark);
  for (let start = 0; start < marks.length; start += 1) {
    let at = start;
    let place = 0;
    while (place < wanted.length && at < marks.length && passes(marks[at], place)) {
      while (at + 1 < marks.length && passes(marks[at + 1], place) && !(place + 1 < wanted.length && passes(marks[at + 1], place + 1))) at += 1;
      place += 1;
      at += 1;
    }
    if (place === wanted.length) return true;
  }
  return false;
}

// The cells as objects, once
function cellObjects(common, data) {
  const objects = [];
  data.cases.forEach(([name, title, behaviour, address, calls], at) => {
    for (const [compilerAt, places, kinds, thread] of data.cells[at]) {
      const byCapability = places.map((place) => (place < 0 ? null : data.strips[place]));
      objects.push({ at, name, title, behaviour, address, calls, compilerAt, compiler: common.compilers[compilerAt], byCapability, strips: byCapability.filter(Boolean), kinds, thread: Boolean(thread) });
    }
  });
  return objects;
}

// With a device chosen, every term looks at that device's strips alone.
function onOneDevice(cells, place) {
  return cells.filter((cell) => cell.byCapability[place]).map((cell) => ({ ...cell, strips: [cell.byCapability[place]] }));
}

// Words

const STOP = new Set("a an and are as at be broke by can do does did for from how i if? in is it its my of on or safe since so still that the then there this to under use was what when where which why will with works work release releases torch version".split(" "));

function tokensOf(text) {
  const tokens = [];
  for (const word of text.toLowerCase().match(/[\p{L}\p{N}_.]+/gu) || []) {
    const plain = word.replace(/^\.+|\.+$/g, "");
    if (!plain) continue;
    tokens.push(plain);
    if (/^\d+(\.\d+)+$/.test(plain)) continue;
    for (const part of plain.split(/[._]+|(?<=\p{L})(?=\p{N})|(?<=\p{N})(?=\p{L})/u)) if (part && part !== plain) tokens.push(part);
  }
  return tokens;
}

class Index {
  // `documents` are lists of texts; the first text of each counts most.
  constructor(documents) {
    this.size = documents.length;
    this.places = new Map();
    documents.forEach((texts, at) => {
      const weights = new Map();
      texts.forEach((text, field) => {
        for (const token of tokensOf(text || "")) weights.set(token, Math.max(weights.get(token) || 0, [3, 1.5, 1][field] || 1));
      });
      for (const [token, weight] of weights) {
        if (!this.places.has(token)) this.places.set(token, []);
        this.places.get(token).push([at, weight]);
      }
    });
    this.tokens = [...this.places.keys()].sort();
  }

  // Tokens that begin with a text, for the word that is being typed.
  beginning(prefix) {
    let low = 0;
    let high = this.tokens.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tokens[middle] < prefix) low = middle + 1;
      else high = middle;
    }
    const found = [];
    while (low < this.tokens.length && this.tokens[low].startsWith(prefix) && found.length < 40) found.push(this.tokens[low++]);
    return found;
  }

  // Documents by score, best first: each [place, score, share of the words' weight that it has].
  search(words, least) {
    const wanted = [...new Set(tokensOf(words.join(" ")))].filter((token) => !STOP.has(token));
    const scores = new Map();
    let total = 0;
    for (const token of wanted) {
      const lists = this.places.has(token) ? [[token, 1]] : token.length > 2 ? this.beginning(token).map((other) => [other, 0.6]) : [];
      if (!lists.length) continue;
      const many = lists.reduce((sum, [name]) => sum + this.places.get(name).length, 0);
      const rarity = Math.log(1 + this.size / many);
      total += rarity;
      const best = new Map();
      for (const [name, share] of lists) for (const [at, weight] of this.places.get(name)) best.set(at, Math.max(best.get(at) || 0, weight * share));
      for (const [at, weight] of best) {
        const score = scores.get(at) || [0, 0];
        scores.set(at, [score[0] + rarity * weight, score[1] + rarity]);
      }
    }
    return [...scores].map(([at, [score, covered]]) => [at, score * (covered / total), covered / total]).filter(([, , share]) => share >= least).sort((left, right) => right[1] - left[1] || left[0] - right[0]);
  }
}

// The front page

const field = document.getElementById("q");

if (field) load("common").then(frontPage);

function frontPage(common) {
  const filters = document.getElementById("filters");
  const status = document.getElementById("status");
  const results = document.getElementById("results");
  const overview = document.getElementById("overview");
  const defaults = { compiler: common.firstCompiler, on: common.capabilities[0], from: "", to: "", kind: "", is: "" };
  let cells = null;
  let index = null;
  let messages = null;
  let pages = null;
  let drawn = "";

  // The data are loaded when somebody is about to ask: the page itself shows the first compiler without them.
  let started = null;
  function ready() {
    started = started || Promise.all([load("cells"), load("pages")]).then(([data, list]) => {
      cells = cellObjects(common, data);
      pages = list;
      index = new Index(list.map(([, title, , sub, words]) => [title, sub, words]));
    });
    return started;
  }
  for (const control of [field, filters]) for (const kind of ["focusin", "pointerenter"]) control.addEventListener(kind, ready, { once: true });

  function state() {
    const values = Object.fromEntries(new FormData(filters));
    return { q: field.value.trim(), ...values };
  }

  function address(values) {
    const parts = Object.entries(values).filter(([name, value]) => value && value !== defaults[name]);
    return parts.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  }

  function fromAddress() {
    const values = { ...defaults, q: "" };
    for (const part of location.hash.slice(1).split("&")) {
      const cut = part.indexOf("=");
      if (cut > 0 && part.slice(0, cut) in values) values[part.slice(0, cut)] = decodeURIComponent(part.slice(cut + 1));
    }
    field.value = values.q;
    for (const [name, value] of Object.entries(values)) {
      const select = filters.elements[name];
      if (select) select.value = [...select.options].some((option) => option.value === value) ? value : defaults[name];
    }
    return draw();
  }

  // What the filters say, as terms.
  function terms(values, isQuery) {
    const said = [];
    if (values.compiler !== "any" && (values.compiler !== defaults.compiler || !isQuery)) said.push(`compiler:${values.compiler}`);
    if (values.on !== defaults.on) said.push(`on:${values.on}`);
    if (values.from && values.to && values.from !== values.to) said.push(`changed:${values.from}..${values.to}`);
    else if (values.from || values.to) said.push(`changed:${values.to || values.from}`);
    if (values.kind) said.push(`kind:${values.kind}`);
    if (values.is) said.push(`is:${values.is}`);
    return said;
  }

  async function draw() {
    const values = state();
    const key = JSON.stringify(values);
    if (key === drawn) return;
    drawn = key;
    const untouched = !address(values) && !overview.dataset.chosen;
    if (!untouched) await ready();
    if (drawn !== key) return; // something else was asked meanwhile
    const began = performance.now();
    status.className = "";
    const query = new Query(values.q, common);
    const filtering = values.from || values.to || values.kind || values.is;
    if (!values.q && !filtering) {
      results.hidden = true;
      overview.hidden = false;
      if (!untouched) drawOverview(values);
      status.textContent = "";
      document.body.dataset.drawn = key;
      return;
    }
    overview.hidden = true;
    results.hidden = false;
    results.className = "results";
    results.replaceChildren();
    if (query.fault) {
      status.className = "fault";
      status.textContent = query.fault;
      document.body.dataset.drawn = key;
      return;
    }
    const parts = [];
    const said = [];
    if (query.words.length && !query.terms && !filtering) {
      const hits = await search(query.words, values);
      parts.push(...hits.nodes);
      said.push(hits.number ? `${hits.number} ${hits.number === 1 ? "result" : "results"}` : "nothing found");
      if (JSON.stringify(state()) !== key) return;
    } else {
      const whole = new Query(`${values.q} ${terms(values, Boolean(query.terms)).join(" ")}`, common);
      const place = whole.capability ? common.capabilities.indexOf(whole.capability) : -1;
      const scope = place < 0 ? cells : onOneDevice(cells, place);
      let matching = scope.filter(whole.test);
      if (whole.words.length) {
        const allowed = new Set(index.search(whole.words, 0.5).map(([at]) => pages[at][2].split("#").pop()));
        matching = matching.filter((cell) => allowed.has(cell.name) || allowed.has(`behaviours/${cell.behaviour}.html`) || allowed.has(cell.address));
      }
      parts.push(...cellResults(matching));
      said.push(`${matching.length} ${matching.length === 1 ? "cell" : "cells"} of ${new Set(matching.map((cell) => cell.at)).size} cases`);
      const typed = `${values.q} ${terms(values, Boolean(query.terms)).join(" ")}`.trim();
      if (typed !== values.q) said.push(`as typed: ${typed}`);
    }
    document.body.dataset.milliseconds = String(performance.now() - began);
    results.append(...parts);
    results.querySelectorAll("table.strips").forEach(prepareStrips);
    status.textContent = said.join(" · ");
    document.body.dataset.drawn = key;
  }

  let few = false; // whether the table that is drawn has so few columns that words fit in each
  function segment(marks, from, width, link, next) {
    const facts = common.marks[marks[from]];
    const cell = element("td", { colspan: width, class: `t-${facts ? facts.tone : "empty"}${next}` });
    if (facts) cell.append(element(link ? "a" : "div", { href: link && link(from), class: width < 3 && !few ? "short" : null }, element("span", {}, facts.short)));
    return cell;
  }

  // The segments of a strip along some columns, each run of one mark a cell of the table.
  function segments(marks, columns, link, next) {
    const made = [];
    let start = 0;
    for (let at = 1; at <= columns.length; at += 1) {
      if (at === columns.length || marks[columns[at]] !== marks[columns[start]]) {
        made.push(segment(marks, columns[start], at - start, link, next && !start ? " next" : ""));
        start = at;
      }
    }
    return made;
  }

  // The columns that some cells have, by capability.
  function columnsOf(list) {
    return common.capabilities.map((_, place) => {
      const strips = new Set(list.map((cell) => cell.byCapability[place]).filter(Boolean));
      return common.releases.map((_release, at) => at).filter((at) => [...strips].some((marks) => marks[at] !== "."));
    });
  }

  function table(columns, head, caption, kind = "") {
    const shown = columns.map((indexes, place) => [place, indexes]).filter(([, indexes]) => indexes.length);
    few = shown.reduce((sum, [, indexes]) => sum + indexes.length, 0) < 6;
    const header = element("thead");
    if (shown.length > 1 || (shown.length && shown[0][0] > 0)) {
      header.append(element("tr", { class: "devices" }, element("td"), ...shown.map(([place, indexes], at) => element("th", { scope: "colgroup", colspan: indexes.length, class: at ? "next" : null, title: common.hardware[common.capabilities[place]] }, place ? "GPU" : "CPU"))));
    }
    header.append(element("tr", {}, element("th", { scope: "col", class: "name" }, head), ...shown.flatMap(([, indexes], at) => indexes.map((release, first) => element("th", { scope: "col", class: `release${at && !first ? " next" : ""}` }, element("span", {}, common.releases[release]))))));
    const widths = element("colgroup", {}, element("col", { class: "name" }), ...shown.map(([, indexes]) => element("col", { span: indexes.length, class: !few && indexes.length === 1 ? "device" : null })));
    return element("table", { class: `strips ${kind}${few ? " few" : ""}` }, element("caption", { class: "hidden" }, caption), widths, header, element("tbody"));
  }

  function cellResults(matching) {
    const most = 200;
    const parts = [];
    const columns = columnsOf(matching);
    const made = table(columns, "cell", "Cells that the query finds, through the releases", "cells");
    const body = made.tBodies[0];
    let more = null;
    function add(from) {
      let last = from ? matching[from - 1].name : "";
      for (const cell of matching.slice(from, from + most)) {
        if (cell.name !== last) {
          last = cell.name;
          const width = 1 + columns.reduce((sum, indexes) => sum + indexes.length, 0);
          const title = common.behaviours[cell.behaviour] || cell.title;
          body.append(element("tr", { class: "of-case" }, element("th", { colspan: width, scope: "colgroup" }, element("a", { href: cell.address }, element("code", {}, cell.name)), " ", element("span", { class: "soft" }, title.replaceAll("`", "")))));
        }
        const open = (capability) => (at) => {
          const target = `${cell.name}::${cell.compiler}@${common.releases[at]}/${capability}`;
          return `${cell.address.split("#")[0]}#${target}`;
        };
        body.append(element("tr", { "data-key": `${cell.name}::${cell.compiler}` },
          element("th", { scope: "row", class: "name" }, element("a", { href: `compilers/${cell.compiler.replace(/[^A-Za-z0-9_.]+/g, "-")}.html` }, cell.compiler)),
          ...columns.flatMap((indexes, place) => (indexes.length ? segments(cell.byCapability[place] || ".".repeat(common.releases.length), indexes, open(common.capabilities[place]), place > 0) : []))));
      }
      if (more) more.remove();
      const rest = matching.length - from - most;
      if (rest > 0) {
        more = element("button", { type: "button" }, `Show ${Math.min(rest, most)} of ${rest} more`);
        more.addEventListener("click", () => add(from + most));
        made.after(more);
      }
      prepareStrips(made);
    }
    parts.push(made);
    if (matching.length) queueMicrotask(() => add(0));
    else parts.splice(0, 1);
    return parts;
  }

  function badness(mark) {
    const facts = common.marks[mark];
    return facts ? ["wrong", "failing", "broken", "right", "none"].indexOf(facts.tone) : 9;
  }

  function worst(strips) {
    if (!strips.length) return null;
    return common.releases.map((_, at) => strips.map((marks) => marks[at]).reduce((best, mark) => (badness(mark) < badness(best) || (badness(mark) === badness(best) && mark < best) ? mark : best))).join("");
  }

  function drawOverview(values) {
    const chosen = `${values.compiler} ${values.on}`;
    if (overview.dataset.chosen === chosen || (!overview.dataset.chosen && chosen === `${defaults.compiler} ${defaults.on}`)) return;
    overview.dataset.chosen = chosen;
    const place = common.capabilities.indexOf(values.on);
    const strips = new Map();
    const relevant = cells.filter((cell) => (values.compiler === "any" || cell.compiler === values.compiler) && cell.behaviour);
    for (const cell of relevant) {
      if (!strips.has(cell.behaviour)) strips.set(cell.behaviour, common.capabilities.map(() => []));
      cell.byCapability.forEach((marks, at) => marks && strips.get(cell.behaviour)[at].push(marks));
    }
    const all = columnsOf(relevant);
    // The chosen device comes alone; the CPU, which has most releases, with the others beside it.
    const columns = all.map((indexes, at) => (place === 0 || at === place ? indexes : []));
    for (const group of overview.querySelectorAll("details.group")) {
      const old = group.querySelector("table");
      const made = table(columns, "behaviour", old.caption.textContent);
      for (const row of old.querySelectorAll("tbody tr")) {
        const name = row.dataset.key;
        const of = strips.get(name);
        const fresh = element("tr", { "data-key": name, "data-link": true }, row.cells[0].cloneNode(true));
        for (const [at, indexes] of columns.entries()) {
          if (indexes.length) fresh.append(...segments((of && worst(of[at])) || ".".repeat(common.releases.length), indexes, null, at > 0 && place === 0));
        }
        made.tBodies[0].append(fresh);
      }
      old.replaceWith(made);
      prepareStrips(made);
    }
  }

  // The compiler that the words name, which need not be the one of the filter.
  function named(words, values) {
    const text = ` ${words.join(" ").toLowerCase()} `;
    const names = [...common.compilers].sort((left, right) => right.length - left.length);
    return names.find((name) => text.includes(` ${name} `) || text.includes(` ${name}, `)) || (values.compiler === "any" ? common.firstCompiler : values.compiler);
  }

  function since(compiler, belongs) {
    const marks = worst(cells.filter((cell) => cell.compiler === compiler && belongs(cell) && cell.byCapability[0]).map((cell) => cell.byCapability[0]));
    const said = marks && phrase(common, marks);
    return said && element("span", { class: "since" }, element("code", {}, compiler), element("span", { class: `pill t-${said.tone}` }, `${common.symbols[said.tone]} ${said.words}`));
  }

  async function search(words, values) {
    const compiler = named(words, values);
    const rest = words.filter((word) => !common.compilers.includes(word.toLowerCase().replace(/,$/, "")));
    const boost = { behaviour: 1.6, issue: 1, case: 0.9, model: 1.2, release: 1.5, upgrade: 1.4, compiler: 1.3, workload: 1.1 };
    const asked = rest.length ? rest : words;
    const hits = index.search(asked, asked.length > 3 ? 0.4 : 0.55).map(([at, score]) => [at, score * boost[pages[at][0]]]).sort((left, right) => right[1] - left[1]).slice(0, 30);
    const nodes = [];
    const list = element("ol", { class: "hits" });
    for (const [at] of hits) {
      const [kind, title, link, sub] = pages[at];
      const name = link.split("#")[1];
      const extra = kind === "behaviour" ? since(compiler, (cell) => `behaviours/${cell.behaviour}.html` === link) : kind === "case" ? since(compiler, (cell) => cell.name === name) : kind === "model" ? since(compiler, (cell) => cell.address === link) : null;
      list.append(element("li", {}, element("a", { href: link }, element("span", { class: "kind" }, kind), element("strong", {}, ...withCode(title)), element("span", { class: "sub" }, ...withCode(sub)), extra)));
    }
    if (hits.length) nodes.push(list);
    let number = hits.length;
    if (words.join(" ").length > 11) {
      const { found, pasted } = await searchMessages(words);
      number += found.length;
      if (found.length) {
        const heading = element("h2", {}, "Recorded messages");
        const quoted = element("ol", { class: "hits messages" });
        for (const [text, places, total] of found) {
          const [caseAt, compilerAt, releaseAt] = places[0];
          const [name, , behaviour, link] = loaded.cells.cases[caseAt];
          const cell = `${name}::${common.compilers[compilerAt]}`;
          const capability = cells.find((one) => one.at === caseAt && one.compilerAt === compilerAt).byCapability.findIndex((marks) => marks && marks[releaseAt] !== ".");
          const target = `${link.split("#")[0]}#${cell}@${common.releases[releaseAt]}/${common.capabilities[capability]}`;
          quoted.append(element("li", {}, element("a", { href: target }, element("span", { class: "kind" }, "message"), element("code", {}, text), element("span", { class: "sub" }, `${(common.behaviours[behaviour] || name).replaceAll("`", "")} · ${cell}, ${common.releases[releaseAt]}${total > 1 ? ` and ${total - 1} more` : ""}`))));
        }
        if (pasted) nodes.unshift(heading, quoted);
        else nodes.push(heading, quoted);
      }
    }
    return { nodes, number };
  }

  // The messages that have most of the words; and whether the words are a message that somebody pasted.
  async function searchMessages(words) {
    const list = await load("messages");
    messages = messages || new Index(list.map(([text]) => [text]));
    const hits = messages.search(words, 0.6).slice(0, 12);
    const long = tokensOf(words.join(" ")).filter((token) => !STOP.has(token) && messages.places.has(token)).length > 5;
    return { found: hits.map(([at]) => list[at]), pasted: long };
  }

  function withCode(text) {
    return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
  }

  function changed() {
    const next = address(state());
    if (next !== location.hash.slice(1)) history.replaceState(null, "", `#${next}`);
    draw();
  }

  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(changed, 60);
  });
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    // An entry of the history for what was searched, so that "back" returns to it.
    history.pushState(null, "", `#${address(state())}`);
    draw();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      const first = results.querySelector(".hits a, table a") || overview.querySelector("table a");
      if (first) {
        event.preventDefault();
        first.focus();
      }
    }
  });
  results.addEventListener("keydown", (event) => {
    const links = [...results.querySelectorAll(".hits > li > a")];
    const at = links.indexOf(event.target);
    if (at < 0 || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    const target = event.key === "ArrowDown" ? links[at + 1] : links[at - 1] || field;
    if (target) target.focus();
  });
  filters.addEventListener("change", changed);
  filters.addEventListener("reset", () => setTimeout(() => {
    field.value = "";
    changed();
  }));
  addEventListener("hashchange", fromAddress);
  addEventListener("popstate", fromAddress);
  // A form of another page asks with ?q=.
  const asked = new URLSearchParams(location.search).get("q");
  if (asked && !location.hash) history.replaceState(null, "", `${location.pathname}#q=${encodeURIComponent(asked)}`);
  fromAddress();
  document.body.dataset.ready = "yes";
}
