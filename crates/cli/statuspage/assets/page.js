// The status page. Texts from the node go into the page as text only (textContent), never as markup.
// Charts are drawn by uPlot. History comes once, then one moment per second; a moment of a volume is
// [values in the order of the columns, runs applied by each worker].
'use strict';

const HISTORY = 600;
const PERIOD_MS = 1000;
const STALE_MS = 5000;

let columns = new Map();
let moments = [];
let node = null;
let chosen = null;
let charts = [];
let drawnFor = '';

// ---- Numbers for people

function bytes(count) {
  if (count === null || count === undefined || !isFinite(count)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit + 1 < units.length) { count /= 1024; unit += 1; }
  return (unit === 0 || Math.abs(count) >= 100 ? Math.round(count) : count.toFixed(1)) + ' ' + units[unit];
}

function micros(count) {
  if (count === null || count === undefined || !isFinite(count)) return '–';
  if (count < 1000) return Math.round(count) + ' µs';
  if (count < 1e6) return (count / 1000).toFixed(count < 1e4 ? 1 : 0) + ' ms';
  return (count / 1e6).toFixed(1) + ' s';
}

const percent = share => share === null || share === undefined ? '–' : share.toFixed(share < 10 ? 1 : 0) + ' %';

// ---- Values over time

const value = (moment, column) => {
  const point = moment.volumes[chosen];
  return point ? point[0][columns.get(column)] : null;
};

const over = column => moments.map(moment => value(moment, column));

// Per second. A counter that went back belongs to a restarted node.
function rate(of) {
  return moments.map((moment, at) => {
    if (at === 0) return null;
    const [now, before] = [of(moment), of(moments[at - 1])];
    const seconds = (moment.at_unix_ms - moments[at - 1].at_unix_ms) / 1000;
    return now === null || before === null || now === undefined || before === undefined || now < before || seconds <= 0
      ? null : (now - before) / seconds;
  });
}

const rateOf = column => rate(moment => value(moment, column));
const behind = column => moments.map(moment => {
  const received = value(moment, 'w_lsn');
  // W is read before the others.
  return received === null ? null : Math.max(0, received - value(moment, column));
});
const held = stage => rateOf('ring_wait_' + stage + '_micros').map(rate => rate === null ? null : Math.min(100, rate / 1e4));
const commitMean = () => {
  const [waits, times] = [rateOf('commits'), rateOf('commit_wait_micros')];
  return waits.map((count, at) => count && times[at] !== null ? times[at] / count : null);
};
const workers = () => Math.max(0, ...moments.slice(-1).map(moment => moment.volumes[chosen] ? moment.volumes[chosen][1].length : 0));

// ---- Charts

const TIMELINES = [
  ['chart-lag', bytes, () => [['D', () => behind('d_lsn')], ['P', () => behind('p_lsn')], ['A', () => behind('a_lsn')]]],
  ['chart-buffer', bytes, () => [['in use', () => over('ring_used_bytes')]]],
  ['chart-pressure', percent, () => ['device', 'parser', 'apply'].map(stage => [stage, () => held(stage)])],
  ['chart-commits', plain, () => [['commits', () => rateOf('commits')]]],
  ['chart-commit-time', micros, () => [['log p50', () => over('log_write_p50_micros')], ['log p99', () => over('log_write_p99_micros')],
    ['commit', commitMean]]],
  ['chart-bytes', bytes, () => [['in', () => rateOf('received_bytes')], ['avoided', () => rateOf('avoided_bytes')]]],
  ['chart-written', bytes, () => [['written', () => rateOf('pages_written_bytes')]]],
  ['chart-reads', plain, () => [['reads', () => rateOf('page_reads')]]],
  ['chart-read-time', micros, () => [['p50', () => over('read_p50_micros')], ['p99', () => over('read_p99_micros')]]],
  ['chart-workers', plain, () => Array.from({length: workers()}, (_, at) => ['worker ' + at, () => rate(moment =>
    moment.volumes[chosen] ? moment.volumes[chosen][1][at] : null)])],
  ['chart-index', plain, () => [['runs', () => over('index_runs')]]],
];

