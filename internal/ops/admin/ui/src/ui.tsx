// The parts that pages are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Refusal } from "./api";
import type { Action } from "./app";
import { useApp } from "./app";
import { count, exactTime, percent, short, time } from "./format";

type Children = { children?: ComponentChildren };

export type Tone = "ready" | "busy" | "wait" | "quiet" | "alone" | "bad" | "good";

/** Badge is a state in a word. */
export function Badge({ tone, children, title }: Children & { tone: Tone; title?: string }) {
	return <span class={`badge ${tone}`} title={title}>{children}</span>;
}

/** Code is what is typed or read by programs: an id, a pattern. */
export function Code({ children, title }: Children & { title?: string }) {
	return <code title={title}>{children}</code>;
}

/** ActionButton opens the dialog of an action; without the right to it, it says which one is missing. A small one is in a row, and is named after what it concerns. */
export function ActionButton({ action, primary, small }: { action: Action; primary?: boolean; small?: boolean }) {
	const app = useApp();
	const why = app.may(action.need);
	const id = useId();
	const kind = action.danger ? "danger" : primary ? "primary" : "";
	return (
		<span class="tipped">
			<button type="button" class={`${kind} ${small ? "small" : ""}`} aria-disabled={why !== ""} aria-describedby={why === "" ? undefined : id} aria-label={small ? (action.title ?? action.label) : undefined}
				onClick={() => (why === "" ? app.act(action) : app.say(`${action.label}: ${why}`))}>
				{action.label}
			</button>
			{why !== "" && <span class="tip" role="tooltip" id={id}>{why}</span>}
		</span>
	);
}

export function Actions({ children }: Children) {
	return <div class="actions">{children}</div>;
}

/** Page is the frame of every page: its name, what it is about, what can be done. */
export function Page({ title, crumbs, sub, actions, children }: Children & {
	title: ComponentChildren; crumbs?: [string, string][]; sub?: ComponentChildren; actions?: ComponentChildren;
}) {
	return (
		<>
			<header class="page">
				<div>
					{crumbs && (
						<nav class="crumbs" aria-label="Breadcrumb">
							<ol>{crumbs.map(([name, href]) => <li key={href}><a href={href}>{name}</a></li>)}</ol>
						</nav>
					)}
					<h1 tabIndex={-1}>{title}</h1>
					{sub && <p class="sub">{sub}</p>}
				</div>
				{actions && <div class="actions">{actions}</div>}
			</header>
			{children}
		</>
	);
}

export function Card({ title, actions, children, note }: Children & { title?: ComponentChildren; actions?: ComponentChildren; note?: ComponentChildren }) {
	const id = useId();
	return (
		<section class="card" aria-labelledby={title ? id : undefined}>
			{(title || actions) && (
				<header>
					{title && <h2 id={id}>{title}</h2>}
					{note && <span class="note">{note}</span>}
					{actions && <div class="actions">{actions}</div>}
				</header>
			)}
			{children}
		</section>
	);
}

export function Empty({ title, children }: Children & { title: string }) {
	return (
		<div class="empty">
			<p class="lead">{title}</p>
			{children && <p>{children}</p>}
		</div>
	);
}

export function Failure({ error }: { error: Refusal | undefined }) {
	if (!error) {
		return null;
	}
	const what = error.code === "NOPERM" ? "You may not see this" : error.code === "OFFLINE" ? "No connection" : "The broker has refused";
	return <p class="failure" role="alert"><strong>{what}.</strong> {error.text}</p>;
}

export function Loading() {
	return <p class="loading" role="status">Loading…</p>;
}

/** Figure is a number with its name. */
export function Figure({ name, value, unit, tone, hint }: { name: string; value: ComponentChildren; unit?: string; tone?: Tone; hint?: string }) {
	return (
		<div class={`figure ${tone ?? ""}`} title={hint}>
			<dt>{name}</dt>
			<dd>{value}{unit && <small> {unit}</small>}</dd>
		</div>
	);
}

export function Figures({ children }: Children) {
	return <dl class="figures">{children}</dl>;
}

