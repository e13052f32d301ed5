(() => {
  const { byId, element, shown, say, packed, thumb, keepDecisions, makeZoom, makeClassBox, saveCsv } = tools;
  const data = JSON.parse(byId("data").textContent);
  const { identity, unknown, classes, samples, side, per_part: perPart, per_large: perLarge } = data;
  const answers = data.answers.map(([number, path, label, candidates, probability, margin, status, link, strong]) => ({
    number, path, candidates: candidates.map((k) => classes[k]), probability, margin, status, link, strong,
    label: label === null ? "" : label === -1 ? unknown : classes[label],
  }));
  // The audit page has this script too: its items are examples, and "none of these" removes one.
  const isAudit = data.page === "audit";
  const words = isAudit
    ? { item: "Example", items: "examples", accepted: "kept", none: "removed", second: "suggested", figure: "score", file: "marked.csv" }
    : { item: "Answer", items: "answers", accepted: "accepted", none: unknown, second: "runner-up", figure: "margin", file: "corrections.csv" };
  const named = (name) => (name === unknown ? words.none : name);
  const HEIGHT = 64; // of a row, as in the style
  const SPARE = 8; // rows that are made outside of what is seen
  const list = byId("list"), rows = byId("rows");
  const imageOf = packed("script.images", perPart), sampleImage = packed("script.sample-images", perPart);
  const largeImage = packed("script.large-images", perLarge);

  const warn = (text) => {
    byId("warning").textContent = text;
    byId("warning").hidden = false;
  };
  // Decisions are kept by the path of the query, so that they also hold for later answers to it.
  const prefix = `crnr-review-${identity}-`, keys = answers.map(({ path }) => JSON.stringify(path).slice(1, -1));
  try {
    // Pages of earlier versions kept them by the number of the row, for equal answers only.
    answers.forEach(({ number }, i) => {
      const old = `crnr-review-${data.content}-${number}`, value = localStorage.getItem(old);
      if (value === null) return;
      localStorage.setItem(prefix + keys[i], value);
      localStorage.removeItem(old);
    });
  } catch { /* keepDecisions finds out as well, and warns */ }
  const decisions = keepDecisions({
    prefix, keys,
    labels: answers.map(({ label }) => label),
    onLost: () => warn(`This browser does not remember your decisions. Save ${words.file} before you close the page.`),
    onChange: () => refresh(),
  });

  const hasFailed = (answer) => !answer.label;
  const reviewable = answers.filter((answer) => !hasFailed(answer)).length;
  const isCorrected = (i) => decisions.has(i) && decisions.get(i).name !== answers[i].label;
  const isTodo = (i) => !decisions.has(i) && !hasFailed(answers[i]);
  const ANY = () => true;
  const REVIEWED = {
    all: ANY,
    todo: isTodo,
    done: (i) => decisions.has(i),
    corrected: isCorrected,
    accepted: (i) => decisions.has(i) && !isCorrected(i),
    changed: (i) => decisions.hasChanged(i),
  };
  const STATUS = {
    all: ANY,
    answered: (i) => answers[i].label && answers[i].label !== unknown,
    rejected: (i) => answers[i].label === unknown,
    failed: (i) => hasFailed(answers[i]),
  };
  const hasFinding = (finding) => (i) => answers[i].status.split(" ").includes(finding);
  const filters = { reviewed: byId("filter"), status: byId("status"), label: byId("class") };
  const passes = () => {
    const isReviewed = REVIEWED[filters.reviewed.value], hasStatus = STATUS[filters.status.value] ?? hasFinding(filters.status.value);
    const label = filters.label.value && classes[Number(filters.label.value)];
    return (i) => isReviewed(i) && hasStatus(i) && (!label || answers[i].label === label);
  };
  const offerClasses = () => {
    const counts = new Map();
    for (const { label } of answers) counts.set(label, (counts.get(label) || 0) + 1);
    classes.forEach((name, k) => {
      if (!counts.has(name) || name === unknown) return;
      const option = element("option", `${shown(name)} (${counts.get(name)})`);
      option.value = String(k);
      filters.label.append(option);
    });
  };
  let view = [], current = 0;

  const figure = (answer) => {
    const value = answer.probability ?? answer.margin;
    return value === null ? "" : value.toFixed(3);
  };
  const surely = (answer) =>
    answer.probability !== null ? `probability ${answer.probability.toFixed(3)}`
      : answer.margin !== null ? `${words.figure} ${answer.margin.toFixed(3)}` : "";
  const said = (answer) => (hasFailed(answer) ? `failed (${answer.status})` : answer.label);
  const earlier = (i) => `the answer was ${decisions.get(i).label || "failed"} when you decided`;
  const stateOf = (i) => {
    if (!decisions.has(i)) return "not reviewed";
    const state = isCorrected(i) ? `corrected to ${named(decisions.get(i).name)}` : words.accepted;
    return decisions.hasChanged(i) ? `${state}; ${earlier(i)}` : state;
  };
  const describe = (i) => {
    const answer = answers[i];
    const others = answer.candidates.filter((name) => name !== answer.label);
    const second = others.length ? `, ${answer.label === unknown ? "best guess" : words.second} ${others[0]}` : "";
    const sure = surely(answer);
    return `${words.item} ${i + 1} of ${answers.length}: ${said(answer)}${second}${sure && `, ${sure}`}, ${stateOf(i)}.`;
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
      title.append(element("s", shown(said(answer))), ` ${shown(named(decisions.get(i).name))}`);
    } else title.textContent = shown(said(answer));
    if (decisions.hasChanged(i)) title.append(element("span", " answer changed", "soft"));
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
    classBox.close(true);
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
    const what = name === answer.label ? " label" : place === second ? (second ? ` ${words.second}` : " best guess") : "";
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

  // The file of an answer: 1 is a link that equals the path, 0 a file that was not found, -1 one not allowed.
  const fileOf = ({ path, link }) => (link === 1 ? path : typeof link === "string" ? link : "");
  const whyNoFile = ({ link }) => (link === -1
    ? "The file itself is not shown: it is outside of the folders that the page may link to. Name its folder with --images-from."
    : "The file itself is not shown: it was not found when the page was made.");
  const showImage = (answer) => {
    const place = byId("image"), i = current, small = imageOf(i), large = largeImage(i), file = fileOf(answer);
    place.className = small ? "large" : "large bare";
    place.disabled = !small && !file;
    if (!small) {
      place.textContent = hasFailed(answer) && file ? "no image; click to try the file" : "no image";
      return;
    }
    const image = thumb(large || small, `The image of this ${words.item.toLowerCase()}; click for full size`);
    place.replaceChildren(image);
    if (large || !file) return;
    // The page has only a small copy: the file takes its place when it is read.
    image.addEventListener("load", () => {
      if (Math.max(image.naturalWidth, image.naturalHeight) < side) return;
      const whole = thumb(file, image.alt);
      whole.addEventListener("load", () => { if (i === current) place.replaceChildren(whole); });
    }, { once: true });
  };
  const openZoom = makeZoom(() => toList());
  const zoom = () => {
    const answer = answers[current];
    openZoom({ name: answer.path, file: fileOf(answer), why: whyNoFile(answer), instead: largeImage(current) || imageOf(current) });
  };

  const showDetail = () => {
    const answer = answers[current];
    byId("place").textContent = `${words.item} ${current + 1} of ${answers.length}`;
    if (byId("image").dataset.answer !== String(current)) showImage(answer);
    byId("image").dataset.answer = String(current);
    const state = byId("state");
    if (isCorrected(current)) {
      state.replaceChildren(element("s", shown(said(answer)), "soft"), ` ${shown(named(decisions.get(current).name))}`);
    } else state.textContent = shown(said(answer));
    const judged = decisions.has(current) ? (isCorrected(current) ? "corrected" : words.accepted) : "not reviewed";
    const findings = isAudit ? answer.status.replaceAll(" ", ", ").replaceAll("_", " ") : "";
    byId("sure").textContent = [findings, surely(answer), judged].filter(Boolean).join(", ");
    byId("changed").hidden = !decisions.hasChanged(current);
    if (decisions.hasChanged(current)) byId("changed").textContent = shown(`Changed: ${earlier(current)}.`);
    byId("path").textContent = shown(answer.path);
    byId("candidates").replaceChildren(...answer.candidates.map((name, place) => candidateButton(answer, name, place)));
    byId("accept").disabled = hasFailed(answer);
    byId("undo").disabled = !decisions.canUndo();
    let corrected = 0, reviewed = 0, changed = 0;
    for (const i of decisions.places()) {
      if (isCorrected(i)) corrected++;
      if (!hasFailed(answers[i])) reviewed++;
      if (decisions.hasChanged(i)) changed++;
    }
    const since = changed ? `, ${changed} with another answer since` : "";
    byId("count").textContent = `${reviewed} of ${reviewable} reviewed, ${corrected} corrected${since}`;
    byId("progress").max = Math.max(1, reviewable);
    byId("progress").value = reviewed;
    byId("save").disabled = !decisions.places().length;
  };
  const refresh = () => {
    const passed = passes();
    view = [];
    for (let i = 0; i < answers.length; i++) if (passed(i)) view.push(i);
    rows.style.height = `${view.length * HEIGHT}px`;
    byId("empty").hidden = view.length > 0;
    byId("answers").textContent = view.length === answers.length ? `${words.item}s` : `${view.length} of ${answers.length} ${words.items}`;
    show();
  };

  const advance = () => {
    const before = view, place = before.indexOf(current);
    const next = before.slice(place + 1).find(isTodo) ?? before.slice(0, place + 1).find(isTodo);
    if (next !== undefined) current = next;
    refresh();
    return next !== undefined;
  };
  const decide = (name) => {
    const i = current;
    decisions.set(i, name);
    classBox.close(true);
    const done = name === answers[i].label ? `${words.accepted[0].toUpperCase()}${words.accepted.slice(1)} ${name}.` : `Corrected to ${named(name)}.`;
    say(advance() ? `${done} ${describe(current)}` : `${done} No ${words.item.toLowerCase()} is left to review here; save ${words.file}.`);
  };
  const accept = () => {
    const answer = answers[current];
    if (hasFailed(answer)) say("This query failed, so there is no label to accept. Choose a class, or move on.");
    else decide(answer.label);
  };
  const undo = () => {
    const i = decisions.undo();
    if (i === undefined) return say("There is nothing to undo.");
    current = i;
    classBox.close(true);
    refresh();
    return say(`Undone. ${describe(current)}`);
  };
  const move = (steps) => {
    if (!view.length) return;
    const place = view.indexOf(current);
    const start = place >= 0 ? place : steps > 0 ? -1 : 0;
    select(view[Math.min(view.length - 1, Math.max(0, start + steps))]);
  };
  const classBox = makeClassBox({
    classes, unknown, takesNew: !isAudit,
    choose: (name) => { decide(name); toList(); },
    cancel: () => { toList(); say(describe(current)); },
  });

  const onDigit = (digit) => {
    const candidates = answers[current].candidates;
    if (!digitNames) {
      if (Number(digit) >= 1 && Number(digit) <= candidates.length) decide(candidates[Number(digit) - 1]);
      else say(`There is no choice ${digit}.`);
    } else if (isWholeName(digit)) decide(digit);
    else classBox.begin(digit);
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
    else if (event.key === "z") zoom();
    else if (event.key === ".") filters.label.focus();
    else if (event.key === "-") decide(unknown);
    else if (event.key === "/") classBox.begin("");
    else if (/^[0-9]$/.test(event.key)) onDigit(event.key);
    else if (/^[^\s\u0000-\u001f]$/u.test(event.key)) classBox.begin(event.key);
    else return false;
    return true;
  };
  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const target = event.target instanceof Element ? event.target : document.body;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      const key = event.key.toLowerCase();
      if (key === "s" && decisions.places().length) { event.preventDefault(); save(); }
      else if (key === "z" && target !== classBox.box) { event.preventDefault(); undo(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || (event.altKey && event.key.length > 1)) return;
    if (target === classBox.box) {
      if (classBox.onKey(event)) event.preventDefault();
      return;
    }
    if (target.closest("select")) {
      // Enter takes the filter, and Escape removes all.
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      if (event.key === "Escape") showAll();
      toList();
      return;
    }
    if (target.closest("button, a") && (event.key === "Enter" || event.key === " ")) return;
    if (onKey(event)) event.preventDefault();
  });

  const save = () => {
    const order = decisions.places().sort((a, b) => answers[a].number - answers[b].number);
    const lines = order.map((i) => {
      const { path, label } = answers[i], { name, when } = decisions.get(i);
      return isAudit ? [path, label, name === unknown ? "" : name, name === unknown ? "x" : "", when] : [path, label, name, when];
    });
    saveCsv(words.file, [["path", "label", "corrected", ...(isAudit ? ["remove"] : []), "when"], ...lines]);
    decisions.markSaved();
    say(`${words.file} is saved, with ${order.length} reviewed ${words.items}.`);
  };
  const forget = () => {
    const n = decisions.places().length;
    if (!n || !confirm(`Discard all ${n} decisions? They cannot be brought back.`)) return;
    decisions.clear();
    refresh();
    say("All decisions are forgotten.");
  };
  const applyFilters = () => {
    refresh();
    if (view.length && !view.includes(current)) select(view[0]);
    say(`${view.length} ${words.items} are shown.`);
  };
  const showAll = () => {
    for (const select of Object.values(filters)) select.selectedIndex = 0;
    applyFilters();
  };

  const clicks = {
    save, accept, undo, clear: forget, image: zoom, "show-all": showAll,
    none: () => decide(unknown), previous: () => move(-1), next: () => move(1),
  };
  for (const [id, action] of Object.entries(clicks)) {
    byId(id).addEventListener("click", () => { action(); if (!["save", "clear", "image"].includes(id)) toList(); });
  }
  for (const select of Object.values(filters)) select.addEventListener("change", applyFilters);

  byId("digits").textContent = digitNames
    ? "A digit that is the name of a class takes it; other digits begin a name."
    : "A digit takes the choice of this number.";
  offerClasses();
  const first = answers.findIndex((_, i) => isTodo(i));
  current = Math.max(0, first);
  refresh();
  say(describe(current));
  toList();
})();
