// Draws the page's figures with ECharts, over the still ones. Without it the page still reads.
(async () => {
  "use strict";
  const text = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(text("figures"));
  const plots = [...document.querySelectorAll(".plot")];
  const night = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const LINE_HEIGHT = 17;

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

  const written = (value) =>
    Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 9 });

  // ECharts names nothing but whole decades on an axis of its own kind "log": the logarithm is
  // taken here, and the names are chosen here.
  const placed = (side, value) => {
    if (value === null || (side.log && value <= 0)) return "-";
    return side.log ? Math.log10(value) : value;
  };
  const meant = (side, place) => (side.log ? 10 ** place : place);

  // 1, 2 and 5 of each decade, or 1 alone; within less than a decade, even steps.
  const names = (extent, most) => {
    const [low, high] = extent.map((place) => 10 ** place);
    const decades = extent[1] - extent[0];
    const within = (values) => values.filter((value) => value >= low * 0.999 && value <= high * 1.001);
    if (decades < 0.7) {
      const step = 10 ** Math.floor(Math.log10((high - low) / most));
      const even = [1, 2, 5, 10].map((times) => times * step).find((one) => (high - low) / one <= most);
      const first = Math.ceil(low / even);
      return within([...Array(most + 1).keys()].map((nth) => (first + nth) * even));
    }
    const of = (parts) => {
      const all = [];
      for (let decade = Math.floor(extent[0]); decade <= Math.ceil(extent[1]); decade++) {
        all.push(...parts.map((part) => part * 10 ** decade));
      }
      return within(all);
    };
    return [[1, 2, 5], [1, 3], [1]].map(of).find((all) => all.length <= most) ?? of([1]);
  };

  // A marker of the still figure, whose corners lie around (0, 0).
  const marker = (corners, radius) => {
    const [xs, ys] = [0, 1].map((at) => corners.map((corner) => corner[at]));
    const span = (all) => [Math.min(...all), Math.max(...all)];
    const [[left, right], [top, bottom]] = [span(xs), span(ys)];
    return { symbol: "path://M" + corners.map((corner) => corner.join(" ")).join("L") + "Z",
      symbolSize: [(right - left) * radius, (bottom - top) * radius],
      symbolOffset: [((left + right) / 2) * radius, ((top + bottom) / 2) * radius] };
  };

  // The interval of a point, from its low end to its high one, with caps.
  const interval = (ink) => (_, api) => {
    const [x, low, high] = [0, 1, 2].map((at) => api.value(at));
    const [[at, bottom], [, top]] = [api.coord([x, low]), api.coord([x, high])];
    const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 },
      style: { stroke: ink, lineWidth: 1.3 } });
    return { type: "group", children: [line(at, bottom, at, top),
      line(at - 4, bottom, at + 4, bottom), line(at - 4, top, at + 4, top)] };
  };

  const series = (figure, colour, hidden) => figure.series.flatMap((one, nth) => {
    if (hidden.has(nth)) return [];
    const ink = colour(one.colour);
    const points = (x, y, texts) => x.map((_, at) => ({ text: texts[at],
      value: [placed(figure.x, x[at]), placed(figure.y, y[at])] }));
    const shape = one.corners === null ? { symbol: "none" } : marker(one.corners, one.joined ? 4.8 : 3.3);
    const valid = { id: `${nth}`, type: one.joined ? "line" : "scatter", clip: true,
      data: points(one.x, one.y, one.text), ...shape, itemStyle: { color: ink },
      showAllSymbol: true, step: one.steps ? "end" : false, emphasis: { disabled: true },
      lineStyle: { color: ink, width: one.steps ? 1.5 : 2, type: one.dash ?? "solid" } };
    const all = [valid];
    // Lines along time have too many points for marks and bars.
    if (one.corners !== null) {
      // An axis begins above 0 if it is logarithmic: what reaches lower goes down to its end.
      const low = (at) => {
        const place = placed(figure.y, one.y[at] - one.down[at]);
        return place === "-" ? -300 : place;
      };
      const bars = one.x.flatMap((x, at) => (one.up[at] || one.down[at]
        ? [[placed(figure.x, x), low(at), placed(figure.y, one.y[at] + one.up[at])]] : []));
      all.push({ id: `${nth}-interval`, type: "custom", clip: true, silent: true, data: bars,
        renderItem: interval(ink), encode: { x: 0, y: [1, 2] }, tooltip: { show: false } });
    }
    if (one.invalid.x.length > 0) {
      all.push({ id: `${nth}-invalid`, type: "scatter", clip: true, emphasis: { disabled: true },
        data: points(one.invalid.x, one.invalid.y, one.invalid.text),
        ...marker(one.invalid.corners, 5.5),
        itemStyle: { color: "transparent", borderColor: ink, borderWidth: 1.5 } });
    }
    return all;
  });

  // The ends of a logarithmic axis, a little outside of all points; a linear one begins at 0.
  const ends = (side, values) => {
    const places = values.filter((value) => value > 0).map(Math.log10);
    if (!side.log || places.length === 0) return {};
    const [low, high] = [Math.min(...places), Math.max(...places)];
    const air = Math.max(0.04 * (high - low), 0.02);
    return { min: low - air, max: high + air };
  };

  const axis = (side, values, most, colour) => ({ type: "value", ...ends(side, values),
    splitNumber: most - 2, axisLine: { show: true, onZero: false, lineStyle: { color: colour("--pale") } },
    axisTick: { show: true, lineStyle: { color: colour("--pale") } },
    splitLine: { lineStyle: { color: colour("--rule") } },
    axisLabel: { color: colour("--ink"), fontSize: 13, hideOverlap: true,
      formatter: (place) => written(meant(side, place)) } });

  const option = (figure, width, colour, hidden) => {
    const [y, x] = [figure.y, figure.x].map((side) => wrapped(side.label, width - 60));
    const ink = colour("--ink");
    const narrow = width < 560;
    const all = (at) => figure.series.flatMap((one) => [...one[at], ...one.invalid[at],
      ...(at === "y" && one.corners !== null
        ? one.y.flatMap((value, nth) => (value === null ? []
          : [value + one.up[nth], value - one.down[nth]])) : [])]);
    const label = { color: ink, fontSize: 13, fontWeight: "normal", lineHeight: LINE_HEIGHT };
    const room = figure.room?.map((value) => placed(figure.y, value)).filter((place) => place !== "-");
    return { animation: false, backgroundColor: "transparent",
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: ink },
      title: { text: y.join("\n"), left: 0, top: 0, padding: [5, 60, 0, 0], textStyle: label },
      grid: { left: 8, right: 28, top: 18 + LINE_HEIGHT * y.length, bottom: 18 + LINE_HEIGHT * x.length,
        containLabel: true },
      xAxis: { ...axis(figure.x, all("x"), narrow ? 5 : 9, colour), name: x.join("\n"),
        nameLocation: "middle", nameGap: 30, nameTextStyle: { ...label, verticalAlign: "top" } },
      yAxis: { ...axis(figure.y, all("y"), 8, colour),
        ...(room?.length === 2 ? { min: room[0], max: room[1] } : {}) },
      tooltip: { trigger: narrow ? "item" : "axis", confine: true, className: "tip",
        axisPointer: { type: "line", snap: true, lineStyle: { color: colour("--pale"), type: "dotted" } },
        backgroundColor: colour("--panel"), borderColor: colour("--rule"),
        textStyle: { color: ink, fontSize: 13 },
        extraCssText: "max-width:100%;white-space:normal;overflow-wrap:anywhere",
        formatter: (told) => {
          const points = [told].flat().filter((point) => point.data.text);
          if (points.length === 0) return "";
          const at = written(meant(figure.x, points[0].value[0]));
          return [at, ...points.map((point) => point.data.text)].join("<br>");
        } },
      toolbox: { right: 10, top: 0, itemSize: 14, iconStyle: { borderColor: colour("--pale") },
        emphasis: { iconStyle: { borderColor: ink, textFill: ink } },
        feature: { dataZoom: { filterMode: "none", title: { zoom: "Zoom", back: "Back" },
            brushStyle: { color: colour("--rule"), opacity: 0.4 } },
          saveAsImage: { type: "svg", title: "Save", backgroundColor: colour("--paper") } } },
      series: series(figure, colour, hidden) };
  };

  const hidden = plots.map(() => new Set());
  const charts = [];

  // Names what is in sight of the logarithmic axes.
  const name = (nth) => {
    const figure = figures[plots[nth].dataset.figure];
    const narrow = plots[nth].clientWidth < 560;
    const named = (kind, most) => {
      if (!figure[kind].log) return {};
      const extent = charts[nth].getModel().getComponent(`${kind}Axis`).axis.scale.getExtent();
      const customValues = names(extent, most).map(Math.log10);
      return { axisTick: { customValues }, axisLabel: { customValues } };
    };
    charts[nth].setOption({ xAxis: named("x", narrow ? 5 : 9), yAxis: named("y", 8) });
  };

  // Back to all there is.
  const whole = (nth) => charts[nth].dispatchAction({ type: "dataZoom",
    batch: charts[nth].getOption().dataZoom.map(({ id }) => ({ dataZoomId: id, start: 0, end: 100 })) });

  const draw = (nth) => {
    const plot = plots[nth];
    const figure = figures[plot.dataset.figure];
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    charts[nth]?.resize();
    charts[nth] ??= listen(nth);
    // Otherwise what is said of a point is looked up again in a series that may have gone.
    charts[nth].dispatchAction({ type: "hideTip" });
    charts[nth].setOption(option(figure, plot.clientWidth, colour, hidden[nth]),
      { replaceMerge: ["series"] });
    // Where the page is scrolled by a finger, the button begins a zoom.
    if (!touch) {
      charts[nth].dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect",
        dataZoomSelectActive: true });
    }
    name(nth);
    plot.classList.add("drawn");
  };

  // Begins a figure and its legend.
  const listen = (nth) => {
    const chart = echarts.init(plots[nth].querySelector(".live"), null, { renderer: "svg" });
    chart.on("datazoom", () => name(nth));
    chart.getZr().on("dblclick", () => whole(nth));
    const legend = plots[nth].nextElementSibling;
    if (!legend?.matches(".legend")) return chart;
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
    return chart;
  };

  const packed = Uint8Array.from(atob(text("engine")), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const engine = document.createElement("script");
  engine.textContent = await new Response(stream).text();
  document.head.append(engine);

  for (let nth = 0; nth < plots.length; nth++) {
    draw(nth);
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
