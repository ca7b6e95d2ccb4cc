/* Draws the curves of a page with uPlot, in the colours of the page and as wide as their place. */
"use strict";
(() => {
  const HEIGHT = 180;
  const drawn = new Map();
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clock = (instant) => new Date(instant * 1000).toTimeString().slice(0, 5);
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const plot = drawn.get(entry.target);
      const width = Math.floor(entry.contentRect.width);
      if (plot && width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  });

  function draw(figure) {
    const given = JSON.parse(figure.dataset.curve);
    const place = figure.querySelector(".plot");
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
    const says = (value) => (value === null || value === undefined ? "–" : `${Number(value.toPrecision(3))}${given.unit && ` ${given.unit}`}`);
    const options = {
      width: Math.max(120, Math.floor(place.clientWidth)),
      height: HEIGHT,
      scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, values: (plot, instants) => instants.map(clock) }, { ...axis, size: 56 }],
      legend: { live: true },
      series: [
        { label: "minute", value: (plot, instant) => (instant ? clock(instant) : "–") },
        ...given.series.map((one) => ({
          label: one.label, stroke: color(one.color), width: 2, spanGaps: true, points: { show: true, size: 4 }, value: (plot, value) => says(value),
        })),
      ],
    };
    place.replaceChildren();
    drawn.set(place, new uPlot(options, [given.at, ...given.series.map((one) => one.values)], place));
    resized.observe(place);
  }

  function drawAll() {
    for (const [place, plot] of drawn) {
      plot.destroy();
      resized.unobserve(place);
    }
    drawn.clear();
    document.querySelectorAll("figure.curve[data-curve]").forEach(draw);
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.addEventListener("htmx:afterSettle", drawAll);
  drawAll();
})();
