// What this browser keeps: settings, and conversations, each under its own key so that one answer writes one chat.
const numbers = ['temperature', 'top_p', 'top_k', 'min_p', 'presence_penalty', 'repetition_penalty', 'max_tokens', 'seed'];
const keep = {
  get(key, otherwise) { try { return JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { return otherwise; } },
  set(key, value) {
    try { localStorage.setItem(key, JSON.stringify(value)); return true; } catch { return false; }  // full, or a private window
  },
  drop(key) { try { localStorage.removeItem(key); } catch { /* private window */ } },
};

function load() {
  const s = keep.get('tandem', {});
  for (const n of numbers) $(n).value = s[n] ?? '';
  $('system').value = s.system ?? '';
  $('thinking').checked = s.thinking ?? false;
  $('colour').checked = s.colour ?? false;
  paint(s.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
}
function save() {
  const s = { theme: keep.get('tandem', {}).theme, system: $('system').value, thinking: $('thinking').checked, colour: $('colour').checked };
  for (const n of numbers) if ($(n).value !== '') s[n] = $(n).value;
  keep.set('tandem', s);
}
function paint(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}

// A chat: {id, title, named, messages}; a message: {role, content, thoughts, pieces, notes}.
const chats = {
  list: keep.get('tandem.chats', []),  // [{id, title}], the latest first
  refresh() { this.list = keep.get('tandem.chats', this.list); },  // other tabs write it too
  current: null,
  fresh() { return { id: Date.now().toString(36) + Math.random().toString(36).slice(2, 6), title: '', messages: [] }; },
  open(id) { return keep.get('tandem.chat.' + id, null); },
  write(chat) {
    if (!chat.messages.length || chat.deleted) return;
    if (!chat.title) chat.title = chat.messages[0].content.replace(/\s+/g, ' ').slice(0, 60);
    this.refresh();
    this.list = [{ id: chat.id, title: chat.title }, ...this.list.filter(other => other.id !== chat.id)];
    const kept = keep.set('tandem.chat.' + chat.id, chat) ||
      keep.set('tandem.chat.' + chat.id, { ...chat, messages: chat.messages.map(({ pieces, ...rest }) => rest) });
    keep.set('tandem.chats', this.list);
    $('not-kept').hidden = kept;
  },
  rename(id, title) {
    this.refresh();
    this.list = this.list.map(chat => (chat.id === id ? { id, title } : chat));
    keep.set('tandem.chats', this.list);
    const chat = this.current?.id === id ? this.current : this.open(id);
    if (!chat) return;
    chat.title = title;
    keep.set('tandem.chat.' + id, chat);
  },
  remove(id) {
    this.refresh();
    this.list = this.list.filter(chat => chat.id !== id);
    keep.set('tandem.chats', this.list);
    keep.drop('tandem.chat.' + id);
  },
};

addEventListener('storage', event => {
  if (event.key !== 'tandem.chats' || document.querySelector('.rename')) return;
  chats.refresh();
  draw_chats();
});

function say(text) { $('status').textContent = text; }

function draw_chats() {
  $('chats-none').hidden = chats.list.length > 0;
  $('chat-list').replaceChildren(...chats.list.map(({ id, title }) => {
    const item = el('li');
    const open = el('button', 'chat', title || 'Untitled');
    open.type = 'button';
    open.title = title;
    if (chats.current?.id === id) open.setAttribute('aria-current', 'true');
    open.onclick = () => { show_chat(chats.open(id) ?? chats.fresh()); narrow_close(); };
    const rename = el('button', 'small', 'Rename');
    rename.type = 'button';
    rename.setAttribute('aria-label', 'Rename ' + title);
    rename.onclick = () => {
      const box = el('input', 'rename');
      box.value = title;
      box.setAttribute('aria-label', 'New name');
      let done = false;
      const end = wanted => {
        if (done) return;
        done = true;
        if (wanted && box.value.trim()) chats.rename(id, box.value.trim().slice(0, 120));
        draw_chats();
        document.querySelector(`[data-id="${id}"] .chat`)?.focus();
      };
      box.onkeydown = e => { if (e.key === 'Enter') end(true); if (e.key === 'Escape') { e.stopPropagation(); end(false); } };
      box.onblur = () => end(true);
      item.replaceChildren(box);
      box.select();
      box.focus();
    };
    const remove = el('button', 'small', 'Delete');
    remove.type = 'button';
    remove.setAttribute('aria-label', 'Delete ' + title);
    remove.onclick = () => {
      if (remove.textContent === 'Delete') {  // the second click, in a few seconds, does it
        remove.textContent = 'Sure?';
        say('Press again to delete this chat.');
        setTimeout(() => { remove.textContent = 'Delete'; }, 4000);
        return;
      }
      chats.remove(id);
      if (chats.current?.id === id) { chats.current.deleted = true; new_chat(); }
      draw_chats();
      say('Deleted.');
      ($('chat-list').querySelector('.chat') ?? $('new')).focus();
    };
    item.dataset.id = id;
    item.append(open, rename, remove);
    return item;
  }));
}
