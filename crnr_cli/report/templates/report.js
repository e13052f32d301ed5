"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { names, k, support, cells, mistakes, listed_all: listedAll } = data;
  if (!k) return; // no query has both a true class and an answer, so there is no matrix
  const byId = (id) => document.getElementById(id);
  const grid = byId("grid"), tip = byId("tip"), spoken = byId("spoken");
  const overview = byId("overview"), detail = byId("detail");
  const counts = new Map(cells.map(([row, column, count]) => [row * k + column, count]));
  const rowNames = [...document.querySelectorAll(".matrix .rows span")];
  const columnNames = [...document.querySelectorAll(".matrix .columns span")];

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const countAt = (row, column) => counts.get(row * k + column) || 0;
  const share = (row, column) => (support[row] ? (100 * countAt(row, column)) / support[row] : 0).toFixed(1);
  const describe = (row, column) => {
    const of = `${countAt(row, column)} of ${support[row]} (${share(row, column)}%)`;
    return row === column ? `${names[row]}, labelled correctly: ${of}` : `${names[row]}, labelled as ${names[column]}: ${of}`;
  };

  let at = null;
  const place = (id, row, column) => {
    const mark = byId(id);
    if (row !== null) mark.setAttribute("y", row);
    if (column !== null) mark.setAttribute("x", column);
    mark.setAttribute("visibility", "visible");
  };

  const point = (row, column) => {
    if (at) {
      rowNames[at[0]]?.classList.remove("at");
      columnNames[at[1]]?.classList.remove("at");
    }
    at = [row, column];
    rowNames[row]?.classList.add("at");
    columnNames[column]?.classList.add("at");
    place("cursor", row, column);
    place("cross-row", row, null);
    place("cross-column", null, column);
    tip.textContent = describe(row, column);
    tip.hidden = false;
    const size = grid.clientWidth / k;
    const box = grid.closest(".matrix-box"); // on a narrow screen, it shows a part of the matrix
    const end = Math.min(grid.clientWidth, box.scrollLeft + box.clientWidth - grid.offsetLeft);
    const left = Math.max(0, Math.min((column + 1) * size + 8, end - tip.offsetWidth));
    const above = row * size - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above >= 0 ? above : (row + 1) * size + 8}px`;
  };

  const leave = () => {
    if (!at) return;
    rowNames[at[0]]?.classList.remove("at");
    columnNames[at[1]]?.classList.remove("at");
    at = null;
    tip.hidden = true;
    for (const id of ["cursor", "cross-row", "cross-column"]) byId(id).setAttribute("visibility", "hidden");
  };

  const cellUnder = (event) => {
    const box = grid.getBoundingClientRect();
    const clamp = (value) => Math.min(k - 1, Math.max(0, Math.floor(value)));
    return [clamp(((event.clientY - box.top) / box.height) * k), clamp(((event.clientX - box.left) / box.width) * k)];
  };

  const back = () => {
    detail.hidden = true;
    overview.hidden = false;
    byId("chosen").setAttribute("visibility", "hidden");
  };

  const choose = (row, column) => {
    place("chosen", row, column);
    overview.hidden = true;
    detail.hidden = false;
    const button = element("button", "← Most often confused", "back screen");
    button.type = "button";
    button.addEventListener("click", back);
    const title = element("h2", row === column ? names[row] : `${names[row]} labelled as ${names[column]}`);
    detail.replaceChildren(button, title, element("p", `${countAt(row, column)} of ${support[row]} queries of this class (${share(row, column)}%)`, "soft"));
    if (row === column) {
      detail.append(element("p", countAt(row, column) ? "All of these were labelled correctly." : "None was labelled correctly."));
      return;
    }
    const found = mistakes.filter((mistake) => mistake.truth === row && mistake.label === column);
    const list = element("ul", undefined, "found");
    for (const mistake of found) {
      const item = element("li");
      if (mistake.image) {
        const image = element("img", undefined, "thumb");
        image.src = mistake.image;
        image.alt = "";
        sharpen(image);
        item.append(image);
      }
      const about = element("div");
      about.append(element("div", mistake.path || "no path", "path"));
      if (mistake.margin !== null) about.append(element("div", `margin ${mistake.margin.toFixed(3)}`, "soft"));
      item.append(about);
      list.append(item);
    }
    detail.append(list);
    if (!listedAll && found.length < countAt(row, column)) {
      detail.append(element("p", `${countAt(row, column) - found.length} more are not on this page; crnr evaluate --errors FILE lists all.`, "soft"));
    }
  };

  // Small images are enlarged without blur.
  const sharpen = (image) => {
    const look = () => image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 48);
    if (image.complete) look();
    image.addEventListener("load", look);
  };
  document.querySelectorAll("img.thumb").forEach(sharpen);

  grid.addEventListener("pointermove", (event) => point(...cellUnder(event)));
  grid.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") leave(); });
  grid.addEventListener("click", (event) => { const cell = cellUnder(event); point(...cell); choose(...cell); });
  grid.addEventListener("blur", leave);
  const wrong = cells.filter(([row, column]) => row !== column).map(([row, column]) => row * k + column);
  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    let [row, column] = at || [0, 0];
    const last = k - 1;
    if (event.key === "Enter" || event.key === " ") choose(row, column);
    else if (event.key === "ArrowUp") row = Math.max(0, row - 1);
    else if (event.key === "ArrowDown") row = Math.min(last, row + 1);
    else if (event.key === "ArrowLeft") column = Math.max(0, column - 1);
    else if (event.key === "ArrowRight") column = Math.min(last, column + 1);
    else if (event.key === "Home") column = 0;
    else if (event.key === "End") column = last;
    else if (event.key.toLowerCase() === "n" && wrong.length) {
      const next = wrong.find((cell) => cell > row * k + column) ?? wrong[0];
      [row, column] = [Math.floor(next / k), next % k];
    } else return;
    event.preventDefault();
    place("cursor", row, column);
    byId("cursor").scrollIntoView({block: "nearest", inline: "nearest"});
    point(row, column);
    spoken.textContent = describe(row, column);
  });
  for (const button of overview.querySelectorAll("button[data-row]")) {
    button.addEventListener("click", () => choose(Number(button.dataset.row), Number(button.dataset.column)));
  }

  const table = byId("classes"), body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, index) => {
    head.querySelector("button").addEventListener("click", () => {
      const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way);
      const value = (row) => row.cells[index].dataset.value;
      const order = index === 0
        ? (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true })
        : (a, b) => value(a) - value(b);
      const sign = way === "ascending" ? 1 : -1;
      body.append(...[...body.rows].sort((a, b) => sign * order(a, b)));
    });
  });
})();
