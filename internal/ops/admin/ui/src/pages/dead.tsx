// Dead letters: grouped by what has caused them, redriven at a rate, with progress and a stop.

import { useEffect, useRef, useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields, Refusal, Value } from "../api";
import { refusalOf, useApp, useReply } from "../app";
import type { Action } from "../app";
import { ago, count, duration, exactTime, plural } from "../format";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Card, Empty, Failure, Level, Loading, Num, Table, Time } from "../ui";
import { bytes, key, maybe, num, page, pairs, text } from "../value";
import { Batch } from "./batch";
import { Found, messageColumns, PickAll, useHunt, usePicked } from "./messages";

interface Group {
	cause: Bytes;
	error: Bytes; // a pattern
	count: number;
	first: number;
	last: number;
	id: Bytes;
	queues: [Bytes, number][];
}

const pageSize = 10_000;
const pagesAtOnce = 20;
const regroup = 1500; // ms between two looks at a queue that changes

/** countsOf reads names with numbers: a map, or names and numbers in turns. */
function countsOf(v: Value | undefined): [Bytes, number][] {
	if (Array.isArray(v) && v.length > 0 && !Array.isArray(v[0])) {
		const all: [Bytes, number][] = [];
		for (let i = 0; i + 1 < v.length; i += 2) {
			all.push([bytes(v[i]), num(v[i + 1])]);
		}
		return all;
	}
	return pairs(v).map(([name, n]) => [name, num(n)]);
}

function merge(groups: Map<string, Group>, items: Fields[]): Map<string, Group> {
	const all = new Map(groups);
	for (const g of items) {
		const cause = bytes(g.cause ?? g.error ?? "");
		const id = key(cause);
		const old = all.get(id);
		const queues = new Map((old?.queues ?? []).map(([n, c]) => [key(n), [n, c] as [Bytes, number]]));
		for (const [n, c] of countsOf(g.queues)) {
			queues.set(key(n), [n, (queues.get(key(n))?.[1] ?? 0) + c]);
		}
		const first = num(g.first_at);
		const last = num(g.last_at);
		all.set(id, {
			cause, error: bytes(g.error ?? ""), count: (old?.count ?? 0) + num(g.count), first: old ? Math.min(old.first, first) : first, last: Math.max(old?.last ?? 0, last),
			id: last >= (old?.last ?? 0) ? bytes(g.id) : old!.id, queues: [...queues.values()],
		});
	}
	return all;
}

interface Grouping {
	groups: Map<string, Group>;
	looked: number;
	cursor: Bytes;
	running: boolean;
	done: boolean;
	error?: Refusal;
}

/** useGroups goes through a queue and groups its errors. */
function useGroups(queue: Bytes, may: boolean) {
	const [g, set] = useState<Grouping>();
	const cancel = useRef<AbortController | null>(null);
	const go = async (from?: Grouping) => {
		cancel.current?.abort();
		const signal = (cancel.current = new AbortController()).signal;
		let now: Grouping = from ? { ...from, running: true, error: undefined } : { groups: new Map(), looked: 0, cursor: "0", running: true, done: false };
		if (from) {
			set(now);
		} else {
			set((old) => old ?? now);
		}
		for (let i = 0; i < pagesAtOnce && !now.done; i++) {
			try {
				const { next, items } = page(await run(["FILA.BROWSE", queue, "CURSOR", now.cursor, "COUNT", String(pageSize), "GROUP", "ERROR"], signal));
				now = { ...now, groups: merge(now.groups, items), looked: now.looked + pageSize, cursor: next, done: text(next) === "0" };
			} catch (e) {
				if (!signal.aborted) {
					set({ ...now, running: false, error: refusalOf(e) });
				}
				return;
			}
			if (signal.aborted) {
				return;
			}
			if (from || now.done) {
				set(now);
			}
		}
		set({ ...now, running: false });
	};
	useEffect(() => {
		if (may) {
			void go();
		}
		return () => cancel.current?.abort();
	}, [may]);
	return { g, go, stop: () => {
		cancel.current?.abort();
		set((old) => (old ? { ...old, running: false } : old));
	} };
}

