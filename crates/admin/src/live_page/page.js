'use strict';
// Asks for the status each second, and shows it. What is shown was derived by the server.
const SAMPLES_MAX = 900;
const INTERVAL_MS = 1000;
const TIMEOUT_MS = 4000;
const REASONS_MAX = 9;
const TICKS = { 60: [60, 40, 20, 0], 300: [300, 180, 60, 0], 900: [900, 600, 300, 0] };
const SVG = 'http:' + '//www.w3.org/2000/svg';

const element = (id) => document.getElementById(id);
const put = (id, text) => {
  if (element(id).textContent !== text) element(id).textContent = text;
};
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hourCycle: 'h23' });

function number(value) {
  if (value === null || value === undefined) return '–';
  if (!Number.isInteger(value) && value < 9.95) return value.toFixed(1);
  return Math.round(value).toLocaleString('en');
}

function duration(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function make(parent, name, attributes, text) {
  const isSvg = parent.namespaceURI === SVG || name === 'svg';
  const made = isSvg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// The samples, by columns; the last is the newest.
const state = {
  columns: {}, refused: {}, next: 0, started: null, answeredMs: null, endMs: 0,
  seconds: 60, isChosen: false, cursor: null, condition: null, asked: 0,
};

function forget() {
  Object.assign(state, { columns: {}, refused: {}, next: 0, cursor: null });
}

function append(into, from) {
  for (const [name, values] of Object.entries(from)) {
    if (!Array.isArray(values)) continue;
    const all = (into[name] || []).concat(values);
    into[name] = all.slice(-SAMPLES_MAX);
  }
}

// ---------------------------------------------------------------- charts

const refusals = Array.from({ length: REASONS_MAX }, (_, index) => ({
  label: '–', color: `c-r${index}`, kind: 'area', values: () => [],
}));
const column = (name) => () => state.columns[name] || [];
const charts = [
  {
    title: 'Answered against offered', unit: 'per second', series: [
      { label: 'answered', color: 'c-good', kind: 'area', values: column('answered') },
      { label: 'offered', color: 'c-offered', kind: 'line', values: column('offered') },
      { label: 'failed (5xx)', color: 'c-failed', kind: 'rare', values: column('failed') },
    ],
  },
  {
    title: 'Refused', unit: 'per second, by reason', stacked: true, series: [
      ...refusals,
      { label: 'limit of its client', color: 'c-limited', kind: 'area', values: column('limited') },
    ],
  },
  {
    title: 'Accept queue', unit: 'connections', series: [
      { label: 'waiting', color: 'c-good', kind: 'area', values: column('queue') },
    ],
  },
  {
    title: 'Wait in the accept queue', unit: 'milliseconds, mean', series: [
      { label: 'wait', color: 'c-good', kind: 'points', values: column('queued_ms') },
    ],
  },
];

function build(chart) {
  const figure = make(element('charts'), 'figure');
  const caption = make(figure, 'figcaption', {}, chart.title + ' ');
  make(caption, 'span', { class: 'unit' }, chart.unit);
  const legend = make(figure, 'ul', { class: 'legend' });
  for (const series of chart.series) {
    const item = make(legend, 'li');
    const thin = ['line', 'rare'].includes(series.kind) ? ' thin' : '';
    make(item, 'i', { class: `key ${series.color}${thin}` });
    series.name = make(item, 'span', {}, series.label);
    series.value = make(item, 'b', {}, '–');
  }
  chart.plot = make(figure, 'div', { class: 'plot', tabindex: 0, role: 'img' });
  chart.plot.setAttribute('aria-label', `${chart.title}, ${chart.unit}`);
  chart.svg = make(chart.plot, 'svg', { 'aria-hidden': 'true' });
  chart.plot.addEventListener('pointermove', (event) => {
    const box = chart.plot.getBoundingClientRect();
    point(chart.ageAt(event.clientX - box.left));
  });
  chart.plot.addEventListener('pointerleave', () => point(null));
  chart.plot.addEventListener('blur', () => point(null));
  chart.plot.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 30, PageDown: -30 }[event.key];
    if (event.key === 'Escape') point(null);
    if (!step) return;
    event.preventDefault();
    point(Math.max(0, (state.cursor === null ? 0 : state.cursor) + step));
  });
}