function axes(show, label) {
  const shared = {stroke: style('--soft'), grid: {stroke: style('--line'), width: 1}, ticks: {stroke: style('--line'), width: 1}};
  const below = {...shared, values: (_, splits) => splits.map(label || clock), space: label ? 48 : 70};
  const beside = {...shared, size: 72, values: (_, splits) => splits.map(value => value === null ? '' : show(value))};
  // Round numbers of bytes are powers of two.
  if (show === bytes) beside.incrs = Array.from({length: 44}, (_, power) => 2 ** power);
  return [below, beside];
}

function widthOf(figure) {
  const inner = getComputedStyle(figure);
  return Math.max(200, Math.floor(figure.clientWidth - parseFloat(inner.paddingLeft) - parseFloat(inner.paddingRight)));
}

function add(figure, options, data, refresh) {
  const chart = new uPlot({width: widthOf(figure), height: 170, ...options}, data, figure);
  charts.push({chart, figure, refresh});
  if (options.newest) newest(chart);
}

function timeline([id, show, lines]) {
  const figure = byId(id);
  const parts = lines();
  const palette = colours();
  const series = [{label: 'Time', value: (_, at) => at === null ? '–' : clock(at)}].concat(parts.map(([name], at) => ({
    label: name, stroke: palette[at % palette.length], width: 1.5, points: {show: false}, spanGaps: false,
    value: (_, value) => show(value),
  })));
  const data = () => [moments.map(moment => moment.at_unix_ms / 1000), ...parts.map(([, of]) => of())];
  const top = (_, low, high) => [0, high > 0 ? high * 1.05 : 1];
  // Times differ by powers of ten; on a linear scale one slow second would hide all others.
  const decades = (_, low, high) => low > 0
    ? [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 1e-9)] : [1, 1000];
  const scale = show === micros ? {distr: 3, range: decades} : {range: top};
  add(figure, {series, axes: axes(show), scales: {y: scale}, newest: true}, data(), data);
}

// Bars over classes; `classes` gives [label, count] pairs.
function bars(id, name, classes) {
  const figure = byId(id);
  let labels = [];
  const data = () => {
    const pairs = classes();
    labels = pairs.map(([label]) => label);
    return [pairs.map((_, at) => at), pairs.map(([, count]) => count)];
  };
  const first = data();
  const whole = splits => splits.filter(Number.isInteger);
  const label = at => labels[at] === undefined || !Number.isInteger(at) ? '' : labels[at];
  const sides = axes(plain, label);
  sides[0].splits = (chart, _, low, high, step) => {
    const every = Math.max(1, Math.round(step));
    return whole(Array.from({length: labels.length}, (_, at) => at * every).filter(at => at < labels.length));
  };
  const series = [{label: 'up to', value: (_, at) => label(at)}, {
    label: name, stroke: colours()[0], fill: colours()[0] + '66', paths: uPlot.paths.bars({size: [0.85, 60]}), points: {show: false},
    value: (_, count) => count === null ? '–' : plain(count),
  }];
  const scales = {x: {time: false, range: () => [-0.6, Math.max(1, labels.length) - 0.4]}, y: {range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1]}};
  add(figure, {series, axes: sides, scales}, first, data);
}

// End of a bucket of times in microseconds: a power of two is cut into four.
function bucketEnd(bucket) {
  return bucket < 4 ? bucket + 1 : (4 + bucket % 4 + 1) * 2 ** (Math.floor(bucket / 4) - 1);
}

function readClasses() {
  const times = volume() ? volume().page_read_times.buckets : [];
  if (times.length === 0) return [];
  const powers = new Map();
  for (const [bucket, count] of times) {
    const power = Math.ceil(Math.log2(bucketEnd(bucket)));
    powers.set(power, (powers.get(power) || 0) + count);
  }
  const known = [...powers.keys()];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return Array.from({length: high - low + 1}, (_, at) => [micros(2 ** (low + at)), powers.get(low + at) || 0]);
}

