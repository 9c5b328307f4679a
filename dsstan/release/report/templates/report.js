"use strict";
// Sort a table by a column, and show the numbers of the place that the reader points at.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  const said = document.getElementById("sorted");
  const key = (row, column) => row.cells[column].dataset.value;
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const text = head.dataset.kind === "text";
      const rows = Array.from(table.tBodies[0].rows);
      rows.sort((a, b) => {
        if (text) {
          const order = a.cells[column].textContent.localeCompare(
            b.cells[column].textContent, "en", { numeric: true });
          return up ? order : -order;
        }
        const x = Number(key(a, column)), y = Number(key(b, column));
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return x === y ? 0 : (x < y) === up ? -1 : 1;
      });
      table.tBodies[0].append(...rows);
      said.textContent = "Sorted by " + button.textContent.trim() + ", " +
        (up ? "smallest first" : "largest first") + ".";
    });
  });
}
for (const box of document.querySelectorAll("[data-readout]")) {
  const readout = document.getElementById(box.dataset.readout);
  const show = (event) => {
    const place = event.target.closest(".place");
    if (place === null) return;
    box.querySelectorAll(".place.shown").forEach((other) => other.classList.remove("shown"));
    place.classList.add("shown");
    readout.textContent = place.querySelector("title").textContent;
  };
  box.addEventListener("pointerover", show);
  box.addEventListener("click", show);
}
