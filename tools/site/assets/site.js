// The theme, the menu, what can be copied, and the search. The head loads this before the page is drawn, so that it is drawn once.
'use strict'

const rememberedTheme = () => {
  try { return localStorage.getItem('theme') } catch { return null } // a browser may refuse to keep anything
}

const setTheme = (theme) => {
  if (theme) document.documentElement.dataset.theme = theme
  else delete document.documentElement.dataset.theme
}

setTheme(rememberedTheme())

const switchTheme = () => {
  const root = document.documentElement
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  setTheme(dark ? 'light' : 'dark')
  try { localStorage.setItem('theme', root.dataset.theme) } catch { /* it lasts as long as the page */ }
}

// What can be found: pages, and their sections. It is a script and no JSON, because a page that was
// opened from disk may not fetch.
let found = null
let pages = []
let sections = []

// searchable is called by search.js.
// eslint-disable-next-line no-unused-vars
function searchable ([allPages, allSections]) {
  pages = allPages.map(([href, title]) => ({ href, title }))
  sections = allSections.map(([page, id, heading, text]) => ({ page: pages[page], id, heading, text }))
}

const load = () => {
  found ??= new Promise((resolve, reject) => {
    const script = document.createElement('script')
    script.src = document.documentElement.dataset.root + 'search.js'
    script.onload = resolve
    script.onerror = reject
    document.head.append(script)
  })
  return found
}

// beginning matches words that begin with a term.
const beginning = (term) => new RegExp('(?<![\\p{L}\\p{N}])' + term.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'giu')

const count = (pattern, text) => Math.min(text.match(pattern)?.length ?? 0, 4)

// stem removes the ending of an English word, so that "growing queues" finds what grows.
const stem = (term) => /^[a-z]+$/.test(term) ? term.replace(/(?<=.{4})(ies|ing|ness|ed|es|s|y)$/, '') : term

// For most searches the answer is in a guide, an explanation or the reference, not in what is for
// developers or in the two listings of everything.
const weight = (href) => {
  if (/^docs\/(tutorial|how-to|explanation\/(?!bench)|reference\/(?!cli))/.test(href)) return 1
  return /^(CHANGELOG|ARCHITECTURE|CONTRIBUTING|redis-compat|docs\/explanation\/bench|docs\/reference\/cli)/.test(href) ? 0.3 : 0.6
}

// search returns the best section of each page that has all terms, best page first.
const search = (query) => {
  const terms = query.trim().split(/\s+/).filter(Boolean).map(stem).map(beginning)
  if (terms.length === 0) return []
  const phrase = beginning(stem(query.trim().replace(/\s+/g, ' ')))
  const best = new Map()
  for (const s of sections) {
    const whole = s.page.title + ' ' + s.heading + ' ' + s.text
    if (!terms.every((t) => whole.search(t) >= 0)) continue
    let score = 12 * count(phrase, s.page.title) + 16 * count(phrase, s.heading) + 3 * count(phrase, s.text)
    for (const t of terms) {
      score += (4 * Math.min(count(t, s.page.title), 1) + 6 * Math.min(count(t, s.heading), 1) + count(t, s.text)) / terms.length
    }
    score *= weight(s.page.href)
    const before = best.get(s.page)
    if (!before) best.set(s.page, { section: s, score, sum: score })
    else {
      before.sum += score / 8
      if (score > before.score) Object.assign(before, { section: s, score, sum: before.sum - before.score + score })
    }
  }
  return [...best.values()].sort((a, b) => b.sum - a.sum).slice(0, 12).map((b) => ({ section: b.section, terms }))
}

// excerpt returns the text around the first term, with the terms marked.
const excerpt = (text, terms) => {
  const at = Math.max(0, Math.min(...terms.map((t) => { const i = text.search(t); return i < 0 ? 0 : i })) - 50)
  const part = (at > 0 ? '… ' : '') + text.slice(at, at + 180) + (at + 180 < text.length ? ' …' : '')
  const p = document.createElement('p')
  let last = 0
  for (const m of part.matchAll(new RegExp(terms.map((t) => t.source).join('|'), 'giu'))) {
    const mark = document.createElement('mark')
    mark.textContent = m[0]
    p.append(part.slice(last, m.index), mark)
    last = m.index + m[0].length
  }
  p.append(part.slice(last))
  return p
}

