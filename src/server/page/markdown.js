// Markdown as nodes of the document. Text only ever becomes text nodes, so that nothing a model says
// can be HTML; links go to http, https and mailto only, and images are not loaded.
const $ = id => document.getElementById(id);
const el = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text) e.textContent = text; return e; };

const INLINE = new RegExp([
  '(`+)([^`]|[^`][^]*?[^`])\\1(?!`)',                // 1, 2  `code`
  '\\*\\*(?=\\S)([^]*?\\S)\\*\\*',                   // 3     **strong**
  '__(?=\\S)([^]*?\\S)__(?!\\w)',                    // 4     __strong__
  '~~(?=\\S)([^]*?\\S)~~',                           // 5     ~~deleted~~
  '\\*(?=[^\\s*])([^*]*[^\\s*])\\*(?!\\*)',          // 6     *emphasis*
  '(?<!\\w)_(?=[^\\s_])([^_]*[^\\s_])_(?!\\w)',      // 7     _emphasis_
  '!?\\[([^\\]\\n]*)\\]\\(([^()\\s]+)(?:\\s+"[^"\\n]*")?\\)', // 8, 9  [text](address)
  '(https?://[^\\s<>()]*[^\\s<>().,;:!?\'"])',       // 10    an address
  '\\\\([\\\\`*_{}\\[\\]()#+\\-.!~|>])',             // 11    an escaped mark
].join('|'));

function link(address, text) {
  let url = null;
  try { url = new URL(address); } catch { /* no address */ }
  if (!url || !['http:', 'https:', 'mailto:'].includes(url.protocol)) return null;
  const a = el('a', '', text);
  a.href = url.href;
  a.target = '_blank';
  a.rel = 'noopener noreferrer nofollow';
  return a;
}

function inline(parent, text, depth = 0) {
  while (text) {
    const found = depth < 6 ? INLINE.exec(text) : null;
    if (!found) { parent.append(text); return; }
    parent.append(text.slice(0, found.index));
    const [whole, , code, strong, strong2, deleted, em, em2, label, address, bare, mark] = found;
    const inside = (tag, what) => { const e = el(tag); inline(e, what, depth + 1); parent.append(e); };
    if (code !== undefined) parent.append(el('code', '', code.trim() ? code.replace(/^ (.*) $/s, '$1') : code));
    else if (strong ?? strong2) inside('strong', strong ?? strong2);
    else if (deleted) inside('del', deleted);
    else if (em ?? em2) inside('em', em ?? em2);
    else if (address) parent.append(link(address, label || address) ?? whole);
    else if (bare) parent.append(link(bare, bare) ?? whole);
    else parent.append(mark);
    text = text.slice(found.index + whole.length);
  }
}

const WORDS = new Set(('abstract and as async await auto bool break case catch char class const constexpr continue def default del do double elif else end enum ' +
  'except export extends false False final finally float fn for foreach from func function global go if impl import in include int interface is lambda let ' +
  'local long loop match mod mut namespace new nil None not null nullptr of or package pass private protected pub public raise return self short ' +
  'signed sizeof static string struct super switch template then this throw trait true True try type typedef typename union unsigned use using var ' +
  'virtual void where while with yield select insert update delete create table fi done echo').split(' '));
function coloured(code, text, language) {
  const hash = !/^(c|cpp|c\+\+|h|java|js|javascript|ts|typescript|rust|rs|go|css|cuda|json|swift|kotlin)$/i.test(language);
  const pattern = new RegExp(`("(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*'|\`(?:[^\`\\\\]|\\\\.)*\`)` +
    `|(${hash ? '#[^\\n]*|' : ''}//[^\\n]*|/\\*[^]*?\\*/)|(\\b(?:0x[0-9a-fA-F]+|\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\b)|([A-Za-z_]\\w*)`, 'g');
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    const [whole, string, comment, number, word] = found;
    const kind = string ? 'c-string' : comment ? 'c-comment' : number ? 'c-number' : WORDS.has(word) ? 'c-word' : '';
    if (!kind) continue;
    code.append(text.slice(at, found.index), el('span', kind, whole));
    at = found.index + whole.length;
  }
  code.append(text.slice(at));
}

function code_block(text, language) {
  const box = el('div', 'code');
  const bar = el('div', 'code-bar');
  const copy = el('button', '', 'Copy code');
  copy.type = 'button';
  copy.dataset.copy = text;
  bar.append(el('span', '', language), copy);
  const pre = el('pre');
  pre.tabIndex = 0;
  pre.setAttribute('aria-label', language ? language + ' code' : 'code');
  const code = el('code');
  if (text.length < 20000) coloured(code, text, language);
  else code.append(text);
  pre.append(code);
  box.append(bar, pre);
  return box;
}

