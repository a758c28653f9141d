// Draws the page's figures with plotly.js, over the still ones. Without it the page still reads.
(async () => {
  "use strict";
  const text = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(text("figures"));
  const plots = [...document.querySelectorAll(".plot")];
  const night = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;

  // As wide as the figure is, a label breaks between words.
  const wrapped = (label, width) => {
    const room = Math.max(20, Math.floor(width / 7));
    const lines = [""];
    for (const word of label.split(" ")) {
      const last = lines[lines.length - 1];
      if (last === "") lines[lines.length - 1] = word;
      else if (last.length + 1 + word.length <= room) lines[lines.length - 1] += " " + word;
      else lines.push(word);
    }
    return lines;
  };

  const traces = (figure, colour, hidden) => figure.series.flatMap((one, nth) => {
    const ink = colour(one.colour);
    const all = { type: "scatter", name: one.label, showlegend: false, visible: !hidden.has(nth),
      hovertemplate: "%{text}<extra></extra>" };
    const line = { ...all, x: one.x, y: one.y, text: one.text, mode: "lines",
      connectgaps: false,
      line: { color: ink, width: one.steps ? 1.5 : 2, dash: one.dash,
        shape: one.steps ? "hv" : "linear" } };
    // Lines along time have too many points for marks and bars.
    const valid = one.symbol === null ? line : { ...line, mode: one.joined ? "lines+markers" : "markers",
      marker: { color: ink, size: one.joined ? 9 : 6, symbol: one.symbol },
      error_y: { type: "data", symmetric: false, array: one.up, arrayminus: one.down,
        color: ink, thickness: 1.3, width: 4 } };
    const invalid = { ...all, x: one.invalid.x, y: one.invalid.y, text: one.invalid.text,
      mode: "markers",
      marker: { color: ink, size: 11, symbol: one.invalid.symbol, line: { width: 1.5, color: ink } } };
    return one.invalid.x.length ? [valid, invalid] : [valid];
  });

  // A logarithmic axis names 1, 2, 5 or 1 of each decade: fewer ticks make plotly.js choose so.
  const ticks = (side, values, most) => {
    const above = values.filter((value) => value > 0);
    if (!side.log || above.length === 0) return most;
    const decades = Math.log10(Math.max(...above) / Math.min(...above)) * 1.1;
    return Math.max(2, Math.min(most, Math.floor(decades / 0.32)));
  };

  const axis = (side, colour) => ({ type: side.log ? "log" : "linear", tickformat: ",~f",
    hoverformat: ",~f", exponentformat: "none", gridcolor: colour("--rule"),
    linecolor: colour("--pale"), showline: true, zeroline: false, ticks: "outside",
    tickcolor: colour("--pale"), automargin: true,
    rangemode: side.log ? "normal" : "tozero" });

  const layout = (figure, width, colour) => {
    const y = wrapped(figure.y.label, width - 60);
    const x = wrapped(figure.x.label, width - 60);
    const side = colour("--ink");
    const narrow = width < 560;
    const all = (axis) => figure.series.flatMap((one) => [...one[axis], ...one.invalid[axis]]);
    const top = touch ? 30 : 0;
    return { autosize: true, uirevision: "kept",
      margin: { l: 56, r: 16, t: 22 + top + 17 * y.length, b: 40 + 17 * x.length },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: side },
      hovermode: narrow ? "closest" : "x unified",
      hoverlabel: { align: "left", namelength: -1, bgcolor: colour("--panel"),
        bordercolor: colour("--rule"), font: { size: 13, color: side } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--pale"), activecolor: side },
      dragmode: touch ? false : "zoom",
      xaxis: { ...axis(figure.x, colour), nticks: ticks(figure.x, all("x"), narrow ? 5 : 9),
        title: { text: x.join("<br>"), standoff: 10, font: { size: 13 } } },
      yaxis: { ...axis(figure.y, colour), nticks: ticks(figure.y, all("y"), 8),
        ...(figure.room ? { range: figure.room } : {}) },
      annotations: [{ text: y.join("<br>"), showarrow: false, align: "left", xref: "paper",
        x: 0, xanchor: "left", xshift: -8, yref: "paper", y: 1, yanchor: "bottom", yshift: 8 }] };
  };

  const config = { responsive: true, displaylogo: false, scrollZoom: false,
    displayModeBar: touch ? true : "hover", doubleClick: "reset",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

  const hidden = plots.map(() => new Set());
  const draw = async (nth) => {
    const plot = plots[nth];
    const figure = figures[plot.dataset.figure];
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    await Plotly.react(plot.querySelector(".live"), traces(figure, colour, hidden[nth]),
      layout(figure, plot.clientWidth, colour), config);
    plot.classList.add("drawn");
  };

  const listen = (nth) => {
    const legend = plots[nth].nextElementSibling;
    if (!legend?.matches(".legend")) return;
    const buttons = [...legend.querySelectorAll("button")];
    const show = () => {
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", !hidden[nth].has(at)));
      draw(nth);
    };
    buttons.forEach((button, at) => {
      button.title = "Click: this series on or off. Double click: this one alone, or all.";
      button.addEventListener("click", () => {
        if (!hidden[nth].delete(at)) hidden[nth].add(at);
        show();
      });
      button.addEventListener("dblclick", () => {
        const alone = buttons.every((_, other) => hidden[nth].has(other) === (other !== at));
        hidden[nth] = new Set(alone ? [] : buttons.keys());
        hidden[nth].delete(at);
        show();
      });
    });
  };

  const packed = Uint8Array.from(atob(text("engine")), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const engine = document.createElement("script");
  engine.textContent = await new Response(stream).text();
  document.head.append(engine);

  for (let nth = 0; nth < plots.length; nth++) {
    await draw(nth);
    listen(nth);
    await new Promise((next) => setTimeout(next));
  }
  const again = () => plots.forEach((_, nth) => draw(nth));
  night.addEventListener("change", again);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) again();
    width = innerWidth;
  });
  document.documentElement.dataset.drawn = plots.length;
})();
