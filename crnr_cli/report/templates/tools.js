"use strict";
// Tools of the pages on which a person decides about images. A page names them in `const { byId, ... } = tools;`.
const tools = (() => {
  const byId = (id) => document.getElementById(id);
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

  // Announce a text to screen readers, in the element "spoken".
  let announced = "";
  const say = (text) => {
    // The same text twice would not be read twice.
    announced = text === announced ? `${text}\u00a0` : text;
    byId("spoken").textContent = shown(announced);
  };

  // Images in scripts of JSON, `perPart` in each; a script is unpacked when one of its images is first seen.
  const packed = (selector, perPart) => {
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
  const isTiny = (image) => Math.max(image.naturalWidth, image.naturalHeight) <= 48;
  const thumb = (source, alt) => {
    if (!source) return element("span", undefined, "thumb");
    const image = element("img", undefined, "thumb");
    image.alt = alt;
    image.addEventListener("load", () => image.classList.toggle("tiny", isTiny(image)));
    image.src = source;
    return image;
  };

  // The decisions about items, by their place: {name, when, label}. The browser keeps them under `prefix` and the
  // key of the item, after the page is made again too; `label` is the answer that the decision was about.
  const keepDecisions = ({ prefix, keys, labels, onLost, onChange }) => {
    const decisions = new Map(), history = [];
    const placeOf = new Map(keys.map((key, i) => [prefix + key, i]));
    let isKept = true, isSaved = true;
    const attempt = (work) => {
      try {
        work();
      } catch {
        isKept = false;
        onLost();
      }
    };
    const store = (i) => attempt(() => {
      const decided = decisions.get(i);
      if (decided) localStorage.setItem(prefix + keys[i], JSON.stringify([decided.name, decided.when, decided.label]));
      else localStorage.removeItem(prefix + keys[i]);
    });
    const parsed = (text) => {
      try {
        const [name, when, label] = JSON.parse(text);
        return typeof name === "string" && name && typeof when === "string" ? { name, when, label } : null;
      } catch {
        return null;
      }
    };
    attempt(() => {
      for (let k = 0; k < localStorage.length; k++) {
        const place = placeOf.get(localStorage.key(k));
        const decided = place === undefined ? null : parsed(localStorage.getItem(localStorage.key(k)));
        if (decided) decisions.set(place, decided);
      }
    });
    const order = [...decisions].sort(([, a], [, b]) => (a.when < b.when ? -1 : a.when > b.when ? 1 : 0));
    for (const [i] of order) history.push({ i, before: undefined });
    const put = (i, decided) => {
      if (decided) decisions.set(i, decided);
      else decisions.delete(i);
      isSaved = false;
      store(i);
    };
    // The same page in another tab.
    addEventListener("storage", (event) => {
      const i = placeOf.get(event.key);
      if (i === undefined) return;
      const decided = parsed(event.newValue);
      if (decided) decisions.set(i, decided);
      else decisions.delete(i);
      onChange();
    });
    addEventListener("beforeunload", (event) => { if (!isKept && !isSaved) event.preventDefault(); });
    return {
      get: (i) => decisions.get(i),
      has: (i) => decisions.has(i),
      places: () => [...decisions.keys()],
      // Whether the item had another label when it was decided.
      hasChanged: (i) => ![undefined, labels[i]].includes(decisions.get(i)?.label),
      canUndo: () => history.length > 0,
      set: (i, name) => {
        history.push({ i, before: decisions.get(i) });
        put(i, { name, when: new Date().toISOString(), label: labels[i] });
      },
      // Take the last decision back; return the place of its item, or undefined.
      undo: () => {
        const last = history.pop();
        if (last) put(last.i, last.before);
        return last?.i;
      },
      clear: () => {
        const all = [...decisions.keys()];
        decisions.clear();
        history.length = 0;
        all.forEach(store);
      },
      markSaved: () => { isSaved = true; },
    };
  };

  // The dialog "zoom" shows the file itself: in the window, then with its own pixels. `back` takes the focus.
  const makeZoom = (back) => {
    const dialog = byId("zoom"), place = byId("zoom-image"), sign = byId("zoom-sign"), link = byId("zoom-file");
    const isLarger = (image) => image.naturalWidth > place.clientWidth || image.naturalHeight > place.clientHeight;
    const leave = () => {
      if (dialog.open) return; // the event comes late, and the next image is open already
      place.replaceChildren();
      back();
    };
    // At once: a key may come before the event, while the button that opened the dialog has the focus.
    const close = () => { dialog.close(); leave(); };
    const enlarge = () => {
      const image = place.querySelector("img");
      if (!image || dialog.classList.contains("own-pixels") || !isLarger(image)) close();
      else {
        dialog.classList.add("own-pixels");
        place.scrollTo((place.scrollWidth - place.clientWidth) / 2, (place.scrollHeight - place.clientHeight) / 2);
        say("Own pixels; arrows scroll, Escape closes.");
      }
    };
    const warn = (text, instead) => {
      sign.textContent = text;
      sign.hidden = false;
      link.hidden = true;
      if (instead) place.replaceChildren(thumb(instead, "The small image in the page"));
      else place.replaceChildren();
      say(text);
    };
    const readable = (address) => {
      try {
        return shown(decodeURI(address));
      } catch { // a name that is not UTF-8
        return address;
      }
    };
    // `file` is the link to the file, or "" and `why` it cannot be shown; `instead` is the image in the page.
    const open = ({ name, file, why, instead }) => {
      dialog.classList.remove("own-pixels");
      byId("zoom-name").textContent = shown(name);
      sign.hidden = true;
      link.hidden = !file;
      link.href = file;
      if (!dialog.open) dialog.showModal();
      place.focus();
      if (!file) return warn(why, instead);
      const image = thumb(file, "The file itself");
      image.addEventListener("error", () => {
        if (place.contains(image)) warn(`The file is not at ${readable(file)}, or this browser cannot show it.`, instead);
      });
      place.replaceChildren(image);
      return say("The file itself; z shows its own pixels, Escape closes.");
    };
    place.addEventListener("click", enlarge);
    byId("zoom-close").addEventListener("click", close);
    dialog.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "z" && !event.repeat) { event.preventDefault(); enlarge(); }
    });
    dialog.addEventListener("close", leave);
    return open;
  };

  // The box "name" with the list "names" below it, for any class, or only the known ones. `choose` takes a name.
  const makeClassBox = ({ classes, unknown, takesNew, choose, cancel }) => {
    const MOST_NAMES = 8;
    const box = byId("name"), names = byId("names");
    const fold = (text) => text.normalize("NFC").toLowerCase();
    const folded = [...classes, unknown].map((name) => [fold(name), name]);
    let offered = [], active = -1;
    const close = (empty) => {
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
      if (!typed) return close(false);
      const key = fold(typed);
      const starting = folded.filter(([name]) => name.startsWith(key));
      const within = folded.filter(([name]) => !name.startsWith(key) && name.includes(key));
      const exact = starting.filter(([name]) => name === key);
      const found = [...new Set([...exact, ...starting, ...within].map(([, name]) => name))];
      offered = found.slice(0, MOST_NAMES).map((name) => ({ name, text: name === unknown ? `${name} (none of the classes)` : name }));
      const n = offered.length;
      const isKnown = classes.includes(typed) || typed === unknown;
      if (!isKnown && takesNew) offered.push({ name: typed, text: `New class: ${typed}` });
      names.replaceChildren(...offered.map(({ name, text }, place) => {
        const item = element("li", shown(text));
        item.id = `name-${place}`;
        item.setAttribute("role", "option");
        // Before the box loses the focus.
        item.addEventListener("pointerdown", (event) => event.preventDefault());
        item.addEventListener("click", () => choose(name));
        return item;
      }));
      const hint = found.length > n ? `${found.length - n} more; type more of the name`
        : n ? "" : !takesNew ? "No class matches." : "No class matches. Choose the new class to add it: arrow down, then Enter.";
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
    box.addEventListener("blur", () => close(false));
    box.addEventListener("focus", () => { if (box.value) offer(); });
    const begin = (text) => {
      box.value = text;
      box.focus();
      offer();
    };
    // Handle a key in the box; return whether it was used.
    const onKey = (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const n = offered.length;
        if (n) mark(event.key === "ArrowDown" ? (active + 1) % n : (Math.max(active, 0) - 1 + n) % n);
        if (active >= 0) say(offered[active].text);
      } else if (event.key === "Enter") {
        if (event.repeat) return true;
        if (active >= 0) choose(offered[active].name);
        else say("No class is highlighted.");
      } else if (event.key === "Escape") {
        close(true);
        cancel();
      } else return false;
      return true;
    };
    return { box, begin, close, onKey };
  };

  const field = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // Names that are not UTF-8 are lone surrogates here, and become the bytes that they were.
  const bytesOf = (text) => text.split(/([\udc80-\udcff])/u).map((piece, i) =>
    (i % 2 ? Uint8Array.of(piece.charCodeAt(0) - 0xdc00) : piece));
  // Download rows of texts as a CSV file.
  const saveCsv = (name, rows) => {
    const content = rows.map((row) => `${row.map(field).join(",")}\n`).join("");
    const link = element("a");
    link.href = URL.createObjectURL(new Blob(bytesOf(content), { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };

  return { byId, element, shown, say, packed, thumb, keepDecisions, makeZoom, makeClassBox, saveCsv };
})();