const chainClasses = () => (volume() ? volume().chain_lengths : [])
  .map(one => [one.longest === null ? 'more' : String(one.longest), one.pages]);

function redraw() {
  for (const {chart} of charts) chart.destroy();
  charts = [];
  TIMELINES.forEach(timeline);
  bars('chart-read-histogram', 'reads', readClasses);
  bars('chart-chains', 'pages', chainClasses);
}

// ---- The rest of the page

const volume = () => node && node.volumes.find(volume => volume.name === chosen);

function list(id, pairs) {
  byId(id).replaceChildren(...pairs.flatMap(([name, text, className]) => [element('dt', name), element('dd', text, className)]));
}

function tiles(of) {
  const last = series => { const known = series.slice(-10).filter(value => value !== null); return known.length
    ? known.reduce((sum, value) => sum + value, 0) / known.length : null; };
  const server = name => of.server_counters[name] || 0;
  const avoided = server('page_bytes_dropped') + server('doublewrite_bytes_dropped');
  const sent = server('sent_bytes');
  const recent = last(over('read_p99_micros'));
  const all = [
    [plain(last(rateOf('commits'))), 'commits per second'],
    [micros(last(commitMean())), 'mean commit wait'],
    [bytes(last(rateOf('received_bytes'))) + '/s', 'received'],
    [bytes(last(rateOf('avoided_bytes'))) + '/s', 'page bytes avoided'],
    [sent ? (avoided / sent).toFixed(1) + ' ×' : '–', 'avoided per byte sent'],
    [plain(last(rateOf('page_reads'))), 'page reads per second'],
    [micros(recent), 'p99 of page reads'],
    [percent(of.ring_len_bytes ? 100 * of.ring_used_bytes / of.ring_len_bytes : null), 'of the log buffer in use'],
    [of.ring_waits_for || 'nobody', 'holds the server back'],
  ];
  const looked = server('page_cache_hits') + server('page_cache_misses');
  if (looked) all.push([percent(100 * server('page_cache_hits') / looked), 'hits of the page cache']);
  const ahead = server('read_ahead_pages');
  if (ahead) all.push([percent(100 * server('read_ahead_used') / ahead), 'of pages read ahead were used']);
  byId('tiles').replaceChildren(...all.map(([value, text]) => {
    const tile = element('div', undefined, 'tile');
    tile.append(element('b', value), element('span', text));
    return tile;
  }));
}

function details(of) {
  byId('name').textContent = 'Volume ' + of.name;
  const state = byId('state');
  const look = {attached: 'good', ready: 'good', stopped: 'bad', frozen: 'bad', unusable: 'bad'}[of.state] || 'warn';
  const by = of.attached_by ? ', generation ' + of.generation + ' (' + of.attached_by + ')' : '';
  state.replaceChildren(element('b', of.state, look), document.createTextNode((of.reason ? ': ' + of.reason : '') + by));
  const marks = [['W', of.w_lsn], ['D', of.d_lsn], ['P', of.p_lsn], ['A', of.a_lsn], ['server’s checkpoint', of.server_checkpoint_lsn]];
  byId('marks').replaceChildren(...marks.map(([name, lsn]) =>
    element('div', name + ' ' + lsn + (name === 'W' ? '' : ' (−' + bytes(Math.max(0, of.w_lsn - lsn)) + ')'))));
  const [log, pages] = [of.log_device, of.page_store];
  list('devices', [
    ['log device', log.kind + ' in ' + log.directory + ' (' + log.detail + '; units of ' + log.write_unit_bytes + ' B, up to ' +
      log.max_in_flight + ' writes in flight)'],
    ['page store', pages.protection + ' in ' + pages.pages + ' (' + pages.reason + ')'],
    ['page journal', bytes(pages.journal_live_bytes) + ' of ' + bytes(pages.journal_len_bytes) + ' in use, ' + pages.pending_pages +
      ' pages wait in it'],
    ...[...log.warnings, ...pages.warnings].map(warning => ['warning', warning, 'warn']),
  ]);
  const counter = name => of.counters[name] || 0;
  list('verification', [
    ['pages verified', plain(counter('pages_verified'))],
    ['pages that differed', plain(counter('page_mismatches')), counter('page_mismatches') ? 'bad' : ''],
    ['of these healed', plain(counter('pages_healed'))],
    ['not comparable', plain(counter('pages_not_comparable'))],
    ['pages rebuilt', plain(counter('pages_rebuilt')), counter('pages_rebuilt') ? 'warn' : ''],
  ]);
  const shown = ([name, count]) => [name, name.includes('bytes') ? count + ' (' + bytes(count) + ')' : String(count)];
  list('counters', Object.entries(of.counters).map(shown));
  list('server-counters', Object.entries(of.server_counters).map(shown));
}

