"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const { identity, unknown, classes, samples, per_part: perPart } = data;
  const answers = data.answers.map(([number, path, label, candidates, probability, margin, status, strong]) => ({
    number, path, candidates: candidates.map((k) => classes[k]), probability, margin, status, strong,
    label: label === null ? "" : label === -1 ? unknown : classes[label],
  }));
  const HEIGHT = 64; // of a row, as in the style
  const SPARE = 8; // rows that are made outside of what is seen
  const MOST_NAMES = 8;
  const PREFIX = `crnr-review-${identity}-`;
  const list = byId("list"), rows = byId("rows"), box = byId("name"), names = byId("names");

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  // Characters that would not be seen, or change how others are seen, are shown as escapes.
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
  const shown = (text) =>
    text.replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`)
      .replace(/[\ud800-\udfff]/gu, "\ufffd");

  // Images are unpacked when they are first seen.
  const packed = (selector) => {
    const parts = [...document.querySelectorAll(selector)], unpacked = [];
    return (i) => {
      const part = Math.floor(i / perPart);
      if (part >= parts.length) return "";
      if (!unpacked[part]) {
        unpacked[part] = JSON.parse(parts[part].textContent);
        parts[part].textContent = "";
      }
      return unpacked[part][i % perPart];
    };
  };
  const imageOf = packed("script.images"), sampleImage = packed("script.sample-images");
  const thumb = (source, alt) => {
    if (!source) return element("span", undefined, "thumb");
    const image = element("img", undefined, "thumb");
    image.alt = alt;
    image.addEventListener("load", () => {
      image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 48);
    });
    image.src = source;
    return image;
  };

  // What was decided, by the place of the answer: the name of the class, and when.
  const decisions = new Map();
  const history = [];
  const placeOf = new Map(answers.map((answer, i) => [answer.number, i]));
  const warn = (text) => {
    byId("warning").textContent = text;
    byId("warning").hidden = false;
  };
  let isKept = true, isSaved = true;
  const notKept = () => {
    isKept = false;
    warn("This browser does not remember your decisions. Save corrections.csv before you close the page.");
  };
  const store = (i) => {
    const key = PREFIX + answers[i].number, decided = decisions.get(i);
    try {
      if (decided) localStorage.setItem(key, JSON.stringify([decided.name, decided.when]));
      else localStorage.removeItem(key);
    } catch {
      notKept();
    }
  };
  const parsed = (text) => {
    try {
      const [name, when] = JSON.parse(text);
      return typeof name === "string" && name && typeof when === "string" ? { name, when } : null;
    } catch {
      return null;
    }
  };
  const load = () => {
    try {
      for (let i = 0; i < localStorage.length; i++) {
        const key = localStorage.key(i);
        if (!key.startsWith(PREFIX)) continue;
        const place = placeOf.get(Number(key.slice(PREFIX.length)));
        const decided = place === undefined ? null : parsed(localStorage.getItem(key));
        if (decided) decisions.set(place, decided);
      }
    } catch {
      notKept();
    }
    const order = [...decisions].sort(([, a], [, b]) => (a.when < b.when ? -1 : a.when > b.when ? 1 : 0));
    for (const [i] of order) history.push({ i, before: undefined });
  };

  const hasFailed = (answer) => !answer.label;
  const reviewable = answers.filter((answer) => !hasFailed(answer)).length;
  const isCorrected = (i) => decisions.has(i) && decisions.get(i).name !== answers[i].label;
  const FILTERS = {
    all: () => true,
    todo: (i) => !decisions.has(i) && !hasFailed(answers[i]),
    corrected: isCorrected,
    accepted: (i) => decisions.has(i) && !isCorrected(i),
    rejected: (i) => answers[i].label === unknown,
    failed: (i) => hasFailed(answers[i]),
  };
  const filter = byId("filter");
  let view = [], current = 0, announced = "";

  const figure = (answer) => {
    const value = answer.probability ?? answer.margin;
    return value === null ? "" : value.toFixed(3);
  };
  const surely = (answer) =>
    answer.probability !== null ? `probability ${answer.probability.toFixed(3)}`
      : answer.margin !== null ? `margin ${answer.margin.toFixed(3)}` : "";
  const said = (answer) => (hasFailed(answer) ? `failed (${answer.status})` : answer.label);
  const stateOf = (i) => {
    if (!decisions.has(i)) return "not reviewed";
    return isCorrected(i) ? `corrected to ${decisions.get(i).name}` : "accepted";
  };
  const say = (text) => {
    // The same text twice would not be read twice.
    announced = text === announced ? `${text}\u00a0` : text;
    byId("spoken").textContent = shown(announced);
  };
  const describe = (i) => {
    const answer = answers[i];
    const others = answer.candidates.filter((name) => name !== answer.label);
    const second = others.length ? `, ${answer.label === unknown ? "best guess" : "runner-up"} ${others[0]}` : "";
    const sure = surely(answer);
    return `Answer ${i + 1} of ${answers.length}: ${said(answer)}${second}${sure && `, ${sure}`}, ${stateOf(i)}.`;
  };

  // Only the rows that can be seen are in the page.
  const made = new Map();
  const rowOf = (i, place) => {
    const answer = answers[i];
    const row = element("div", undefined, "row");
    row.id = `row-${i}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(i === current));
    row.setAttribute("aria-posinset", String(place + 1));
    row.setAttribute("aria-setsize", String(view.length));
    row.setAttribute("aria-label", shown(describe(i)));
    row.style.top = `${place * HEIGHT}px`;
    const about = element("div"), title = element("b");
    if (isCorrected(i)) {
      title.append(element("s", shown(said(answer))), ` ${shown(decisions.get(i).name)}`);
    } else title.textContent = shown(said(answer));
    const file = element("span", undefined, "file");
    file.append(element("bdi", shown(answer.path)));
    about.append(title, file);
    const mark = decisions.has(i) ? (isCorrected(i) ? "\u2260" : "\u2713") : "";
    const className = isCorrected(i) ? "mark wrong-text" : "mark right-text";
    row.append(thumb(imageOf(i), ""), about, element("span", figure(answer), "sure"), element("span", mark, className));
    row.addEventListener("click", () => { select(i); toList(); });
    return row;
  };
  const render = (again) => {
    const first = Math.max(0, Math.floor(list.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(view.length, Math.ceil((list.scrollTop + list.clientHeight) / HEIGHT) + SPARE);
    for (const [place, row] of made) {
      if (again || place < first || place >= last) {
        row.remove();
        made.delete(place);
      }
    }
    for (let place = first; place < last; place++) {
      if (!made.has(place)) {
        const row = rowOf(view[place], place);
        made.set(place, row);
        rows.append(row);
      }
    }
    if (byId(`row-${current}`)) list.setAttribute("aria-activedescendant", `row-${current}`);
    else list.removeAttribute("aria-activedescendant");
  };
  let isWaiting = false;
  list.addEventListener("scroll", () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; render(false); });
  });
  new ResizeObserver(() => render(false)).observe(list);

  const toList = () => list.focus({ preventScroll: true });
  const show = () => {
    const place = view.indexOf(current);
    if (place >= 0) {
      const top = place * HEIGHT, room = list.clientHeight;
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + HEIGHT > list.scrollTop + room) list.scrollTop = top + HEIGHT - room;
    }
    render(true);
    showDetail();
  };
  const select = (i) => {
    current = i;
    closeNames(true);
    show();
    say(describe(i));
  };

  const digitNames = classes.some((name) => /^[0-9]/.test(name));
  const isWholeName = (digit) => classes.includes(digit) && !classes.some((name) => name.length > 1 && name.startsWith(digit));
  const keyOf = (place) => (digitNames ? "" : String(place + 1));
  const candidateButton = (answer, name, place) => {
    const button = element("button");
    button.type = "button";
    const title = element("span", undefined, "title"), key = keyOf(place);
    if (key) title.append(element("kbd", key), " ");
    title.append(element("span", shown(name), "name"));
    const second = answer.label === unknown || hasFailed(answer) ? 0 : 1;
    const what = name === answer.label ? " label" : place === second ? (second ? " runner-up" : " best guess") : "";
    if (what) title.append(element("span", what, "soft"));
    button.append(title);
    const strong = answer.strong[place] || [];
    if (strong.length) {
      const examples = element("span", undefined, "examples");
      for (const sample of strong) {
        const image = thumb(sampleImage(sample), `gallery image of ${shown(name)}`);
        image.title = shown(samples[sample]);
        examples.append(image);
      }
      button.append(examples);
    }
    const decided = decisions.get(current);
    button.setAttribute("aria-pressed", String(Boolean(decided) && decided.name === name));
    button.addEventListener("click", () => { decide(name); toList(); });
    return button;
  };
  const showDetail = () => {
    const answer = answers[current];
    byId("place").textContent = `Answer ${current + 1} of ${answers.length}`;
    const image = byId("image"), source = imageOf(current);
    image.className = source ? "large" : "large bare";
    if (source) image.replaceChildren(thumb(source, "The image of this answer"));
    else image.textContent = "no image";
    const state = byId("state");
    if (isCorrected(current)) {
      state.replaceChildren(element("s", shown(said(answer)), "soft"), ` ${shown(decisions.get(current).name)}`);
    } else state.textContent = shown(said(answer));
    const judged = decisions.has(current) ? (isCorrected(current) ? "corrected" : "accepted") : "not reviewed";
    byId("sure").textContent = [surely(answer), judged].filter(Boolean).join(", ");
    byId("path").textContent = shown(answer.path);
    byId("candidates").replaceChildren(...answer.candidates.map((name, place) => candidateButton(answer, name, place)));
    byId("accept").disabled = hasFailed(answer);
    byId("undo").disabled = !history.length;
    let corrected = 0, reviewed = 0;
    for (const i of decisions.keys()) {
      if (isCorrected(i)) corrected++;
      if (!hasFailed(answers[i])) reviewed++;
    }
    byId("count").textContent = `${reviewed} of ${reviewable} reviewed, ${corrected} corrected`;
    byId("progress").max = Math.max(1, reviewable);
    byId("progress").value = reviewed;
    byId("save").disabled = !decisions.size;
  };
  const refresh = () => {
    view = [];
    for (let i = 0; i < answers.length; i++) if (FILTERS[filter.value](i)) view.push(i);
    rows.style.height = `${view.length * HEIGHT}px`;
    byId("empty").hidden = view.length > 0;
    show();
  };

  const isTodo = FILTERS.todo;
  const advance = () => {
    const before = view, place = before.indexOf(current);
    const next = before.slice(place + 1).find(isTodo) ?? before.slice(0, place + 1).find(isTodo);
    if (next !== undefined) current = next;
    refresh();
    return next !== undefined;
  };
  const decide = (name) => {
    const i = current, before = decisions.get(i);
    decisions.set(i, { name, when: new Date().toISOString() });
    history.push({ i, before });
    isSaved = false;
    store(i);
    closeNames(true);
    const done = name === answers[i].label ? `Accepted ${name}.` : `Corrected to ${name}.`;
    say(advance() ? `${done} ${describe(current)}` : `${done} No answer is left to review here; save corrections.csv.`);
  };
  const accept = () => {
    const answer = answers[current];
    if (hasFailed(answer)) say("This query failed, so there is no label to accept. Choose a class, or move on.");
    else decide(answer.label);
  };
  const undo = () => {
    const last = history.pop();
    if (!last) return say("There is nothing to undo.");
    if (last.before) decisions.set(last.i, last.before);
    else decisions.delete(last.i);
    isSaved = false;
    store(last.i);
    current = last.i;
    closeNames(true);
    refresh();
    return say(`Undone. ${describe(current)}`);
  };
  const move = (steps) => {
    if (!view.length) return;
    const place = view.indexOf(current);
    const start = place >= 0 ? place : steps > 0 ? -1 : 0;
    select(view[Math.min(view.length - 1, Math.max(0, start + steps))]);
  };

  // The box for any class.
  const fold = (text) => text.normalize("NFC").toLowerCase();
  const folded = [...classes, unknown].map((name) => [fold(name), name]);
  let offered = [], active = -1;
  const closeNames = (empty) => {
    if (empty) box.value = "";
    offered = [];
    active = -1;
    names.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const mark = (place) => {
    active = place;
    [...names.querySelectorAll("[role=option]")].forEach((item, i) => {
      item.setAttribute("aria-selected", String(i === place));
      if (i === place) item.scrollIntoView({ block: "nearest" });
    });
    if (place >= 0) box.setAttribute("aria-activedescendant", `name-${place}`);
    else box.removeAttribute("aria-activedescendant");
  };
  const offer = () => {
    const typed = box.value.trim();
    if (!typed) return closeNames(false);
    const key = fold(typed);
    const starting = folded.filter(([name]) => name.startsWith(key));
    const within = folded.filter(([name]) => !name.startsWith(key) && name.includes(key));
    const exact = starting.filter(([name]) => name === key);
    const found = [...new Set([...exact, ...starting, ...within].map(([, name]) => name))];
    offered = found.slice(0, MOST_NAMES).map((name) => ({ name, text: name === unknown ? `${name} (none of the classes)` : name }));
    const n = offered.length;
    const isKnown = classes.includes(typed) || typed === unknown;
    if (!isKnown) offered.push({ name: typed, text: `New class: ${typed}` });
    names.replaceChildren(...offered.map(({ name, text }, place) => {
      const item = element("li", shown(text));
      item.id = `name-${place}`;
      item.setAttribute("role", "option");
      // Before the box loses the focus.
      item.addEventListener("pointerdown", (event) => event.preventDefault());
      item.addEventListener("click", () => { decide(name); toList(); });
      return item;
    }));
    const hint = found.length > n ? `${found.length - n} more; type more of the name`
      : n ? "" : "No class matches. Choose the new class to add it: arrow down, then Enter.";
    if (hint) {
      const item = element("li", hint, "hint");
      item.setAttribute("role", "none");
      names.append(item);
    }
    names.hidden = false;
    box.setAttribute("aria-expanded", "true");
    mark(n ? 0 : -1);
    return say(n ? `${n} of ${found.length} matching classes, ${offered[0].name} is highlighted.` : "No class matches.");
  };
  box.addEventListener("input", offer);
  box.addEventListener("blur", () => closeNames(false));
  box.addEventListener("focus", () => { if (box.value) offer(); });
  const begin = (text) => {
    box.value = text;
    box.focus();
    offer();
  };
  const inBox = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const n = offered.length;
      if (n) mark(event.key === "ArrowDown" ? (active + 1) % n : (Math.max(active, 0) - 1 + n) % n);
      if (active >= 0) say(offered[active].text);
    } else if (event.key === "Enter") {
      if (event.repeat) return true;
      if (active >= 0) {
        decide(offered[active].name);
        toList();
      } else say("No class is highlighted.");
    } else if (event.key === "Escape") {
      closeNames(true);
      toList();
      say(describe(current));
    } else return false;
    return true;
  };

  const onDigit = (digit) => {
    const candidates = answers[current].candidates;
    if (!digitNames) {
      if (Number(digit) >= 1 && Number(digit) <= candidates.length) decide(candidates[Number(digit) - 1]);
      else say(`There is no choice ${digit}.`);
    } else if (isWholeName(digit)) decide(digit);
    else begin(digit);
  };
  const page = () => Math.max(1, Math.floor(list.clientHeight / HEIGHT) - 1);
  const MOVES = {
    ArrowDown: () => move(1), ArrowRight: () => move(1), ArrowUp: () => move(-1), ArrowLeft: () => move(-1),
    PageDown: () => move(page()), PageUp: () => move(-page()),
    Home: () => move(-answers.length), End: () => move(answers.length),
  };
  const onKey = (event) => {
    if (MOVES[event.key]) MOVES[event.key]();
    else if (event.key === "u") undo();
    else if (event.repeat) return event.key === "Enter"; // a key that is held must not accept one after the other
    else if (event.key === "Enter") accept();
    else if (event.key === "-") decide(unknown);
    else if (event.key === "/") begin("");
    else if (/^[0-9]$/.test(event.key)) onDigit(event.key);
    else if (/^[^\s\u0000-\u001f]$/u.test(event.key)) begin(event.key);
    else return false;
    return true;
  };
  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const target = event.target instanceof Element ? event.target : document.body;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      const key = event.key.toLowerCase();
      if (key === "s" && decisions.size) { event.preventDefault(); save(); }
      else if (key === "z" && target !== box) { event.preventDefault(); undo(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || (event.altKey && event.key.length > 1)) return;
    if (target === box) {
      if (inBox(event)) event.preventDefault();
      return;
    }
    if (target.closest("select")) return;
    if (target.closest("button, a") && (event.key === "Enter" || event.key === " ")) return;
    if (onKey(event)) event.preventDefault();
  });

  const field = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // Names that are not UTF-8 are lone surrogates here, and become the bytes that they were.
  const bytesOf = (text) => text.split(/([\udc80-\udcff])/u).map((piece, i) =>
    (i % 2 ? Uint8Array.of(piece.charCodeAt(0) - 0xdc00) : piece));
  const save = () => {
    const order = [...decisions.keys()].sort((a, b) => answers[a].number - answers[b].number);
    const lines = order.map((i) => {
      const { name, when } = decisions.get(i);
      return [answers[i].path, answers[i].label, name, when].map(field).join(",");
    });
    const content = ["path,label,corrected,when", ...lines, ""].join("\n");
    const link = element("a");
    link.href = URL.createObjectURL(new Blob(bytesOf(content), { type: "text/csv" }));
    link.download = "corrections.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    isSaved = true;
    say(`corrections.csv is saved, with ${order.length} reviewed answers.`);
  };
  const forget = () => {
    if (!decisions.size || !confirm(`Discard all ${decisions.size} decisions? They cannot be brought back.`)) return;
    const all = [...decisions.keys()];
    decisions.clear();
    history.length = 0;
    all.forEach(store);
    refresh();
    say("All decisions are forgotten.");
  };

  const clicks = {
    save, accept, undo, clear: forget, none: () => decide(unknown), previous: () => move(-1), next: () => move(1),
  };
  for (const [id, action] of Object.entries(clicks)) {
    byId(id).addEventListener("click", () => { action(); if (id !== "save" && id !== "clear") toList(); });
  }
  filter.addEventListener("change", () => {
    refresh();
    if (view.length && !view.includes(current)) select(view[0]);
    say(`${view.length} answers are shown.`);
  });
  // The same page in another tab.
  addEventListener("storage", (event) => {
    if (!event.key || !event.key.startsWith(PREFIX)) return;
    const i = placeOf.get(Number(event.key.slice(PREFIX.length)));
    if (i === undefined) return;
    const decided = parsed(event.newValue);
    if (decided) decisions.set(i, decided);
    else decisions.delete(i);
    refresh();
  });
  addEventListener("beforeunload", (event) => { if (!isKept && !isSaved) event.preventDefault(); });

  byId("digits").textContent = digitNames
    ? "A digit that is the name of a class takes it; other digits begin a name."
    : "A digit takes the choice of this number.";
  load();
  const first = answers.findIndex((_, i) => isTodo(i));
  current = Math.max(0, first);
  refresh();
  say(describe(current));
  toList();
})();