function nice(max) {
  if (!(max > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 2, 4, 5, 10].find((step) => step * power >= max) * power;
}

// Places of the samples that are shown: index, and age in seconds.
function shown() {
  const elapsed = state.columns.elapsed_s || [];
  const last = elapsed[elapsed.length - 1];
  const all = elapsed.map((at, index) => ({ index, age: last - at }));
  return all.filter((place) => place.age <= state.seconds);
}

function draw(chart, places) {
  const { svg } = chart;
  const width = svg.clientWidth || 300;
  const height = svg.clientHeight || 170;
  const bottom = height - 18;
  const top = 14;
  const x = (age) => width - 1 - (age / state.seconds) * (width - 2);
  chart.ageAt = (left) => Math.max(0, Math.round((1 - left / width) * state.seconds));
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const layers = layersOf(chart, places);
  const max = nice(Math.max(0, ...layers.flatMap((layer) => layer.upper)));
  const y = (value) => bottom - (value / max) * (bottom - top);
  for (const part of [0, 0.5, 1]) {
    const at = Math.round(y(max * part)) + 0.5;
    make(svg, 'line', { class: 'grid', x1: 0, x2: width, y1: at, y2: at });
  }
  layers.forEach((layer) => drawLayer(svg, layer, places, x, y));
  for (const part of [0.5, 1]) {
    const at = { class: 'axis halo', x: 2, y: y(max * part) - 4 };
    make(svg, 'text', at, number(max * part));
  }
  for (const age of TICKS[state.seconds]) {
    const text = age === 0 ? 'now' : age < 60 || state.seconds === 60 ? `−${age} s` : `−${age / 60} min`;
    const anchor = age === state.seconds ? 'start' : age === 0 ? 'end' : 'middle';
    const at = { class: 'axis', x: x(age), y: height - 4, 'text-anchor': anchor };
    make(svg, 'text', at, text);
  }
  if (state.cursor !== null && state.cursor <= state.seconds) {
    const at = x(state.cursor);
    make(svg, 'line', { class: 'cursor', x1: at, x2: at, y1: top, y2: bottom });
  }
}

function layersOf(chart, places) {
  const base = places.map(() => 0);
  return chart.series.map((series) => {
    const values = series.values();
    const lower = base.slice();
    const upper = places.map(({ index }, at) => {
      const value = values[index];
      if (!chart.stacked) return value === undefined ? null : value;
      base[at] += value || 0;
      return base[at];
    });
    return { series, lower, upper };
  });
}

function drawLayer(svg, { series, lower, upper }, places, x, y) {
  if (places.length === 0) return;
  const at = (values) => places.map(({ age }, index) => [x(age), y(values[index] || 0)]);
  const join = (points) => points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join('L');
  const { color, kind } = series;
  if (kind === 'points') {
    // A line with gaps where nothing is known; a value by itself is a dash.
    const isKnown = (index) => upper[index] !== null && upper[index] !== undefined;
    const path = places.map(({ age }, index) => {
      if (!isKnown(index)) return '';
      const at = `${x(age).toFixed(1)} ${y(upper[index]).toFixed(1)}`;
      return isKnown(index - 1) ? `L${at}` : `M${at}h1.5`;
    });
    make(svg, 'path', { class: `line ${color}`, d: path.join('') || 'M0 0' });
    return;
  }
  if (kind === 'area') {
    if (!upper.some((value, index) => value > lower[index])) return;
    const path = `M${join(at(upper))}L${join(at(lower).reverse())}Z`;
    make(svg, 'path', { class: `area ${color}`, d: path });
  }
  if (color.startsWith('c-r')) return;
  if (kind === 'rare' && !upper.some((value) => value > 0)) return;
  make(svg, 'path', { class: `line ${color}`, d: `M${join(at(upper))}` });
}

function drawAll() {
  const places = shown();
  charts.forEach((chart) => draw(chart, places));
  const elapsed = state.columns.elapsed_s || [];
  let index = elapsed.length - 1;
  if (state.cursor !== null && places.length > 0) {
    const nearest = places.reduce((best, place) =>
      Math.abs(place.age - state.cursor) < Math.abs(best.age - state.cursor) ? place : best);
    ({ index } = nearest);
  }
  for (const series of charts.flatMap((chart) => chart.series)) {
    series.value.textContent = number(series.values()[index]);
  }
  const age = elapsed[elapsed.length - 1] - elapsed[index];
  const last = 'Values of the last second. Point at a chart, or focus it and press ← or →, for those '
    + 'of another.';
  const at = () => `Values of ${clock(state.endMs - age * 1000)}, ${duration(age)} before the last.`;
  put('at', state.cursor === null || index < 0 ? last : at());
}

function point(age) {
  if (state.cursor === age) return;
  state.cursor = age;
  drawAll();
}

const rangeButtons = [...document.querySelectorAll('.ranges button')];
function setRange(seconds) {
  state.seconds = seconds;
  for (const button of rangeButtons) {
    button.setAttribute('aria-pressed', String(Number(button.dataset.seconds) === seconds));
  }
}

// Shows all that there is, until somebody chooses.
function fitRange() {
  const elapsed = state.columns.elapsed_s || [];
  const length = elapsed[elapsed.length - 1] - elapsed[0];
  const ranges = rangeButtons.map((button) => Number(button.dataset.seconds));
  const fits = ranges.find((seconds) => length <= seconds);
  if (!state.isChosen && elapsed.length > 0) setRange(fits || ranges[ranges.length - 1]);
}

// ---------------------------------------------------------------- figures, tables

const refusedIn = ({ refused, limited }) =>
  Object.values(refused).reduce((all, value) => all + value, limited);

function showTiles(total) {
  if (!total) return;
  const refused = refusedIn(total);
  put('t-answered', number(total.answered));
  put('t-offered', number(total.offered));
  put('t-refused', number(refused));
  const percent = total.offered > 0 ? (100 * refused) / total.offered : 0;
  put('t-percent', `${percent > 0 && percent < 1 ? '< 1' : percent.toFixed(0)} % of offered`);
  put('t-queue', number(total.queue));
  put('t-backlog', total.backlog > 0 ? `at most ${number(total.backlog)}` : 'bound not known');
  put('t-queued', number(total.queued_ms));
  put('t-open', number(total.open));
  put('t-cpus', total.cpus === null ? 'connections' : `${total.cpus.toFixed(1)} CPUs in use`);
}

function fill(id, rows) {
  const body = element(id);
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach(({ text, warn }, index) => {
      const cell = row.cells[index] || row.insertCell();
      cell.removeAttribute('colspan');
      cell.textContent = text;
      cell.title = index === 0 ? text : '';
      cell.className = warn ? 'warn' : '';
    });
  });
}