const row = ({ section, terms }) => {
  const a = document.createElement('a')
  a.href = document.documentElement.dataset.root + section.page.href + '#' + section.id
  const name = document.createElement('strong')
  name.textContent = section.page.title + (section.heading === section.page.title ? '' : ' › ' + section.heading)
  a.append(name, excerpt(section.text, terms))
  const li = document.createElement('li')
  li.append(a)
  return li
}

// copied returns what of a block is worth a copy: of a session its commands, else all of it.
const copied = (code) => {
  const commands = [...code.querySelectorAll('.command')].map((c) => c.textContent)
  return commands.length > 0 ? commands.join('\n') + '\n' : code.textContent
}

// copyable adds a button to a block of code.
const copyable = (block) => {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'copy'
  button.textContent = 'Copy'
  button.addEventListener('click', async () => {
    let done = 'Copied'
    try {
      await navigator.clipboard.writeText(copied(block.querySelector('code')))
    } catch {
      done = 'Press Ctrl-C' // a page that was opened from disk, or a browser that refuses
      getSelection().selectAllChildren(block.querySelector('code'))
    }
    button.textContent = done
    setTimeout(() => { button.textContent = 'Copy' }, 2000)
  })
  block.append(button)
}

// follow marks the heading that is read in the contents of the page.
const follow = () => {
  const links = new Map([...document.querySelectorAll('aside a')].map((a) => [decodeURIComponent(a.hash.slice(1)), a]))
  const headings = [...document.querySelectorAll('main :is(h2, h3)[id]')].filter((h) => links.has(h.id))
  const mark = () => {
    const read = headings.findLast((h) => h.getBoundingClientRect().top < 120) ?? headings[0]
    for (const [id, a] of links) {
      if (id === read?.id) a.setAttribute('aria-current', 'location')
      else a.removeAttribute('aria-current')
    }
  }
  if (headings.length > 0) {
    addEventListener('scroll', mark, { passive: true })
    mark()
  }
}

addEventListener('DOMContentLoaded', () => {
  for (const block of document.querySelectorAll('.code')) {
    if (!block.querySelector('.drawing')) copyable(block)
  }
  follow()
  if (matchMedia('(max-width: 860px)').matches) document.querySelector('.menu').open = false
  const query = document.getElementById('query')
  const results = document.getElementById('results')
  document.getElementById('theme').addEventListener('click', switchTheme)

  const show = async () => {
    await load()
    const rows = search(query.value).map(row)
    if (rows.length === 0) {
      const none = document.createElement('li')
      none.className = 'none'
      none.textContent = 'Nothing has all of these words.'
      rows.push(none)
    }
    results.replaceChildren(...rows)
    results.hidden = query.value.trim() === ''
    results.dataset.query = query.value // what they are the results of
  }
  query.addEventListener('focus', load)
  query.addEventListener('input', show)
  query.form.addEventListener('submit', async (e) => {
    e.preventDefault()
    await show()
    results.querySelector('a')?.click()
  })
  results.addEventListener('click', () => { results.hidden = true })

  addEventListener('keydown', (e) => {
    const links = [query, ...results.querySelectorAll('a')]
    const at = links.indexOf(document.activeElement)
    if (e.key === '/' && document.activeElement !== query) query.focus()
    else if (e.key === 'Escape') results.hidden = true
    else if (e.key === 'ArrowDown' && at >= 0) links[Math.min(at + 1, links.length - 1)].focus()
    else if (e.key === 'ArrowUp' && at > 0) links[at - 1].focus()
    else return
    e.preventDefault()
  })
  addEventListener('click', (e) => { if (!query.form.contains(e.target)) results.hidden = true })
})
