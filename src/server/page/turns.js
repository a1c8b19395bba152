// The turns of a chat on the page, drawn from its messages.
const ms = t => t < 995 ? Math.round(t) + ' ms' : (t / 1000).toFixed(t < 9950 ? 2 : 1) + ' s';
const rate = x => x.toFixed(x < 100 ? 1 : 0);
const near_end = () => { const s = $('scroll'); return s.scrollHeight - s.scrollTop - s.clientHeight < 90; };
const to_end = () => { const s = $('scroll'); s.scrollTop = s.scrollHeight; };
const action = (text, run) => { const b = el('button', '', text); b.type = 'button'; b.onclick = run; return b; };

function add_user(message, at) {
  const turn = el('div', 'turn user');
  const body = el('div', 'body', message.content);
  const foot = el('div', 'foot');
  const edit = () => {
    if (running) return;
    const form = el('form', 'edit');
    const box = el('textarea');
    box.value = message.content;
    box.setAttribute('aria-label', 'Edit your message');
    box.rows = Math.min(12, message.content.split('\n').length + 1);
    const go = el('button', 'plain', 'Send again');
    const cancel = action('Cancel', () => { form.replaceWith(body); foot.hidden = false; $('input').focus(); });
    cancel.className = 'plain';
    form.onsubmit = e => {
      e.preventDefault();
      if (box.value.trim() && !running) { cut(at); send(box.value.trim()); $('input').focus(); }
    };
    box.onkeydown = e => {
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); form.requestSubmit(); }
      if (e.key === 'Escape') { e.stopPropagation(); cancel.click(); }
    };
    const row = el('div', 'row');
    row.append(go, cancel);
    form.append(box, row);
    body.replaceWith(form);
    foot.hidden = true;
    box.focus();
  };
  const button = action('Edit', edit);
  foot.append(button);
  turn.append(el('span', 'sr', 'You:'), body, foot);
  $('log').append(turn);
}

function add_answer() {
  const turn = el('div', 'turn assistant');
  const think = el('details', 'think');
  const summary = el('summary', '', 'Thinking…');
  const thoughts = el('div', 'body plain-text');
  think.append(summary, thoughts);
  think.hidden = true;
  think.open = true;
  let touched = false;
  summary.addEventListener('click', () => { touched = true; });
  const body = el('div', 'body');
  const wait = el('span', 'wait');
  wait.append(el('span', 'sr', 'Waiting for the answer'));
  const foot = el('div', 'foot');
  turn.append(el('span', 'sr', 'Answer:'), think, body, wait, foot);
  $('log').append(turn);
  return { turn, think, summary, thoughts, body, wait, foot, touched: () => touched };
}

function show_error(turn, text) {
  const box = el('div', 'error', text);
  box.setAttribute('role', 'alert');
  turn.insertBefore(box, turn.querySelector('.foot'));
}

// ---- logprobs: pieces are [text, logprob, [[text, logprob], ...]]; a character that spans tokens is one piece
function piece_maker() {
  const decoder = new TextDecoder();
  let worst = 0, held = false;
  return entry => {
    const text = entry.bytes ? decoder.decode(new Uint8Array(entry.bytes), { stream: true }) : '';
    worst = held ? Math.min(worst, entry.logprob) : entry.logprob;
    held = !text && entry.bytes?.length > 0;
    return text ? [text, worst, (entry.top_logprobs ?? []).map(top => [top.token, top.logprob])] : null;
  };
}
const percent = logprob => { const p = 100 * Math.exp(logprob); return (p >= 99.95 ? '100' : p < 0.1 ? '< 0.1' : p.toFixed(p < 10 ? 1 : 0)) + ' %'; };
const shown = text => '“' + text.replace(/\n/g, '⏎').replace(/ /g, '␣') + '”';
function draw_pieces(target, pieces) {
  const text = el('div', 'pieces');
  const about = el('div', 'about');
  about.setAttribute('aria-live', 'polite');
  about.textContent = 'Choose a piece to see how sure the model was; left and right move.';
  pieces.forEach(([piece, logprob, top], i) => {
    const p = Math.exp(logprob);
    const span = el('span', 'p' + (p > 0.9 ? 5 : p > 0.6 ? 4 : p > 0.3 ? 3 : p > 0.1 ? 2 : 1), piece);
    span.tabIndex = i ? -1 : 0;
    span.title = percent(logprob);
    const tell = () => {
      about.textContent = `${shown(piece)} ${percent(logprob)}` + (top.length ? '; weighed: ' + top.map(([t, l]) => `${shown(t)} ${percent(l)}`).join(', ') : '');
    };
    span.onclick = () => { span.focus(); tell(); };
    span.onfocus = tell;
    span.onkeydown = e => {
      const other = e.key === 'ArrowRight' ? span.nextSibling : e.key === 'ArrowLeft' ? span.previousSibling : null;
      if (!other) return;
      e.preventDefault();
      span.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
    };
    text.append(span);
  });
  target.replaceChildren(text, about);
}

function draw_body(body, message) {
  if (message.pieces?.length && $('colour').checked) draw_pieces(body, message.pieces);
  else render(body, message.content);
}

function finish_answer(answer, message, at) {
  answer.wait.remove();
  if (message.thoughts) {
    answer.think.hidden = false;
    answer.thoughts.textContent = message.thoughts.trim();
    answer.summary.textContent = message.thought_for ? 'Thought for ' + message.thought_for : 'Thoughts';
    if (!answer.touched() && message.content) answer.think.open = false;
  }
  draw_body(answer.body, message);
  const copy = action('Copy', () => copy_text(copy, message.content));
  const again = action('Try again', () => {
    if (running) return;
    cut(at);
    ask();
  });
  answer.foot.replaceChildren(...(message.notes ?? []).map(text => el('span', '', text)), copy, again);
}

async function copy_text(button, text) {
  const before = button.textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = 'Copied'; } catch { button.textContent = 'Not allowed'; }
  say(button.textContent);
  setTimeout(() => { button.textContent = before; }, 1500);
}
$('log').addEventListener('click', e => {
  const button = e.target.closest('button[data-copy]');
  if (button) copy_text(button, button.dataset.copy);
});

function draw_all() {
  for (const turn of document.querySelectorAll('.turn')) turn.remove();
  const { messages } = chats.current;
  $('welcome').hidden = messages.length > 0;
  messages.forEach((message, i) => {
    if (message.role === 'user') return add_user(message, i);
    const answer = add_answer();
    finish_answer(answer, message, i);
    if (message.thoughts) answer.think.open = false;
  });
  to_end();
}

// The chat ends before message `at` from now on, in memory and on the page.
function cut(at) {
  chats.current.messages.length = at;
  for (const turn of [...document.querySelectorAll('.turn')].slice(at)) turn.remove();
}