/** redriveWords is the command that moves messages back; what is not given is not limited. */
export function redriveWords(dlq: Bytes, o: { causes?: Bytes[]; error?: Bytes | null; from?: Bytes | null; target?: Bytes | null; rate?: string }): Bytes[] {
	return [
		"FILA.REDRIVE", dlq,
		...(o.target !== undefined && o.target !== null && text(o.target) !== "" ? ["TO", o.target] : []),
		...(o.rate && o.rate !== "0" ? ["RATE", o.rate] : []),
		...(o.causes ?? []).flatMap((c) => ["CAUSE", c]),
		...(o.error !== undefined && o.error !== null ? ["ERROR", o.error] : []),
		...(o.from !== undefined && o.from !== null && text(o.from) !== "" ? ["FROM", o.from] : []),
	];
}

/** named is a cause as people read it. */
const named = (g: Group) => text(g.cause) || "(without a text)";

/** redrive moves the messages of some groups; without any, all. */
function redrive(dlq: Bytes, n: number, groups: Group[], after: () => void, label = groups.length > 0 ? "Redrive" : "Redrive all"): Action {
	const died = new Map<string, [Bytes, number]>();
	for (const [q, c] of groups.flatMap((g) => g.queues)) {
		died.set(key(q), [q, (died.get(key(q))?.[1] ?? 0) + c]);
	}
	return {
		label, title: groups.length === 0 ? `Redrive ${text(dlq)}` : groups.length === 1 ? `Redrive ${named(groups[0]!)}` : `Redrive ${groups.length} groups`,
		need: { command: "FILA.REDRIVE", queue: dlq, access: "consume" }, submit: "Redrive",
		text: `${plural(n, "message")} go back to the queues that they came from, and their attempts start again.`,
		fields: [
			{ name: "rate", label: "Messages per second", kind: "number", min: 1, value: "50", hint: "Empty: as fast as it goes." },
			{
				name: "from", label: "Only those that died in", kind: "select",
				options: [["", "any queue"], ...[...died.values()].filter(([q]) => typeof q === "string").map(([q, c]) => [text(q), `${text(q)} (${count(c)})`] as [string, string])],
			},
			{ name: "target", label: "To another queue", placeholder: "where each came from" },
		],
		words: (v) => redriveWords(dlq, { rate: v.rate, from: v.from, target: v.target, causes: groups.map((g) => g.cause) }),
		done: (moved) => `Redrive: ${plural(num(moved), "message")} moved so far.`, after,
	};
}

