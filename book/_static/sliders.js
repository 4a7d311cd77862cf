// Plotly's sliders answer to the mouse alone. Here a figure with a slider takes the focus, and the arrow keys, Home and
// End move it; every figure is announced by its title. A figure may be drawn before the page has its width, so each is fitted
// once more.
window.addEventListener("load", () => {
  const words = (html) => new DOMParser().parseFromString((html || "").replaceAll("<br>", " "), "text/html").body.textContent.trim();
  for (const graph of document.querySelectorAll(".js-plotly-plot")) {
    Plotly.Plots.resize(graph);
    const slider = (graph.layout.sliders || [])[0];
    const title = () => words((graph.layout.title || {}).text) || "figure";
    if (!slider) {
      graph.setAttribute("role", "img");
      graph.setAttribute("aria-label", title());
      continue;
    }
    const tell = () => {
      const now = graph.layout.sliders[0].active || 0;
      const text = words((slider.currentvalue || {}).prefix) + " " + slider.steps[now].label;
      graph.setAttribute("aria-label", title());
      graph.setAttribute("aria-valuenow", now);
      graph.setAttribute("aria-valuetext", text);
    };
    graph.tabIndex = 0;
    graph.setAttribute("role", "slider");
    graph.setAttribute("aria-valuemin", 0);
    graph.setAttribute("aria-valuemax", slider.steps.length - 1);
    tell();
    graph.on("plotly_sliderchange", () => setTimeout(tell));
    graph.addEventListener("keydown", async (event) => {
      const now = graph.layout.sliders[0].active || 0;
      const last = slider.steps.length - 1;
      const aims = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1, Home: 0, End: last };
      if (!(event.key in aims)) return;
      event.preventDefault();
      const aim = Math.min(last, Math.max(0, aims[event.key]));
      await Plotly.animate(graph, ...slider.steps[aim].args);
      await Plotly.relayout(graph, { "sliders[0].active": aim });
      tell();
    });
  }
});