/** Share is a bar of a share, with the fair share as its mark. max is what a full bar is: the same for bars that are compared. */
export function Share({ share, fair, max = 1 }: { share: number; fair: number; max?: number }) {
	const at = (v: number) => Math.min(100, (v / max) * 100);
	const off = fair > 0 && share < fair * 0.5 ? "low" : "";
	return (
		<span class="share">
			<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`share ${percent(share)}, fair share ${percent(fair)}`} class={off}>
				<rect class="track" width="100" height="10" rx="2" />
				<rect class="fill" width={at(share)} height="10" />
				<rect class="mark" x={Math.max(0, at(fair) - 0.6)} width="1.2" height="10" />
			</svg>
			<span class="value">{percent(share)}</span>
		</span>
	);
}

/** Level is a bar of what is there out of what there can be. */
export function Level({ value, max, label, tone }: { value: number; max: number; label: string; tone?: Tone }) {
	const part = max > 0 ? Math.max(0, Math.min(1, value / max)) : 0;
	return (
		<span class="share">
			<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={label} class={tone ?? ""}>
				<rect class="track" width="100" height="10" rx="2" />
				<rect class="fill" width={part * 100} height="10" />
			</svg>
		</span>
	);
}

export function Num({ n }: { n: number }) {
	return <span class={n === 0 ? "zero" : ""} title={Math.abs(n) >= 10_000 ? count(n) : undefined}>{short(n)}</span>;
}

export function Time({ at }: { at: number | null }) {
	return at ? <time dateTime={new Date(at).toISOString()} title={exactTime(at)}>{time(at)}</time> : <span class="zero">–</span>;
}

/** Column is a column of a table; sort makes it sortable. */
export interface Column<T> {
	name: string;
	cell(row: T): ComponentChildren;
	sort?(row: T): number | string;
	right?: boolean;
	head?: boolean;
	wide?: boolean;
	broad?: boolean;
	room?: boolean; // it has what the others leave, and what is longer is cut
	hint?: string;
}