export function Dead({ dlq, route, total }: { dlq: Bytes; route: Route; total: number }) {
	const app = useApp();
	const why = app.may({ command: "FILA.BROWSE", queue: dlq, access: "consume" });
	const { g, go, stop } = useGroups(dlq, why === "");
	const stats = useReply(app.may({ command: "FILA.STATS", queue: dlq, access: "either" }) === "" ? ["FILA.STATS", dlq] : null, 1000);
	const s = (stats.data ?? {}) as Fields;
	// The groups are counted again when messages have come or gone.
	const held = stats.data ? num(s.ready) + num(s.delayed) + num(s.leased) + num(s.dead) : total;
	const seen = useRef({ held, at: 0 });
	useEffect(() => {
		if (why === "" && g && !g.running && seen.current.held !== held) {
			const timer = setTimeout(() => {
				seen.current = { held, at: Date.now() };
				void go();
			}, Math.max(200, seen.current.at + regroup - Date.now()));
			return () => clearTimeout(timer);
		}
		return;
	}, [held, g?.running]);
	if (why !== "") {
		return <Empty title="You may not look at messages here.">This {why}.</Empty>;
	}
	const groups = [...(g?.groups.values() ?? [])].sort((a, b) => b.count - a.count);
	const cause = route.query.get("cause");
	const open = cause === null ? undefined : groups.find((x) => text(x.cause) === cause);
	const [chosen, choose] = useState<Set<string>>(new Set());
	const picked = groups.filter((x) => chosen.has(key(x.cause)));
	const pick = (x: Group, on: boolean) => choose((old) => {
		const all = new Set(old);
		if (on) {
			all.add(key(x.cause));
		} else {
			all.delete(key(x.cause));
		}
		return all;
	});
	const most = groups[0]?.count ?? 1;
	return (
		<>
			<Progress dlq={dlq} s={s} total={held} left={leftOf(s, g, held)} />
			<Card title={groups.length === 0 ? "Errors" : plural(groups.length, "group of errors", "groups of errors")} actions={<>
				{picked.length > 0 && <ActionButton action={redrive(dlq, picked.reduce((sum, x) => sum + x.count, 0), picked, stats.reload, `Redrive ${plural(picked.length, "group")}`)} />}
				{(held > 0 || groups.length > 0) && <ActionButton action={redrive(dlq, held, [], stats.reload)} />}
			</>}>
				<Failure error={g?.error} />
				{!g && <Loading />}
				{g && !g.done && <Found hunt={{ ...g, rows: [] }} total={held} onStop={stop} onMore={() => void go(g)} />}
				{g && (
					<Table caption="Groups of errors" rows={groups} id={(x) => key(x.cause)} empty={!g.running && <Empty title="There are no dead letters." />} columns={[
						{ name: "Select", cell: (x) => <input type="checkbox" aria-label={`Select ${named(x)}`} checked={chosen.has(key(x.cause))} onChange={(e) => pick(x, e.currentTarget.checked)} /> },
						{ name: "Error", head: true, wide: true, sort: (x) => text(x.cause), cell: (x) => (
							<a href={to(["queues", dlq, "dead"], { cause: text(x.cause) })} aria-current={x === open ? "true" : undefined}>{named(x)}</a>
						) },
						{ name: "Messages", right: true, sort: (x) => x.count, cell: (x) => <Num n={x.count} /> },
						{ name: "Part", cell: (x) => <Level value={x.count} max={most} tone="bad" label={`${count(x.count)} of ${count(held)}`} /> },
						{ name: "Died in", wide: true, cell: (x) => x.queues.map(([q, n]) => `${text(q)} (${count(n)})`).join(", ") },
						{ name: "First", sort: (x) => x.first, cell: (x) => <Time at={x.first} /> },
						{ name: "Last", sort: (x) => x.last, cell: (x) => <span title={text(x.id)}>{ago(x.last)}</span> },
						{ name: "Actions", cell: (x) => <ActionButton small action={redrive(dlq, x.count, [x], stats.reload)} /> },
					]} />
				)}
			</Card>
			{open && <OneGroup key={key(open.cause)} dlq={dlq} group={open} total={held} />}
		</>
	);
}

const causesOf = (s: Fields): Bytes[] => (Array.isArray(s.redrive_causes) ? s.redrive_causes.map(bytes) : []);

/** leftOf is how many messages the redrive has before it, as far as that is known. */
function leftOf(s: Fields, g: Grouping | undefined, held: number): number {
	const causes = causesOf(s);
	return causes.length === 0 ? held : causes.reduce((sum, c) => sum + (g?.groups.get(key(c))?.count ?? 0), 0);
}

/** timeLeft says how long a redrive still takes, by its rate, or as it has gone on so far. */
function timeLeft(s: Fields, left: number): string {
	const began = num(s.redrive_started_at);
	const rate = num(s.redrive_rate) || (num(s.redrive_moved) * 1000) / Math.max(1, Date.now() - began);
	return rate > 0 && left > 0 ? `, ${duration(Math.ceil(left / rate) * 1000)} left` : "";
}

