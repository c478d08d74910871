"use strict";
// Read the curves: under the pointer, or with the arrow keys. Everything needed is in the drawings themselves.

function numbers(text) {
  return text === "" ? [] : text.split(" ").map(Number);
}

function nearest(sorted, x) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle; else high = middle;
  }
  return x - sorted[low] < sorted[high] - x ? low : high;
}

// Where the pointer is, in the units of the drawing.
function place(svg, event) {
  return new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
}

function followCurves(svg) {
  const [left, right, low, high] = numbers(svg.dataset.place);
  const cursor = svg.querySelector(".cursor"), at = svg.querySelector(".at");
  const values = [...svg.querySelectorAll(".value")];
  const curves = [...svg.querySelectorAll(".series")].map((g, i) => ({
    x: numbers(g.dataset.x), y: g.dataset.y.split("|"), value: values[i],
  })).filter((curve) => curve.x.length);
  const rest = [at, ...values].map((element) => [element, element.textContent]);
  const all = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  let here = all.length - 1;

  function show(index) {
    here = Math.min(Math.max(index, 0), all.length - 1);
    const x = all[here], across = left + (right - left) * (x - low) / (high - low);
    cursor.setAttribute("x1", across);
    cursor.setAttribute("x2", across);
    at.textContent = `${svg.dataset.unit} ${Number(x.toFixed(2))}`;
    for (const curve of curves) curve.value.textContent = curve.y[nearest(curve.x, x)];
  }

  function leave() {
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
    for (const [element, text] of rest) element.textContent = text;
    here = all.length - 1;
  }

  svg.addEventListener("pointermove", (event) => {
    show(nearest(all, low + (high - low) * (place(svg, event).x - left) / (right - left)));
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}

function followCells(svg) {
  const [left, right, top, bottom] = numbers(svg.dataset.cells), epochs = numbers(svg.dataset.epochs);
  const rows = [...svg.querySelectorAll("[data-values]")].map((g) => [g.dataset.name, g.dataset.values.split(" ")]);
  const at = svg.querySelector(".at"), rest = at.textContent;

  svg.addEventListener("pointermove", (event) => {
    const { x, y } = place(svg, event);
    const column = Math.floor(epochs.length * (x - left) / (right - left));
    const [name, values] = rows[Math.floor(rows.length * (y - top) / (bottom - top))] ?? ["", []];
    at.textContent = values[column] ? `${name}, epoch ${epochs[column]}: ${(values[column] / 10).toFixed(1)} %` : rest;
  });
  svg.addEventListener("pointerleave", () => { at.textContent = rest; });
}

document.querySelectorAll("svg[data-place]").forEach(followCurves);
document.querySelectorAll("svg[data-cells]").forEach(followCells);