/** Table is a list of things. It is sorted within what is shown, at first by begin, or comes ordered. Rows stay in their place while the table is pointed at or has the focus: live figures must not move what is about to be clicked. */
export function Table<T>({ caption, columns, rows, id, ordered, begin, sorted, onSort, empty }: {
	caption: string; columns: Column<T>[]; rows: T[]; id(row: T): string;
	ordered?: boolean; begin?: string; sorted?: string; onSort?(by: string): void; empty?: ComponentChildren;
}) {
	const [own, setOwn] = useState(begin ?? "");
	const by = sorted ?? own;
	const set = onSort ?? setOwn;
	const down = by.startsWith("-");
	const column = columns.find((c) => c.name === by.replace(/^-/, ""));
	const [held, hold] = useState<string[] | null>(null);
	const sortedRows = column?.sort && !ordered ? [...rows].sort((a, b) => order(column.sort!(a), column.sort!(b)) * (down ? -1 : 1)) : rows;
	const place = new Map(held?.map((name, i) => [name, i]));
	const shown = held ? [...sortedRows].sort((a, b) => (place.get(id(a)) ?? held.length) - (place.get(id(b)) ?? held.length)) : sortedRows;
	const keep = () => hold(shown.map(id));
	const resort = () => hold(null);
	if (rows.length === 0 && empty) {
		return <>{empty}</>;
	}
	const next = (c: Column<T>) => (by === "-" + c.name ? c.name : by === c.name ? "" : c.right ? "-" + c.name : c.name);
	return (
		<div class="table" role="group" aria-label={caption} tabIndex={0}>
			<table>
				<caption class="hidden">{caption}</caption>
				<thead>
					<tr>
						{columns.map((c) => (
							<th key={c.name} scope="col" class={classOf(c)} title={c.hint}
								aria-sort={c !== column ? undefined : down ? "descending" : "ascending"}>
								{c.sort ? (
									<button type="button" class="sort" onClick={() => set(next(c))}>
										{c.name}<span aria-hidden="true">{c !== column ? "" : down ? " ↓" : " ↑"}</span>
									</button>
								) : c.name}
							</th>
						))}
					</tr>
				</thead>
				<tbody onMouseEnter={keep} onMouseLeave={resort} onFocusIn={keep} onFocusOut={resort}>
					{shown.map((row) => (
						<tr key={id(row)}>
							{columns.map((c) => {
								const kind = classOf(c);
								return c.head ? <th key={c.name} scope="row" class={kind}>{c.cell(row)}</th> : <td key={c.name} class={kind}>{c.cell(row)}</td>;
							})}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

function classOf<T>(c: Column<T>): string {
	return [c.right && "right", c.wide && "wide", c.broad && "broad", c.room && "room"].filter(Boolean).join(" ");
}

function order(a: number | string, b: number | string): number {
	return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

/** Pager goes through pages. A cursor leads only forward, so the way back is remembered. */
export function Pager({ first, next, onFirst, onNext, what }: { first: boolean; next: boolean; onFirst(): void; onNext(): void; what: string }) {
	if (first && !next) {
		return null;
	}
	return (
		<nav class="pager" aria-label={`Pages of ${what}`}>
			<button type="button" disabled={first} onClick={onFirst}>First page</button>
			<button type="button" disabled={!next} onClick={onNext}>Next page</button>
		</nav>
	);
}

/** Search is a field whose value counts once typing has come to rest. */
export function Search({ label, value, onChange, placeholder, shortcut }: {
	label: string; value: string; onChange(v: string): void; placeholder?: string; shortcut?: boolean;
}) {
	const [typed, set] = useState(value);
	const input = useRef<HTMLInputElement>(null);
	const sent = useRef(value);
	useEffect(() => {
		if (value !== sent.current) {
			sent.current = value;
			set(value);
		}
	}, [value]);
	useEffect(() => {
		if (typed === sent.current) {
			return;
		}
		const timer = setTimeout(() => {
			sent.current = typed;
			onChange(typed);
		}, 250);
		return () => clearTimeout(timer);
	}, [typed]);
	useEffect(() => {
		if (!shortcut) {
			return;
		}
		const slash = (e: KeyboardEvent) => {
			const t = e.target as HTMLElement;
			if (e.key === "/" && !e.ctrlKey && !e.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(t.tagName) && !document.querySelector("dialog[open]")) {
				e.preventDefault();
				input.current?.focus();
			}
		};
		addEventListener("keydown", slash);
		return () => removeEventListener("keydown", slash);
	}, [shortcut]);
	return (
		<label class="search">
			<span class="hidden">{label}</span>
			<input ref={input} type="search" value={typed} placeholder={placeholder ?? label} spellcheck={false} autocomplete="off"
				onInput={(e) => set(e.currentTarget.value)} />
			{shortcut && <kbd aria-hidden="true">/</kbd>}
		</label>
	);
}

/** Choice is one of a few. */
export function Choice({ label, value, options, onChange }: { label: string; value: string; options: [string, string][]; onChange(v: string): void }) {
	return (
		<div class="choice" role="group" aria-label={label}>
			{options.map(([v, name]) => (
				<button type="button" key={v} aria-pressed={v === value} onClick={() => onChange(v)}>{name}</button>
			))}
		</div>
	);
}

export function Tabs({ tabs, current }: { tabs: [string, string, ComponentChildren?][]; current: string }) {
	return (
		<nav class="tabs" aria-label="Parts of this page">
			{tabs.map(([name, href, extra]) => (
				<a key={href} href={href} aria-current={name === current ? "page" : undefined}>{name}{extra}</a>
			))}
		</nav>
	);
}

export function Copy({ text, label }: { text: string; label: string }) {
	const app = useApp();
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			app.say("Copied.");
		} catch {
			app.say("The browser does not let the page copy: select the text.");
		}
	};
	return <button type="button" class="small" onClick={() => void copy()} aria-label={label}>Copy</button>;
}

/** Facts are names with their values. */
export function Facts({ facts }: { facts: [ComponentChildren, ComponentChildren][] }) {
	return (
		<dl class="facts">
			{facts.map(([name, value], i) => (
				<div key={i}><dt>{name}</dt><dd>{value}</dd></div>
			))}
		</dl>
	);
}

export function Modal({ title, onClose, children, wide }: Children & { title: string; onClose(): void; wide?: boolean }) {
	const dialog = useRef<HTMLDialogElement>(null);
	const id = useId();
	useEffect(() => {
		const d = dialog.current;
		const before = document.activeElement as HTMLElement | null;
		d?.showModal();
		return () => {
			d?.close();
			before?.focus?.();
		};
	}, []);
	const cancel = (e: Event) => {
		e.preventDefault();
		onClose();
	};
	return (
		<dialog ref={dialog} aria-labelledby={id} class={wide ? "wide" : ""} onCancel={cancel}
			onMouseDown={(e) => e.target === dialog.current && onClose()}>
			<div class="box">
				<h2 id={id}>{title}</h2>
				{children}
			</div>
		</dialog>
	);
}
