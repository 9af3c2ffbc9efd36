// Messages: a search that goes through the queue a page at a time, and can be stopped.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields, Refusal } from "../api";
import { CommandLine } from "../action";
import { refusalOf, useApp } from "../app";
import type { Values } from "../app";
import { ago, count, plural, size } from "../format";
import { lineOf, moment, offers, valuesOf } from "../query";
import { refine, to } from "../route";
import type { Route } from "../route";
import { Badge, Card, Code, Empty, Failure, Level, Table } from "../ui";
import { Batch } from "./batch";
import { Views } from "./views";
import type { Column, Tone } from "../ui";
import { bytes, key, maybe, num, page, pairs, raw, text } from "../value";

const names = ["status", "key", "payload", "header", "value", "error", "since", "until"];

export function searchWords(queue: Bytes, v: Values): Bytes[] {
	const words: Bytes[] = ["FILA.BROWSE", queue];
	const add = (option: string, ...values: string[]) => words.push(option, ...values);
	const done = v.status === "done"; // there is no payload and no error of what is done
	if (done) {
		words.push("DONE");
	} else if (v.status) {
		add("STATUS", v.status);
	}
	if (v.key) {
		add("KEY", v.key);
	}
	if (v.header) {
		add("HEADER", v.header, v.value || "*");
	}
	if (v.payload && !done) {
		add("PAYLOAD", v.payload);
	}
	if (v.error && !done) {
		add("ERROR", v.error);
	}
	for (const side of ["since", "until"]) {
		const typed = v[side];
		if (typed) {
			add(side.toUpperCase(), String(moment(typed)));
		}
	}
	return words;
}

const enough = 50; // messages that a search shows before it asks whether to go on
const stepMin = 200;
const stepMax = 10_000;

interface Hunt {
	rows: Fields[];
	looked: number;
	cursor: Bytes;
	running: boolean;
	done: boolean;
	error?: Refusal;
}

export const statusTone: Record<string, Tone> = { ready: "ready", delayed: "quiet", leased: "busy", dead: "bad", done: "quiet" };

/** shortID leaves out the middle of an id: its beginning is the time, its end tells it from others. */
function shortID(id: string): string {
	return id.length > 24 ? `${id.slice(0, 13)}…${id.slice(-6)}` : id;
}

export function messageColumns(queue: Bytes, rows: Fields[]): Column<Fields>[] {
	const all: Column<Fields>[] = [
		{ name: "Message", head: true, cell: (m) => <a href={to(["queues", queue, "messages", bytes(m.id)])} title={text(m.id)}><Code>{shortID(text(m.id))}</Code></a> },
		{ name: "Status", sort: (m) => text(m.status), cell: (m) => <Badge tone={statusTone[text(m.status)] ?? "quiet"}>{text(m.status)}</Badge> },
		{ name: "Key", sort: (m) => text(m.key), cell: (m) => <span class="clip" title={text(m.key)}>{text(m.key)}</span> },
		{ name: "Payload", room: true, cell: (m) => <span class="mono" title={size(raw(bytes(m.payload)).length)}>{text(m.payload).slice(0, 300)}</span> },
		{ name: "Headers", cell: (m) => <span class="clip mono">{pairs(m.headers).map(([n, v]) => `${text(n)}: ${text(v)}`).join(", ").slice(0, 200)}</span> },
		{ name: "Leased", cell: (m) => (text(m.status) === "leased" ? <span class="why"><span>{text(m.consumer) || "no name"}</span><span class="reason">until {ago(maybe(m.lease_until))}</span></span> : "") },
		{ name: "Attempt", right: true, sort: (m) => num(m.attempt), cell: (m) => count(num(m.dead_attempts) || num(m.attempt)) },
		{ name: "Enqueued", sort: (m) => num(m.enqueued_at), cell: (m) => ago(maybe(m.enqueued_at)) },
		{ name: "Acked", sort: (m) => num(m.acked_at), cell: (m) => ago(maybe(m.acked_at)) },
		{ name: "Progress", cell: (m) => <span class="clip">{text(m.progress)}</span> },
		{ name: "Error", cell: (m) => <span class="clip bad" title={text(m.error)}>{text(m.error)}</span> },
	];
	const optional: Record<string, string> = { Error: "error", Acked: "acked_at", Progress: "progress" };
	return all.filter((c) => (!optional[c.name] || rows.some((m) => text(m[optional[c.name] ?? ""]) !== "")) && (c.name !== "Leased" || rows.some((m) => text(m.status) === "leased")));
}

