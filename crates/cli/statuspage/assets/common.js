// Shared by the pages. Texts from elsewhere go into a page as text only (textContent), never as markup.
'use strict';

const byId = id => document.getElementById(id);
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function plain(count) {
  if (count === null || count === undefined || !isFinite(count)) return '–';
  if (Math.abs(count) >= 1e6) return (count / 1e6).toFixed(1) + ' M';
  if (Math.abs(count) >= 1e4) return (count / 1e3).toFixed(1) + ' k';
  return Number.isInteger(count) ? String(count) : count.toFixed(1);
}

const colours = () => matchMedia('(prefers-color-scheme: dark)').matches
  ? ['#82aaff', '#f78c6c', '#c3e88d', '#c792ea', '#ffcb6b', '#89ddff', '#ff5370', '#b0bec5']
  : ['#2459c4', '#c2410c', '#2e7d32', '#7b1fa2', '#9a6700', '#00788a', '#b3261e', '#546e7a'];

const clock = at => new Date(at * 1000).toLocaleTimeString([], {hour12: false});

// Without a pointer over it, a chart's legend says the newest values.
function newest(chart) {
  if (chart.cursor.left === undefined || chart.cursor.left < 0) chart.setLegend({idx: chart.data[0].length - 1});
}
