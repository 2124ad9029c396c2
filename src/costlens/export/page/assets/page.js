// Draws the charts of the page from the specifications and rows in it; asks no network.
"use strict";

(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const columns = (page.columns.a ?? []).map((_, row) =>
    Object.fromEntries(Object.entries(page.columns).map(([key, values]) => [key, values[row]])),
  );
  const narrow = window.matchMedia("(max-width: 40rem)");
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

  // Colours are CSS variables: a change from light to dark needs no new drawing.
  const config = {
    background: "transparent",
    font: FONT,
    view: { stroke: "transparent" },
    axis: {
      labelColor: "var(--muted)",
      titleColor: "var(--muted)",
      domainColor: "var(--line)",
      tickColor: "var(--line)",
      gridColor: "var(--grid)",
      labelFontSize: 11,
      titleFontSize: 11,
      titleFontWeight: "normal",
      labelOverlap: true,
    },
    axisYQuantitative: { minExtent: 40, maxExtent: 40 }, // one above the other, times line up
    text: { fontSize: 11 },
  };

  // Theme and width belong to the page, everything else to the specification.
  const complete = (spec) => ({
    ...spec,
    config,
    width: "container",
    autosize: { type: "fit-x", contains: "padding" },
    datasets: { columns: structuredClone(columns) },
  });

  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    ast: true, // no code is made of texts: the page's policy would refuse it
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };

  const draw = async (plot) => {
    try {
      const holder = document.createElement("div");
      holder.ariaHidden = "true"; // the sentence beside it is what a screen reader reads
      plot.replaceChildren(holder);
      await window.vegaEmbed(holder, complete(page.charts[plot.dataset.chart]), options);
    } catch (error) {
      console.error(`chart ${plot.dataset.chart}:`, error);
      const note = document.createElement("p");
      note.className = "note";
      note.textContent = "This chart could not be drawn; the table below has its figures.";
      plot.replaceChildren(note);
    }
  };

  // A region takes the keyboard only where there is something to scroll to.
  const settleRegions = () => {
    for (const region of document.querySelectorAll(".scroll")) {
      if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
      else region.removeAttribute("tabindex");
    }
  };

  const openAll = () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  };

  const drawAll = async () => {
    for (const plot of document.querySelectorAll("[data-chart]")) await draw(plot);
    settleRegions();
    document.documentElement.dataset.drawn = "true";
  };

  window.addEventListener("resize", settleRegions);
  window.addEventListener("beforeprint", openAll);
  document.addEventListener("toggle", settleRegions, true);
  narrow.addEventListener("change", settleRegions);
  drawAll();
})();
