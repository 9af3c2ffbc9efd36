// The overview: what goes through the broker, and its queues by what is wrong with them.

import { useEffect, useRef, useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields, Refusal } from "../api";
import { refusalOf, useApp, useHistory, useLive, useTitle } from "../app";
import type { Action } from "../app";
import { Charts } from "../chart";
import { count, duration, micros, plural, rate, short } from "../format";
import { levels, rateOf, rates, recorded } from "../history";
import { refine, to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Card, Choice, Empty, Failure, Figure, Figures, Level, Loading, Num, Page, Pager, Search, Table } from "../ui";
import type { Column, Tone } from "../ui";
import { bytes, key, list, maybe, num, page, text } from "../value";
import { FirstSteps, useFirst } from "./first";
import { State } from "./keys";

/** oldMs is from when on a ready message has waited too long; it is that of the alert. */
const oldMs = 15 * 60_000;

/** Trouble is something that is wrong with a queue. */
export interface Trouble {
	word: string;
	label?: string; // instead of the word, where there is a number to it
	tone: Tone;
	why: string;
}

/** troubles says what is wrong with a queue. */
export function troubles(q: Fields): Trouble[] {
	const all: Trouble[] = [];
	const paused = [num(q.paused_in) && "takes no messages", num(q.paused_out) && "hands none out"].filter(Boolean).join(", ");
	if (paused !== "") {
		all.push({ word: "paused", tone: "quiet", why: `The queue is paused: it ${paused}.` });
	}
	if (num(q.scripts_open) > 0) {
		all.push({ word: "script fails", tone: "bad", why: "The breaker of a script is open: its safe decision is used." });
	}
	const dlq = num(q.dead_letter) === 1;
	if (dlq && num(q.ready) + num(q.dead) > 0) {
		all.push({ word: "dead", label: `${short(num(q.ready) + num(q.dead))} dead`, tone: "bad", why: "Dead messages wait to be redriven or removed." });
	}
	const state = text(q.state);
	if (!dlq && state === "no_consumer") {
		all.push({ word: "no consumer", tone: "alone", why: text(q.reason) });
	}
	if (!dlq && ["held", "throttled", "concurrency", "no_credit", "ordered"].includes(state)) {
		all.push({ word: state.replace("_", " "), tone: "wait", why: text(q.reason) });
	}
	if (!dlq && num(q.oldest_ready_ms) > oldMs) {
		all.push({ word: "waits long", tone: "wait", why: `A message is ready for ${duration(num(q.oldest_ready_ms))}.` });
	}
	if (num(q.keys_no_credit) > 0 && state !== "no_credit") {
		all.push({ word: "no credit", tone: "wait", why: `${plural(num(q.keys_no_credit), "key")} wait for a budget.` });
	}
	return all;
}

export function createQueue(after?: () => void, name?: string): Action {
	return {
		label: "New queue",
		need: { command: "FILA.QUEUE CREATE" },
		fields: [
			{ name: "name", label: "Name", required: true, value: name },
			{ name: "attempts", label: "Attempts before a message is dead", kind: "number", min: 1, placeholder: "10" },
			{ name: "visibility", label: "Visibility timeout, ms", kind: "number", min: 1, placeholder: "30000" },
			{ name: "dlq", label: "Dead-letter queue", placeholder: "made with the queue" },
			{ name: "ordered", label: "Ordered: one message of a fairness key at a time", kind: "check" },
			{ name: "signals", label: "Record signals", kind: "check" },
		],
		words: (v) => [
			"FILA.QUEUE", "CREATE", v.name ?? "",
			...(v.visibility ? ["VISIBILITY", v.visibility] : []), ...(v.attempts ? ["MAXATTEMPTS", v.attempts] : []),
			...(v.signals ? ["SIGNALS", "ON"] : []), ...(v.ordered ? ["ORDERED", "ON"] : []), ...(v.dlq ? ["DLQ", v.dlq] : []),
		],
		done: () => "The queue is made.",
		after,
	};
}

