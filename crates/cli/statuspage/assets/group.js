// The page of a group. Texts from the servers go into the page as text only (textContent), never as markup.
// History comes once, then one moment per second; a moment is {at_unix_ms, group, error}.
'use strict';

const HISTORY = 600;
const PERIOD_MS = 1000;
const STALE_MS = 5000;

let moments = null;
let charts = [];
let drawnFor = '';
let lastAnswerMs = Date.now();

function ago(ms) {
  if (ms === null || ms === undefined) return '–';
  return ms < 1000 ? ms + ' ms ago' : Math.floor(ms / 1000) + ' s ago';
}

const newestGroup = () => {
  for (let at = moments.length - 1; at >= 0; at -= 1) if (moments[at].group) return moments[at].group;
  return null;
};
const names = () => newestGroup().members.map(member => member.name);
const memberAt = (moment, name) => moment.group ? moment.group.members.find(member => member.name === name) : undefined;
const over = (name, field) => moments.map(moment => {
  const member = memberAt(moment, name);
  return member ? member[field] : null;
});
const count = holds => moments.map(moment => moment.group ? moment.group.members.filter(holds).length : null);

function rate() {
  return moments.map((moment, at) => {
    const before = moments[at - 1];
    if (!before || !moment.group || !before.group) return null;
    const seconds = (moment.at_unix_ms - before.at_unix_ms) / 1000;
    const more = moment.group.last_ordered - before.group.last_ordered;
    return seconds > 0 && more >= 0 ? more / seconds : null;
  });
}

// ---- Charts

const TIMELINES = [
  ['chart-ordered', () => [['write sets', rate]]],
  ['chart-lag', () => names().map(name => [name, () => over(name, 'lag')])],
  ['chart-heard', () => names().map(name => [name, () => over(name, 'heard_ms')])],
  ['chart-owners', () => [
    ['there', () => count(member => member.is_there)], ['own slots', () => count(member => member.owns_slots)],
  ]],
];

function timeline([id, lines]) {
  const figure = byId(id);
  const parts = lines();
  const palette = colours();
  const series = [{label: 'Time', value: (_, at) => at === null ? '–' : clock(at)}].concat(parts.map(([name], at) => ({
    label: name, stroke: palette[at % palette.length], width: 1.5, points: {show: false}, spanGaps: false,
    value: (_, value) => plain(value),
  })));
  const data = () => [moments.map(moment => moment.at_unix_ms / 1000), ...parts.map(([, of]) => of())];
  const line = {stroke: style('--line'), width: 1};
  const shared = {stroke: style('--soft'), grid: line, ticks: line};
  const axes = [
    {...shared, values: (_, splits) => splits.map(clock), space: 70},
    {...shared, size: 60, values: (_, splits) => splits.map(value => value === null ? '' : plain(value))},
  ];
  const scales = {y: {range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1]}};
  const inner = getComputedStyle(figure);
  const padding = parseFloat(inner.paddingLeft) + parseFloat(inner.paddingRight);
  const width = Math.max(200, Math.floor(figure.clientWidth - padding));
  const chart = new uPlot({width, height: 170, series, axes, scales, hooks: {ready: [newest]}}, data(), figure);
  charts.push({chart, data});
}

function redraw() {
  for (const {chart} of charts) chart.destroy();
  charts = [];
  TIMELINES.forEach(timeline);
}

// ---- The rest of the page

function row(member) {
  const made = element('tr');
  const look = member.is_there ? (['Synced', 'there'].includes(member.state) ? 'good' : 'warn') : 'bad';
  const yes = value => value ? 'yes' : 'no';
  made.append(element('td', member.name), element('td', member.state, look), element('td', yes(member.votes)),
    element('td', yes(member.owns_slots)),
    element('td', member.applied === null ? '–' : String(member.applied), 'number'),
    element('td', plain(member.lag), 'number'), element('td', ago(member.heard_ms), 'number'),
    element('td', member.address),
    element('td', member.client_address));
  return made;
}

function show(group) {
  byId('name').textContent = 'Group ' + group.group;
  document.title = 'Redoubt group ' + group.group;
  byId('node').textContent = group.group_id + ', asked: ' + group.servers.map(server => server.server).join(', ');
  const voters = group.members.filter(member => member.votes).length;
  const rates = rate().filter(value => value !== null).slice(-5);
  const mean = rates.length ? rates.reduce((sum, value) => sum + value, 0) / rates.length : null;
  const tiles = [
    [group.present + ' of ' + voters, 'members are there; ' + group.needed + ' are needed'],
    [plain(mean === null ? null : Math.round(mean)), 'write sets per second'],
    [plain(Math.max(0, ...group.members.map(member => member.lag || 0))), 'largest lag, write sets'],
    [String(group.epoch), 'epoch'],
  ];
  byId('tiles').replaceChildren(...tiles.map(([value, label]) => {
    const tile = element('div', undefined, 'tile');
    tile.append(element('b', value), element('span', label));
    return tile;
  }));
  byId('problems').replaceChildren(...group.problems.map(problem => element('li', problem)));
  document.querySelector('#members tbody').replaceChildren(...group.members.map(row));
  byId('group').hidden = false;
  const key = JSON.stringify([names(), colours()]);
  if (key !== drawnFor) {
    drawnFor = key;
    redraw();
  } else {
    for (const {chart, data} of charts) { chart.setData(data()); newest(chart); }
  }
}

function trouble(text) {
  byId('trouble').hidden = !text;
  byId('trouble').textContent = text || '';
}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(path + ': ' + answer.status);
  return answer.json();
}

async function look() {
  try {
    if (moments === null) {
      moments = await get('/history.json');
    } else {
      const moment = await get('/live.json');
      if (moments.length === 0 || moment.at_unix_ms > moments[moments.length - 1].at_unix_ms) moments.push(moment);
      moments.splice(0, moments.length - HISTORY);
    }
    lastAnswerMs = Date.now();
    const group = newestGroup();
    if (group) show(group);
    trouble(moments.length ? moments[moments.length - 1].error : null);
  } catch (error) {
    const silentMs = Date.now() - lastAnswerMs;
    if (silentMs > STALE_MS) trouble('No answer from the page’s server for ' + Math.round(silentMs / 1000) + ' s.');
  }
  setTimeout(look, PERIOD_MS);
}

addEventListener('resize', () => { if (charts.length) redraw(); });
look();