/** Progress shows the redrive that runs, or was the last. */
function Progress({ dlq, s, total, left }: { dlq: Bytes; s: Fields; total: number; left: number }) {
	const running = num(s.redrive_running) === 1;
	if (!s.redrive_started_at) {
		return null;
	}
	const moved = num(s.redrive_moved);
	const need = { command: "FILA.REDRIVE", queue: dlq, access: "consume" as const };
	const error = s.redrive_error === null || s.redrive_error === undefined ? null : bytes(s.redrive_error);
	const from = s.redrive_from === null || s.redrive_from === undefined ? null : bytes(s.redrive_from);
	const target = s.redrive_to === null || s.redrive_to === undefined ? null : bytes(s.redrive_to);
	const causes = causesOf(s);
	const search = num(s.redrive_search) === 1; // it has conditions that are not known here
	const what = [search && "those of a search", causes.length > 0 && causes.map(text).join(", "), error !== null && `error ${text(error)}`, from !== null && `from ${text(from)}`, target !== null && `to ${text(target)}`].filter(Boolean).join(", ");
	return (
		<Card title={running ? "Redriving" : "Last redrive"} note={what || "all messages"} actions={running
			? <ActionButton action={{ label: "Stop", title: "Stop the redrive", need, text: "What was moved stays moved. The same redrive can be resumed.", words: () => ["FILA.REDRIVE", dlq, "STOP"], done: () => "The redrive is stopped." }} />
			: total > 0 && !search && <ActionButton action={{
				label: "Resume", title: "Resume the redrive", need, text: "Messages that were moved are no longer here, so it goes on with the others.",
				words: () => redriveWords(dlq, { causes, error, from, target, rate: text(s.redrive_rate) }), done: (n) => `Redrive: ${plural(num(n), "message")} moved so far.`,
			}} />}>
			<div class="progress">
				{!search && <Level value={moved} max={Math.max(1, moved + left)} label={`${count(moved)} of ${count(moved + left)} moved`} />}
				<span>
					{running && !search ? `${count(moved)} of ${plural(moved + left, "message")} moved${timeLeft(s, left)}` : `${plural(moved, "message")} moved`}, {count(num(s.redrive_skipped))} could not be{num(s.redrive_taken) > 0 && <> (the unique id of {count(num(s.redrive_taken))} is taken)</>}, {count(num(s.redrive_looked))} looked at
					{num(s.redrive_rate) > 0 && <>, at most {text(s.redrive_rate)} a second</>}, started <Time at={maybe(s.redrive_started_at)} />
				</span>
			</div>
		</Card>
	);
}

/** OneGroup lists the messages of a group, and how they are spread over time. */
function OneGroup({ dlq, group, total }: { dlq: Bytes; group: Group; total: number }) {
	const { hunt, go, stop } = useHunt();
	const picked = usePicked();
	const words: Bytes[] = ["FILA.BROWSE", dlq, "CAUSE", group.cause];
	useEffect(() => void go(words, true), []);
	return (
		<Card title={named(group)} note={plural(group.count, "message")}>
			{hunt && <Spread times={hunt.rows.map((m) => num(m.died_at) || num(m.last_failed_at))} first={group.first} last={group.last} all={hunt.rows.length >= group.count} />}
			{hunt && <Found hunt={hunt} total={total} onStop={stop} onMore={() => void go(words, true, hunt)} />}
			<Failure error={hunt?.error} />
			{hunt && <Batch queue={dlq} search={words} some={hunt.rows.length > 0} picked={picked.ids} dlq after={() => {
				picked.all([]);
				void go(words, true);
			}}><PickAll picked={picked} rows={hunt.rows} /></Batch>}
			{hunt && <Table caption="Messages of the group" columns={[picked.column, ...messageColumns(dlq, hunt.rows).filter((c) => c.name !== "Status")]} rows={hunt.rows} id={(m) => text(m.id)} />}
		</Card>
	);
}

const bins = 48;

/** Spread draws when messages died. */
function Spread({ times, first, last, all }: { times: number[]; first: number; last: number; all: boolean }) {
	if (last <= first || times.length < 2) {
		return null;
	}
	const counts = new Array<number>(bins).fill(0);
	for (const t of times) {
		const at = Math.min(bins - 1, Math.max(0, Math.floor(((t - first) / (last - first)) * bins)));
		counts[at] = (counts[at] ?? 0) + 1;
	}
	const most = Math.max(...counts, 1);
	return (
		<figure class="spread">
			<svg viewBox={`0 0 ${bins * 10} 40`} preserveAspectRatio="none" role="img" aria-label={`${times.length} messages between ${exactTime(first)} and ${exactTime(last)}, at most ${most} in a part of ${bins}`}>
				{counts.map((n, i) => <rect key={i} x={i * 10} width="8" y={40 - (n / most) * 40} height={(n / most) * 40} />)}
			</svg>
			<figcaption><Time at={first} /><span>{all ? "when they died" : `when the first ${count(times.length)} of them died`}</span><Time at={last} /></figcaption>
		</figure>
	);
}