function showTables(now) {
  const plain = (text) => ({ text });
  fill('loops', now.loops.map((each) => [
    plain(String(each.loop)), plain(number(each.answered)), plain(number(each.accepted)),
    plain(number(refusedIn(each))), plain(number(each.open)), plain(number(each.queue)),
    plain(each.cpus === null ? '–' : `${(100 * each.cpus).toFixed(0)} %`),
  ]));
  if (now.upstreams.length > 0) element('upstreams-section').hidden = false;
  fill('upstreams', now.upstreams.map((each) => [
    plain(each.name), plain(number(each.in_flight)),
    plain(each.limit === null ? 'none' : number(each.limit)), plain(number(each.waiting)),
    {
      text: `${each.servers - each.servers_down} of ${each.servers}`,
      warn: each.servers_down > 0,
    },
  ]));
}

function showHead(status) {
  put('addresses', status.addresses.join(', '));
  const { program, pid, elapsed_s: elapsed } = status;
  put('about', `${program}, process ${pid}, running for ${duration(elapsed)}`);
  status.reasons.forEach(({ reason, words }, index) => {
    const series = refusals[index];
    if (!series) return;
    series.name.textContent = words;
    series.name.title = words;
    series.values = () => state.refused[reason] || [];
  });
}

function showState(condition, sentence, isGone) {
  element('banner').className = isGone ? 'gone' : condition;
  document.body.classList.toggle('gone-now', isGone);
  put('condition', isGone ? 'no answer' : condition);
  put('sentence', sentence);
  document.title = `${isGone ? 'no answer' : condition} – weir`;
  const now = isGone ? 'gone' : condition;
  if (now !== state.condition) put('spoken', isGone ? 'The server does not answer.' : sentence);
  state.condition = now;
}

function show(status) {
  if (state.started !== status.started_unix_s || status.history.next < state.next) {
    // Another server, or one that was started anew: what came now may lack what it had before.
    const isFirst = state.started === null;
    forget();
    state.started = status.started_unix_s;
    if (!isFirst && status.history.first > 0) return false;
  }
  state.answeredMs = Date.now();
  const { total } = status.now;
  const age = total ? status.elapsed_s - total.elapsed_s : 0;
  state.endMs = state.answeredMs - age * 1000;
  append(state.columns, status.history);
  append(state.refused, status.history.refused);
  state.next = status.history.next;
  const stops = status.state === 'stopping' ? 'The server is stopping. ' : '';
  showHead(status);
  showState(status.condition, stops + status.sentence, false);
  put('gone', `as of ${clock(state.answeredMs)}`);
  showTiles(total);
  showTables(status.now);
  fitRange();
  drawAll();
  return true;
}

function showGone(why) {
  const since = state.answeredMs;
  if (since === null) {
    showState('unknown', 'The server has not answered yet.', true);
    return put('gone', why);
  }
  showState('unknown', `No answer since ${clock(since)}. Below is the last that is known.`, true);
  put('gone', `${why}, for ${duration((Date.now() - since) / 1000)} now`);
}

// ---------------------------------------------------------------- asking

let timer;

async function ask() {
  clearTimeout(timer);
  const asked = ++state.asked;
  const begun = Date.now();
  let wait = INTERVAL_MS;
  try {
    const stop = AbortSignal.timeout(TIMEOUT_MS);
    const reply = await fetch(`status.json?since=${state.next}`, { cache: 'no-store', signal: stop });
    if (!reply.ok) throw new Error(`it answers with status ${reply.status}`);
    const status = await reply.json();
    // A later question has been asked, which is answered with the same samples.
    if (asked !== state.asked) return;
    if (!show(status)) wait = 0;
  } catch (error) {
    if (asked !== state.asked) return;
    const words = { TimeoutError: 'it takes too long', TypeError: 'it is not there' };
    showGone(words[error.name] || error.message);
  }
  timer = setTimeout(ask, Math.max(0, wait - (Date.now() - begun)));
}

charts.forEach(build);
for (const button of rangeButtons) {
  button.addEventListener('click', () => {
    state.isChosen = true;
    setRange(Number(button.dataset.seconds));
    drawAll();
  });
}
new ResizeObserver(drawAll).observe(element('charts'));
document.addEventListener('visibilitychange', () => {
  // A hidden page is called less often; it catches up at once.
  if (!document.hidden) ask();
});
ask();