function choices() {
  byId('volumes').replaceChildren(...(node.volumes.length < 2 ? [] : node.volumes.map(({name}) => {
    const button = element('button', name);
    button.type = 'button';
    button.setAttribute('aria-pressed', String(name === chosen));
    button.addEventListener('click', () => { chosen = name; location.hash = encodeURIComponent(name); show(); });
    return button;
  })));
}

function show() {
  document.title = 'Redoubt ' + node.listen;
  byId('node').textContent = node.listen + ', version ' + node.version + ', up ' + node.uptime_seconds + ' s, ' + node.data_directory;
  if (!volume()) chosen = node.volumes.length ? node.volumes[0].name : null;
  choices();
  const of = volume();
  byId('volume').hidden = !of;
  if (!of) {
    drawnFor = '';
    byId('node').textContent += '. No volume yet: see `redoubt volume create`.';
    return;
  }
  tiles(of);
  details(of);
  const key = JSON.stringify([chosen, workers(), colours()]);
  if (key !== drawnFor) {
    drawnFor = key;
    redraw();
  } else {
    for (const {chart, refresh} of charts) {
      chart.setData(refresh());
      if (chart.series[0].label === 'Time') newest(chart);
    }
  }
}

function trouble(text) {
  byId('trouble').hidden = !text;
  byId('trouble').textContent = text;
}

async function get(path) {
  const response = await fetch(path, {cache: 'no-store'});
  if (!response.ok) throw new Error(path + ': ' + response.status);
  return response.json();
}

let behindClock = null;
let since = 0;

async function tick() {
  try {
    if (columns.size === 0) {
      const history = await get('/history.json');
      columns = new Map(history.columns.map((name, at) => [name, at]));
      moments = history.moments;
    }
    const live = await get('/live.json');
    node = live.node;
    if (behindClock !== live.moment.at_unix_ms) {
      [behindClock, since] = [live.moment.at_unix_ms, Date.now()];
      const last = moments[moments.length - 1];
      if (!last || last.at_unix_ms < live.moment.at_unix_ms) moments.push(live.moment);
      moments = moments.slice(-HISTORY);
    }
    show();
    // The node answers from its last sample; it is a bad sign when that stays the same.
    trouble(Date.now() - since > STALE_MS ? 'The node has given no new figures for ' + Math.round((Date.now() - since) / 1000) + ' s.' : '');
  } catch (error) {
    trouble('The node does not answer (' + error.message + '). Trying again.');
    // It may have been started again, perhaps another version.
    columns = new Map();
  }
  setTimeout(tick, PERIOD_MS);
}

new ResizeObserver(() => {
  for (const {chart, figure} of charts) {
    const width = widthOf(figure);
    if (width !== chart.width) chart.setSize({width, height: chart.height});
  }
}).observe(byId('volume'));

try { chosen = decodeURIComponent(location.hash.slice(1)) || null; } catch { chosen = null; }
tick();
