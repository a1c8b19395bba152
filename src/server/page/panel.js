// The live panel: the server's own numbers, asked for once a second while the panel is open.
const SHOWN = [
  ['Tokens written', 'tokens/s', 'rate', 'vllm:generation_tokens_total'],
  ['Prompt tokens read', 'tokens/s', 'rate', 'vllm:prompt_tokens_total'],
  ['Rows of the last step', '', 'rows'],
  ['Requests running', '', 'number', 'vllm:num_requests_running'],
  ['Requests waiting', '', 'number', 'vllm:num_requests_waiting'],
  ['State slots in use', '', 'share', 'tandem:state_slots_used', 'tandem:state_slots'],
  ['KV pages in use', '', 'share', 'tandem:kv_pages_used', 'tandem:kv_pages'],
  ['Steps', 'a second', 'rate', 'tandem:steps_total'],
];
const panel = { timer: 0, before: null, history: new Map() };

function parse_metrics(text) {
  const found = {};
  for (const line of text.split('\n')) {
    const match = /^([a-z_:]+)(?:\{[^}]*\})? ([-+.\deE]+|NaN)$/.exec(line);
    if (match) found[match[1]] = (found[match[1]] ?? 0) + Number(match[2]);
  }
  return found;
}
function gauge(name) {
  const box = el('div', 'gauge');
  const value = el('dd');
  const number = el('span', 'number', '–');
  value.append(number, el('span', 'unit'));
  box.append(el('dt', '', name), value);
  return box;
}
function curve(values) {  // the last minute as a line; the number beside it says the same to those who cannot see it
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg'), line = document.createElementNS(ns, 'polyline');
  const top = Math.max(1, ...values);
  svg.setAttribute('viewBox', '0 0 120 28');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  line.setAttribute('points', values.map((v, i) => `${((i + 60 - values.length) * 2).toFixed(1)},${(26 - 24 * v / top).toFixed(1)}`).join(' '));
  svg.append(line);
  return svg;
}
async function measure() {
  let now;
  try {
    const response = await fetch('metrics');
    if (!response.ok) throw new Error();
    now = { at: performance.now(), values: parse_metrics(await response.text()) };
  } catch {
    $('live-problem').textContent = 'The server cannot be reached.';
    $('live-problem').hidden = false;
    return;
  }
  $('live-problem').hidden = true;
  const seconds = panel.before ? (now.at - panel.before.at) / 1000 : 0;
  SHOWN.forEach(([name, unit, kind, key, whole], i) => {
    const box = $('gauges').children[i];
    const value = now.values[key] ?? 0;
    let text = String(value), more = null;
    if (kind === 'rate') {
      const per_second = seconds ? Math.max(0, value - (panel.before.values[key] ?? value)) / seconds : 0;
      const history = panel.history.get(key) ?? [];
      history.push(per_second);
      panel.history.set(key, history.slice(-60));
      text = per_second.toFixed(per_second < 10 ? 1 : 0);
      more = curve(panel.history.get(key));
    } else if (kind === 'share') {
      const of = now.values[whole] ?? 0;
      text = `${value} of ${of}`;
      more = el('meter');
      more.max = of || 1;
      more.value = value;
      more.setAttribute('aria-label', name);
    } else if (kind === 'rows') {
      const rows = now.values['tandem:last_step_rows'] ?? 0, decode = now.values['tandem:last_step_decode_rows'] ?? 0;
      text = String(rows);
      const tokens = now.values['tandem:last_step_tokens'] ?? 0;
      unit = `${decode} writing, ${rows - decode} reading; ${tokens} token${tokens === 1 ? '' : 's'}`;
    }
    box.querySelector('.number').textContent = text;
    box.querySelector('.unit').textContent = unit;
    if (more) { box.querySelector('svg, meter')?.remove(); box.append(more); }
  });
  panel.before = now;
}
function set_live(open) {
  $('live').hidden = !open;
  $('live-toggle').setAttribute('aria-expanded', String(open));
  clearInterval(panel.timer);
  panel.before = null;
  if (!open) return;
  if (!$('gauges').children.length) $('gauges').append(...SHOWN.map(([name]) => gauge(name)));
  measure();
  panel.timer = setInterval(() => { if (!document.hidden) measure(); }, 1000);
}
$('live-toggle').onclick = () => set_live($('live').hidden);
$('live-close').onclick = () => { set_live(false); $('live-toggle').focus(); };