export function Overview({ route }: { route: Route }) {
	useTitle("Queues");
	const app = useApp();
	const match = route.query.get("match") ?? "";
	const show = route.query.get("show") ?? "all";
	const [cursor, setCursor] = useState<Bytes>("0");
	const first = useFirst();
	const why = app.may({ command: "FILA.FIGURES" }) || app.may({ command: "FILA.STATS" });
	const query = new URLSearchParams();
	if (match !== "") {
		query.set("match", patternOf(match));
	}
	if (cursor !== "0") {
		query.set("cursor", text(cursor));
	}
	const keep = useHistory("", ["FILA.HISTORY"]);
	const live = useLive(why === "" ? `v1/live?${query}` : null, (f) => {
		keep(num(f.at), f.stats as Fields);
		for (const q of list(f.queues) as Fields[]) {
			queueSamples(q, num(f.at));
		}
	});
	const figures = live.figures;
	const actions = <ActionButton action={createQueue()} primary />;
	if (why !== "") {
		return <Page title="Queues" actions={actions}><Empty title="You may not see the figures of the broker.">This {why}.</Empty></Page>;
	}
	if (!figures) {
		return <Page title="Queues" actions={actions}>{live.why ? <Failure error={live.why} /> : <Loading />}</Page>;
	}
	const stats = figures.stats as Fields;
	const queues = (list(figures.queues) as Fields[]);
	if (first.shown(stats)) {
		return <Page title="Queues" sub={<Connection state={live.state} />}><FirstSteps queues={queues} acked={first.acked(stats)} onEnd={first.end} /></Page>;
	}
	const wrong = queues.map((q) => ({ q, troubles: troubles(q) }));
	const shown = show === "wrong" ? wrong.filter((w) => w.troubles.length > 0) : wrong;
	const next = bytes(figures.next);
	const all = num(stats.queues);
	const some = queues.length < all;
	return (
		<Page title="Queues" actions={actions} sub={<Connection state={live.state} />}>
			<Totals stats={stats} />
			<Card title={plural(all, "queue")} actions={
				<>
					<Choice label="Which queues" value={show} options={[["all", "All"], ["wrong", `Needs attention ${wrong.filter((w) => w.troubles.length > 0).length}`]]}
						onChange={(v) => refine(route, { show: v === "all" ? "" : v })} />
					<Search label="Filter by name" shortcut value={match} onChange={(v) => {
						setCursor("0");
						refine(route, { match: v });
					}} />
				</>
			}>
				{show === "wrong" && some && <Everywhere key={match} match={match} total={all} />}
				<Table caption="Queues" columns={columns()} rows={shown} id={(w) => key(bytes(w.q.name))}
					sorted={route.query.get("sort") ?? "Queue"} onSort={(sort) => refine(route, { sort: sort === "Queue" ? "" : sort })}
					empty={all === 0
						? <Empty title="There is no queue yet.">A queue holds messages until a worker has done them. Make one here, or with <code>FILA.QUEUE CREATE</code>.</Empty>
						: show === "wrong" ? <Empty title={some ? "Nothing is wrong with the queues of this page." : "Nothing is wrong."} /> : <Empty title="No queue has such a name." />} />
				{some && <p class="caption">{plural(queues.length, "queue")} on this page; sorting and “needs attention” concern these.</p>}
				<Pager what="queues" first={cursor === "0"} next={text(next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(next)} />
			</Card>
		</Page>
	);
}

const walkStep = 500; // queues of a step
const foundMax = 500;

/** Everywhere looks through all queues for those with troubles, a page at a time. */
function Everywhere({ match, total }: { match: string; total: number }) {
	const [state, set] = useState<{ looked: number; found: { q: Fields; troubles: Trouble[] }[]; running: boolean; error?: Refusal }>();
	const cancel = useRef<AbortController | null>(null);
	useEffect(() => () => cancel.current?.abort(), []);
	const look = async () => {
		cancel.current?.abort();
		const signal = (cancel.current = new AbortController()).signal;
		let cursor: Bytes = "0";
		let now = { looked: 0, found: [] as { q: Fields; troubles: Trouble[] }[], running: true };
		set(now);
		do {
			try {
				const { next, items } = page(await run(["FILA.FIGURES", ...(match === "" ? [] : ["MATCH", patternOf(match)]), "CURSOR", cursor, "COUNT", String(walkStep)], signal));
				const wrong = items.map((q) => ({ q, troubles: troubles(q) })).filter((w) => w.troubles.length > 0);
				now = { ...now, looked: now.looked + walkStep, found: [...now.found, ...wrong].slice(0, foundMax) };
				cursor = next;
			} catch (e) {
				if (!signal.aborted) {
					set({ ...now, running: false, error: refusalOf(e) });
				}
				return;
			}
			if (signal.aborted) {
				return;
			}
			set(now);
		} while (text(cursor) !== "0" && now.found.length < foundMax);
		set({ ...now, looked: text(cursor) === "0" ? total : now.looked, running: false });
	};
	const stop = () => {
		cancel.current?.abort();
		set((s) => (s ? { ...s, running: false } : s));
	};
	return (
		<section class="everywhere" aria-label="All queues">
			<div class="progress">
				{state && <Level value={state.looked} max={total} label={`looked at ${count(state.looked)} of ${count(total)} queues`} />}
				<span role="status">{state ? `looked at ${count(Math.min(state.looked, total))} of ${plural(total, "queue")}, ${plural(state.found.length, "needs attention", "need attention")}` : `Below are the queues of this page. There are ${count(total)} in all.`}</span>
				{state?.running ? <button type="button" onClick={stop}>Stop</button> : <button type="button" onClick={() => void look()}>{state ? "Look again" : "Look through all queues"}</button>}
			</div>
			<Failure error={state?.error} />
			{state && state.found.length > 0 && <Table caption="Queues that need attention" columns={columns()} rows={state.found} id={(w) => key(bytes(w.q.name))} />}
			{state && <h3>On this page</h3>}
		</section>
	);
}

const perQueue = new Map<string, { at: number; delivered: number; enqueued: number; in: number | null; out: number | null }>();

/** queueSamples keeps the newest counters of each queue that is shown, for its rates. */
function queueSamples(q: Fields, at: number) {
	const id = key(bytes(q.name));
	const last = perQueue.get(id);
	const now = { at, delivered: num(q.delivered), enqueued: num(q.enqueued), in: null as number | null, out: null as number | null };
	if (last && at > last.at && at - last.at < 15_000 && now.enqueued >= last.enqueued && now.delivered >= last.delivered) {
		now.in = ((now.enqueued - last.enqueued) * 1000) / (at - last.at);
		now.out = ((now.delivered - last.delivered) * 1000) / (at - last.at);
	} else if (last && at === last.at) {
		return;
	}
	perQueue.delete(id);
	perQueue.set(id, now);
	if (perQueue.size > 500) {
		perQueue.delete(perQueue.keys().next().value ?? "");
	}
}

function columns(): Column<{ q: Fields; troubles: Trouble[] }>[] {
	const sample = (q: Fields) => perQueue.get(key(bytes(q.name)));
	const figure = (name: string, field: string, hint?: string): Column<{ q: Fields; troubles: Trouble[] }> => ({
		name, hint, right: true, sort: ({ q }) => num(q[field]), cell: ({ q }) => <Num n={num(q[field])} />,
	});
	return [
		{
			name: "Queue", head: true, wide: true, sort: ({ q }) => text(q.name),
			cell: ({ q }) => <a href={to(["queues", bytes(q.name)])}>{text(q.name)}</a>,
		},
		{
			name: "State", sort: ({ troubles }) => troubles.length,
			cell: ({ q, troubles }) => (
				<span class="badges">
					{troubles.map((t) => <Badge key={t.word} tone={t.tone} title={t.why}>{t.label ?? t.word}</Badge>)}
					{troubles.length === 0 && (text(q.state) === "empty" ? <span class="zero">idle</span> : <State state={text(q.state)} reason={text(q.reason)} />)}
				</span>
			),
		},
		figure("Ready", "ready"),
		figure("Leased", "leased"),
		figure("Delayed", "delayed"),
		{ name: "In/s", hint: "Enqueued in a second", right: true, sort: ({ q }) => sample(q)?.in ?? -1, cell: ({ q }) => <Rate n={sample(q)?.in ?? null} /> },
		{ name: "Out/s", hint: "Delivered in a second", right: true, sort: ({ q }) => sample(q)?.out ?? -1, cell: ({ q }) => <Rate n={sample(q)?.out ?? null} /> },
		{ name: "Oldest", hint: "How long the oldest ready message waits", right: true, sort: ({ q }) => num(q.oldest_ready_ms), cell: ({ q }) => (num(q.ready) ? duration(maybe(q.oldest_ready_ms)) : <span class="zero">–</span>) },
		{ name: "Wait p99", hint: "From being ready until the delivery, since the broker started", right: true, sort: ({ q }) => num(q.wait_p99_us), cell: ({ q }) => (num(q.delivered) ? micros(maybe(q.wait_p99_us)) : <span class="zero">–</span>) },
		figure("Keys", "keys", "Fairness keys with messages"),
		figure("Waiting", "waiters", "Consumers that wait for messages"),
	];
}

function Rate({ n }: { n: number | null }) {
	return <span class={n ? "" : "zero"}>{rate(n)}</span>;
}

export function Connection({ state }: { state: string }) {
	const words: Record<string, string> = { live: "Live", waiting: "Connecting…", hidden: "Stopped while hidden", refused: "Refused" };
	return <span class={`live ${state}`}><span class="dot" aria-hidden="true" />{words[state] ?? state}</span>;
}

function Totals({ stats }: { stats: Fields }) {
	const samples = recorded("");
	const times = samples.map((s) => s.at);
	const per = (...names: string[]) => rates(samples, ...names);
	const level = (name: string) => levels(samples, name);
	const now = (name: string) => rate(rateOf(samples, name));
	return (
		<>
			<Figures>
				<Figure name="Ready" value={short(num(stats.ready))} hint={count(num(stats.ready))} />
				<Figure name="Leased" value={short(num(stats.leased))} />
				<Figure name="Delayed" value={short(num(stats.delayed))} />
				<Figure name="Dead" value={short(num(stats.dead))} tone={num(stats.dead) > 0 ? "bad" : undefined} />
				<Figure name="Enqueued" value={now("enqueued")} unit="/s" />
				<Figure name="Delivered" value={now("delivered")} unit="/s" />
				<Figure name="Acked" value={now("acked")} unit="/s" />
				<Figure name="Waiting" value={short(num(stats.waiters))} hint="Consumers that wait for messages" />
			</Figures>
			<Charts times={times} charts={[
				{ title: "Messages per second", unit: "per second", series: [
					{ name: "enqueued", color: "--c1", values: per("enqueued") },
					{ name: "acked", color: "--c2", values: per("acked") },
					{ name: "failed", color: "--c3", values: per("nacked", "expired") },
				] },
				{ title: "Backlog", unit: "messages", series: [
					{ name: "ready", color: "--c1", values: level("ready") },
					{ name: "leased", color: "--c2", values: level("leased") },
					{ name: "dead", color: "--c3", values: level("dead") },
				] },
			]} />
		</>
	);
}

/** patternOf makes a pattern of what was typed: a part of a name, or a pattern of Redis. */
export function patternOf(typed: string): string {
	return /[*?[\]]/.test(typed) ? typed : `*${typed.replaceAll("\\", "\\\\")}*`;
}