/** useHunt searches, step by step, until it has found enough or is stopped. */
export function useHunt() {
	const [hunt, set] = useState<Hunt>();
	const cancel = useRef<AbortController | null>(null);
	useEffect(() => () => cancel.current?.abort(), []);
	const go = async (words: Bytes[], selective: boolean, from?: Hunt) => {
		cancel.current?.abort();
		const signal = (cancel.current = new AbortController()).signal;
		let h: Hunt = from ? { ...from, running: true, error: undefined } : { rows: [], looked: 0, cursor: "0", running: true, done: false };
		const goal = h.rows.length + enough;
		let step = selective ? stepMin : enough;
		set(h);
		while (h.rows.length < goal && !h.done) {
			try {
				const { next, items } = page(await run([...words, "CURSOR", h.cursor, "COUNT", String(step)], signal));
				h = { ...h, rows: [...h.rows, ...items], looked: h.looked + step, cursor: next, done: text(next) === "0" };
				// What is rare takes large steps; what is common would make large replies.
				step = !selective ? enough : items.length < enough / 4 ? Math.min(stepMax, step * 4) : Math.max(stepMin, Math.floor(step / 4));
			} catch (e) {
				if (!signal.aborted) {
					set({ ...h, running: false, error: refusalOf(e) });
				}
				return;
			}
			if (signal.aborted) {
				return;
			}
			set(h);
		}
		set({ ...h, running: false });
	};
	const stop = () => {
		cancel.current?.abort();
		set((h) => (h ? { ...h, running: false } : h));
	};
	return { hunt, go, stop };
}

/** Found says how far a search is. */
export function Found({ hunt, total, newest, onStop, onMore }: { hunt: Hunt; total: number; newest?: boolean; onStop(): void; onMore(): void }) {
	const looked = hunt.done ? Math.max(total, hunt.rows.length) : Math.min(hunt.looked, total); // the total is some seconds old
	if (hunt.done && looked === 0) {
		return null; // the queue is empty, which the table says
	}
	return (
		<div class="progress">
			<Level value={looked} max={Math.max(1, total, looked)} label={`looked at ${count(looked)} of ${count(Math.max(total, looked))}`} />
			<span role="status">{hunt.running ? "Looking: " : ""}looked at {hunt.done ? "all" : "about"} {plural(looked, "message")}{!hunt.done && ` of ${count(total)}`}, found {count(hunt.rows.length)}{hunt.rows.length > 1 && newest && ", the newest first"}</span>
			{hunt.running && <button type="button" onClick={onStop}>Stop</button>}
			{!hunt.running && !hunt.done && <button type="button" onClick={onMore}>Go on</button>}
		</div>
	);
}

/** wrongIn says what is wrong with a search; "" if nothing is. */
function wrongIn(v: Values): string {
	if (v.status && !statusTone[v.status]) {
		return `“${v.status}” is no status: write ready, delayed, leased, dead or done.`;
	}
	const side = ["since", "until"].find((side) => v[side] && Number.isNaN(moment(v[side])));
	return side ? `“${v[side]}” is no time: write an age such as 2h, 2026-01-31T14:00, or Unix milliseconds.` : "";
}

/** QueryLine is the line of a search, with ways to go on with it. */
function QueryLine({ line, onChange }: { line: string; onChange(line: string): void }) {
	const id = useId();
	const [open, show] = useState(false);
	const [at, move] = useState(-1);
	const shown = open ? offers(line) : [];
	const take = (next: string) => {
		onChange(next);
		move(-1);
		show(true);
	};
	const keys = (e: KeyboardEvent) => {
		const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
		if (step !== 0) {
			e.preventDefault();
			show(true);
			const n = offers(line).length;
			move(n === 0 ? -1 : at < 0 ? (step > 0 ? 0 : n - 1) : (at + step + n) % n);
		} else if (e.key === "Enter" && shown[at]) {
			e.preventDefault();
			take(shown[at].line);
		} else if (e.key === "Escape" || e.key === "Enter") {
			show(false);
		}
	};
	return (
		<div class="query">
			<label for={id}>Search messages</label>
			<input id={id} type="text" role="combobox" aria-expanded={shown.length > 0} aria-controls={`${id}-list`} aria-autocomplete="list" aria-describedby={`${id}-hint`}
				aria-activedescendant={shown[at] ? `${id}-${at}` : undefined} value={line} spellcheck={false} autocomplete="off" placeholder="words in the payload, status:dead key:acme since:2h"
				onInput={(e) => take(e.currentTarget.value)} onKeyDown={keys} onBlur={() => show(false)} />
			{shown.length > 0 && <ul class="goals" role="listbox" id={`${id}-list`} aria-label="Conditions">
				{shown.map((o, i) => (
					<li key={o.text} id={`${id}-${i}`} role="option" aria-selected={i === at} onMouseDown={(e) => e.preventDefault()} onMouseEnter={() => move(i)} onClick={() => take(o.line)}>
						<code>{o.text}</code> <small>{o.what}</small>
					</li>
				))}
			</ul>}
			<small id={`${id}-hint`}>Words are looked for in the payload. Conditions are status, key, header, error, since and until, such as header:tenant=acme; quotes hold spaces together. The address of the page keeps the search.</small>
		</div>
	);
}

