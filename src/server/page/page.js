// Asking the server, and what buttons and keys do.
const ideas = ['What does the word lantern mean?', 'What is 17 + 25?', 'What is the opposite of happy?'];
let running = null;      // AbortController of the answer under way
let model = '';

async function look() {
  const dot = $('dot');
  try {
    if (!model) {
      model = (await (await fetch('v1/models')).json()).data[0].id;
      $('name').textContent = model;
      $('name').title = model;
    }
    const health = await fetch('health');
    dot.className = health.ok ? 'ok' : 'bad';
    dot.setAttribute('aria-label', health.ok ? 'server ready' : 'server not ready');
  } catch {
    dot.className = 'bad';
    dot.setAttribute('aria-label', 'server not reachable');
    if (!model) $('name').textContent = 'not reachable';
  }
}

function request_body() {
  const messages = chats.current.messages.map(({ role, content }) => ({ role, content }));
  const body = { model, stream: true, stream_options: { include_usage: true },
                 messages: $('system').value.trim() ? [{ role: 'system', content: $('system').value }, ...messages] : messages,
                 chat_template_kwargs: { enable_thinking: $('thinking').checked } };
  if ($('colour').checked) Object.assign(body, { logprobs: true, top_logprobs: 4 });
  for (const n of numbers) if ($(n).value !== '' && Number.isFinite(Number($(n).value))) body[n] = Number($(n).value);
  return JSON.stringify(body);
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const found = rest.split('\n\n');
    rest = found.pop();
    for (const event of found) if (event.startsWith('data: ')) yield event.slice(6);
  }
}

async function ask() {
  const chat = chats.current;  // stays this answer's own when another chat is opened
  const at = chat.messages.length;
  const answer = add_answer();
  const mine = new AbortController();
  to_end();
  running = mine;
  buttons();
  const message = { role: 'assistant', content: '', thoughts: '', pieces: [] };
  const to_piece = piece_maker();
  let finish = '', usage = null, count = 0, planned = false, costs = 0;
  const begun = performance.now();
  let first = 0, last = 0, content_at = 0;
  const notes = () => {
    const parts = [];
    if (first) parts.push('first token ' + ms(first - begun));
    const tokens = usage ? usage.completion_tokens : count;
    const seconds = (last - first) / 1000;
    if (tokens > 4 && seconds > 0) parts.push(rate((tokens - 1) / seconds) + ' tokens/s');
    if (usage) parts.push(usage.completion_tokens + ' tokens, prompt ' + usage.prompt_tokens);
    if (finish === 'length') parts.push('cut by the limit');
    if (finish === 'stopped') parts.push('stopped');
    return parts;
  };
  const draw = () => {
    planned = false;
    if (running !== mine || chats.current !== chat) return;
    const begin = performance.now(), follow = near_end();
    if (message.thoughts) {
      answer.think.hidden = false;
      answer.thoughts.textContent = message.thoughts.trim();
    }
    draw_body(answer.body, message);
    answer.foot.replaceChildren(...notes().map(text => el('span', '', text)));
    if (follow) to_end();
    costs = performance.now() - begin;
  };
  // A long answer is drawn less often, so that drawing never takes more than a fifth of the time.
  const soon = () => { if (!planned) { planned = true; setTimeout(() => requestAnimationFrame(draw), 4 * costs); } };
  const thought_done = () => { message.thought_for = ms((content_at || last || performance.now()) - (first || begun)); };
  try {
    const response = await fetch('v1/chat/completions', { method: 'POST', signal: mine.signal,
      headers: { 'Content-Type': 'application/json' }, body: request_body() });
    if (!response.ok) {
      const problem = await response.json().catch(() => null);
      throw new Error(problem?.error?.message || 'The server answered ' + response.status + '.');
    }
    for await (const data of events(response)) {
      if (data === '[DONE]') break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      const { delta } = choice;
      if (delta.reasoning_content || delta.content) {
        last = performance.now();
        first ||= last;
        ++count;
      }
      if (delta.reasoning_content) message.thoughts += delta.reasoning_content;
      if (delta.content) {
        if (!message.content) delta.content = delta.content.replace(/^\s+/, '');
        message.content += delta.content;
        if (message.content && !content_at) {
          content_at = last;
          if (message.thoughts) {
            thought_done();
            answer.summary.textContent = 'Thought for ' + message.thought_for;
            if (!answer.touched()) answer.think.open = false;
          }
        }
      }
      if (!delta.reasoning_content) for (const entry of choice.logprobs?.content ?? []) {
        const piece = to_piece(entry);
        if (piece) message.pieces.push(piece);
      }
      if (choice.finish_reason) finish = choice.finish_reason;
      soon();
    }
    if (!finish) throw new Error('The answer was cut off.');
  } catch (problem) {
    if (problem.name === 'AbortError') finish = 'stopped';
    else show_error(answer.turn, problem instanceof TypeError ? 'The server cannot be reached.' : problem.message);
  }
  if (message.thoughts && !content_at) thought_done();
  if (!message.pieces.length) delete message.pieces;
  message.notes = notes();
  const there = chats.current === chat;
  if (there) finish_answer(answer, message, at);
  if (message.content || message.thoughts) chat.messages.push(message);
  chats.write(chat);
  draw_chats();
  if (running === mine) running = null;
  buttons();
  if (there) say(finish === 'stopped' ? 'Stopped.' : finish ? 'The answer: ' + answer.body.textContent.slice(0, 1200) : 'No answer.');
  look();
}