const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const cells = line => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(cell => cell.trim().replace(/\\\|/g, '|'));
const is_rule = line => /^ {0,3}([-*_])( *\1){2,} *$/.test(line);
const is_table = (lines, i) => lines[i].includes('|') && /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/.test(lines[i + 1] ?? '') && lines[i + 1].includes('-') &&
  cells(lines[i]).length === cells(lines[i + 1]).length;
const begins = (lines, i) => /^ {0,3}(#{1,6} |>|```|~~~)/.test(lines[i]) || is_rule(lines[i]) || ITEM.test(lines[i]) || is_table(lines, i);

function blocks(parent, lines, depth = 0) {
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    let found;
    if (!line.trim()) { ++i; continue; }
    if ((found = /^ {0,3}(`{3,}|~{3,}) *([^`]*)$/.exec(line))) {
      const [, fence, info] = found;
      const body = [];
      for (++i; i < lines.length && !(lines[i].trim().startsWith(fence) && !lines[i].trim().replaceAll(fence[0], '')); ++i) body.push(lines[i]);
      ++i;
      parent.append(code_block(body.join('\n'), info.trim().split(/\s/)[0]));
    } else if ((found = /^ {0,3}(#{1,6}) +(.*?)( +#+)? *$/.exec(line))) {
      const title = el('h' + Math.min(6, found[1].length + 2));  // the page has h1 and h2
      inline(title, found[2]);
      parent.append(title);
      ++i;
    } else if (is_rule(line)) {
      parent.append(el('hr'));
      ++i;
    } else if (/^ {0,3}>/.test(line) && depth < 8) {
      const body = [];
      for (; i < lines.length && lines[i].trim() && (/^ {0,3}>/.test(lines[i]) || !begins(lines, i)); ++i) body.push(lines[i].replace(/^ {0,3}> ?/, ''));
      const quote = el('blockquote');
      blocks(quote, body, depth + 1);
      parent.append(quote);
    } else if ((found = ITEM.exec(line)) && depth < 8) {
      const indent = found[1].length, ordered = /\d/.test(found[2]);
      const list = el(ordered ? 'ol' : 'ul');
      if (ordered && parseInt(found[2], 10) !== 1) list.start = parseInt(found[2], 10);
      while (i < lines.length && (found = ITEM.exec(lines[i])) && found[1].length >= indent && found[1].length < indent + 2 && /\d/.test(found[2]) === ordered && !is_rule(lines[i])) {
        const body = [found[4]];
        const inner = indent + found[2].length + 1;
        for (++i; i < lines.length; ++i) {
          const deeper = lines[i].length - lines[i].trimStart().length >= Math.min(inner, indent + 2);
          if (!lines[i].trim()) {
            const next = lines[i + 1];
            if (next === undefined || !next.trim() || !(next.length - next.trimStart().length >= Math.min(inner, indent + 2))) break;
          } else if (!deeper && begins(lines, i)) break;
          body.push(lines[i].replace(new RegExp(`^ {0,${inner}}`), ''));
        }
        while (i < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1] ?? '')) ++i;
        const item = el('li');
        blocks(item, body, depth + 1);
        if (item.children.length && item.firstChild.tagName === 'P') item.firstChild.replaceWith(...item.firstChild.childNodes);
        list.append(item);
      }
      parent.append(list);
    } else if (is_table(lines, i)) {
      const table = el('table'), head = el('tr'), body = el('tbody');
      const sides = cells(lines[i + 1]).map(rule => (rule.endsWith(':') ? (rule.startsWith(':') ? 'middle' : 'right') : ''));
      cells(lines[i]).forEach((cell, c) => { const th = el('th', sides[c]); th.scope = 'col'; inline(th, cell); head.append(th); });
      for (i += 2; i < lines.length && lines[i].includes('|'); ++i) {
        const row = el('tr');
        const found_cells = cells(lines[i]), last = sides.length - 1;  // too many: the last one has the rest
        [...found_cells.slice(0, last), found_cells.slice(last).join('|')].forEach((cell, c) => { const td = el('td', sides[c]); inline(td, cell); row.append(td); });
        body.append(row);
      }
      const top = el('thead'), scroll = el('div', 'table');
      top.append(head);
      table.append(top, body);
      scroll.tabIndex = 0;
      scroll.append(table);
      parent.append(scroll);
    } else {
      const body = [line];
      for (++i; i < lines.length && lines[i].trim() && !begins(lines, i); ++i) body.push(lines[i]);
      const p = el('p');
      inline(p, body.join('\n').replace(/ {2,}\n/g, '\n'));
      parent.append(p);
    }
  }
}

function render(target, text) {
  target.replaceChildren();
  blocks(target, text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'));
}