/** localTime writes a moment as a field for a date and a time has it; "" if there is none. */
function localTime(typed: string | undefined): string {
	const at = typed ? moment(typed) : NaN;
	return Number.isNaN(at) ? "" : new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Times are fields for the times of a search. */
function Times({ values, onChange }: { values: Values; onChange(change: Values): void }) {
	const id = useId();
	return (
		<details class="times">
			<summary>Times</summary>
			<div class="fields across">
				{["since", "until"].map((side) => (
					<div class="field" key={side}>
						<label for={id + side}>{side === "since" ? "Since" : "Until"}</label>
						<input id={id + side} type="datetime-local" value={localTime(values[side])} onInput={(e) => onChange({ [side]: e.currentTarget.value })} />
					</div>
				))}
			</div>
		</details>
	);
}

export function Messages({ queue, route, total, dlq }: { queue: Bytes; route: Route; total: number; dlq: boolean }) {
	const app = useApp();
	const why = app.may({ command: "FILA.BROWSE", queue, access: "consume" });
	const [line, set] = useState(() => lineOf(Object.fromEntries(names.map((n) => [n, route.query.get(n) ?? ""]))));
	const values = valuesOf(line);
	const { hunt, go, stop } = useHunt();
	const [found, search] = useState<Bytes[]>([]); // the search whose messages are shown
	const picked = usePicked();
	const words = searchWords(queue, values);
	const wrong = wrongIn(values);
	const start = (from?: Hunt, typed = line) => {
		const values = valuesOf(typed);
		const words = searchWords(queue, values);
		if (wrongIn(values) !== "") {
			return;
		}
		if (from) {
			void go(found, found.length > 2, from); // an age goes by the time of the search
			return;
		}
		refine(route, Object.fromEntries(names.map((n) => [n, values[n] ?? ""])));
		search(words);
		picked.all([]);
		void go(words, words.length > 2);
	};
	useEffect(() => {
		if (why === "") {
			start();
		}
	}, []);
	if (why !== "") {
		return <Empty title="You may not look at messages here.">This {why}.</Empty>;
	}
	return (
		<Card title="Messages">
			<form class="searchform" onSubmit={(e) => {
				e.preventDefault();
				start();
			}}>
				<QueryLine line={line} onChange={set} />
				{wrong !== "" && <p class="failure" role="alert">{wrong}</p>}
				<div class="actions">
					<button type="submit" class="primary" disabled={wrong !== ""}>Search</button>
					<button type="button" onClick={() => set("")}>Clear</button>
					<Views line={line} onOpen={(kept) => {
						set(kept);
						start(undefined, kept);
					}} />
					<Times values={values} onChange={(change) => set(lineOf({ ...values, ...change }))} />
					<details class="inline"><summary>Command line</summary><CommandLine words={[...words, "COUNT", String(stepMin)]} /></details>
				</div>
			</form>
			{hunt && (
				<>
					<Found hunt={hunt} total={total} newest onStop={stop} onMore={() => start(hunt)} />
					<Failure error={hunt.error} />
					{!found.includes("DONE") && <Batch key={JSON.stringify(found)} queue={queue} search={found} some={hunt.rows.length > 0} picked={picked.ids} dlq={dlq} after={() => start()}><PickAll picked={picked} rows={hunt.rows} /></Batch>}
					<Table caption="Messages" columns={[...(found.includes("DONE") ? [] : [picked.column]), ...messageColumns(queue, hunt.rows)]} rows={hunt.rows} id={(m) => text(m.id)} begin="-Enqueued"
						empty={hunt.running ? undefined : <Empty title={words.length === 2 ? "The queue is empty." : hunt.done ? "No message is like that." : "Nothing found so far."} />} />
				</>
			)}
		</Card>
	);
}

/** Picked are messages that are chosen by their boxes. */
export interface Picked {
	ids: Bytes[];
	column: Column<Fields>;
	all(rows: Fields[]): void; // none: chooses none
}

export function usePicked(): Picked {
	const [chosen, choose] = useState<Map<string, Bytes>>(new Map());
	const pick = (id: Bytes, on: boolean) => choose((old) => {
		const all = new Map(old);
		if (on) {
			all.set(key(id), id);
		} else {
			all.delete(key(id));
		}
		return all;
	});
	return {
		ids: [...chosen.values()],
		column: {
			name: "Select",
			cell: (m) => <input type="checkbox" aria-label={`Select ${text(m.id)}`} checked={chosen.has(key(bytes(m.id)))} onChange={(e) => pick(bytes(m.id), e.currentTarget.checked)} />,
		},
		all: (rows) => choose(new Map(rows.map((m) => [key(bytes(m.id)), bytes(m.id)]))),
	};
}

/** PickAll chooses all messages that are shown, or none. */
export function PickAll({ picked, rows }: { picked: Picked; rows: Fields[] }) {
	if (rows.length === 0) {
		return null;
	}
	return picked.ids.length > 0
		? <button type="button" class="small" onClick={() => picked.all([])}>Select none</button>
		: <button type="button" class="small" onClick={() => picked.all(rows)}>Select {rows.length === 1 ? "the one" : `the ${count(rows.length)}`} shown</button>;
}