function buttons() {
  $('send').textContent = running ? 'Stop' : 'Send';
  $('send').disabled = !running && !$('input').value.trim();
}
function grow() { const i = $('input'); i.style.height = 'auto'; i.style.height = i.scrollHeight + 'px'; buttons(); }
function send(text) {
  $('welcome').hidden = true;
  const message = { role: 'user', content: text };
  add_user(message, chats.current.messages.push(message) - 1);
  chats.write(chats.current);
  draw_chats();
  ask();
}
function show_chat(chat) {
  running?.abort();
  running = null;
  chats.current = chat;
  keep.set('tandem.open', chat.id);
  draw_all();
  draw_chats();
  buttons();
}
function new_chat() {
  show_chat(chats.fresh());
  narrow_close();
  $('input').focus();
}

const narrow = () => matchMedia('(max-width: 860px)').matches;
function set_chats(open) {
  $('chats').hidden = !open;
  $('chats-toggle').setAttribute('aria-expanded', String(open));
}
function narrow_close() { if (narrow()) set_chats(false); }

$('theme').onclick = () => {
  const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  keep.set('tandem', { ...keep.get('tandem', {}), theme });
  paint(theme);
};
$('settings').addEventListener('input', save);
$('settings').addEventListener('click', e => { if (e.target === $('settings')) $('settings').close(); });
$('settings').addEventListener('close', () => { if (!running) draw_all(); });
$('open').onclick = () => $('settings').showModal();
$('reset').onclick = () => { keep.set('tandem', { theme: keep.get('tandem', {}).theme }); load(); };
$('chats-toggle').onclick = () => { set_chats($('chats').hidden); if (!$('chats').hidden) $('new').focus(); };
$('new').onclick = new_chat;
$('composer').onsubmit = e => {
  e.preventDefault();
  if (running) return running.abort();
  const text = $('input').value.trim();
  if (!text) return;
  $('input').value = '';
  grow();
  send(text);
};
$('input').addEventListener('input', grow);
$('input').addEventListener('keydown', e => {
  if (e.key === 'ArrowUp' && !$('input').value && !running) {
    const last = [...document.querySelectorAll('.turn.user .foot button')].pop();
    if (last) { e.preventDefault(); last.click(); }
  }
  if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  if (!running) $('composer').requestSubmit();
});
document.addEventListener('keydown', e => {
  if (e.key === 'Escape' && !$('settings').open) {
    if (running) { running.abort(); $('input').focus(); }
    else if (narrow() && !$('chats').hidden) { set_chats(false); $('chats-toggle').focus(); }
    else if (!$('live').hidden) $('live-close').click();
  }
  if (e.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { e.preventDefault(); $('input').focus(); }
});
for (const idea of ideas) $('ideas').append(action(idea, () => { if (!running) send(idea); }));
load();
set_chats(!narrow());
show_chat(chats.open(keep.get('tandem.open', '')) ?? chats.fresh());
grow();
look();
