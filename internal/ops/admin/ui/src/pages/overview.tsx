// The overview: what goes through the broker, and its queues by what is wrong with them.

import { useRef, useState } from "preact/hooks";
import type { Bytes, Fields } from "../api";
import { useApp, useHistory, useLive, useTitle } from "../app";
import type { Action } from "../app";
import { Charts } from "../chart";
import { count, duration, micros, plural, rate, short } from "../format";
import { levels, rateOf, rates, recorded } from "../history";
import { refine, to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Card, Choice, Empty, Failure, Figure, Figures, Loading, Num, Page, Pager, Search, Table } from "../ui";
import type { Column } from "../ui";
import { bytes, key, list, maybe, num, text } from "../value";
import { FirstSteps, useFirst } from "./first";
import { State } from "./keys";
import { Attention, deadPage, labelOf, troubles } from "./troubles";

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

/** sortsOf has the columns by which the broker sorts all queues. */
const sortsOf: Record<string, string> = {
	Queue: "name", State: "trouble", Ready: "ready", Leased: "leased", Delayed: "delayed", Dead: "dead", "In/s": "in", "Out/s": "out", Oldest: "age", "Wait p99": "wait", Keys: "keys", Waiting: "waiters",
};

/** listQuery are the options of FILA.FIGURES for what the page shows. */
function listQuery(route: Route, cursor: Bytes): URLSearchParams {
	const query = new URLSearchParams();
	const match = route.query.get("match") ?? "";
	const show = route.query.get("show") ?? "";
	const sort = route.query.get("sort") ?? "Queue";
	const by = sortsOf[sort.replace(/^-/, "")] ?? "name";
	query.set("by", by);
	if ((by === "name") === sort.startsWith("-")) { // names go up, and numbers down
		query.set("rev", "");
	}
	if (match !== "") {
		query.set("match", patternOf(match));
	}
	if (show !== "") {
		query.set("trouble", show);
	}
	if (cursor !== "0") {
		query.set("cursor", text(cursor));
	}
	return query;
}

export function Overview({ route }: { route: Route }) {
	useTitle("Queues");
	const app = useApp();
	const match = route.query.get("match") ?? "";
	const show = route.query.get("show") ?? "";
	const [cursor, setCursor] = useState<Bytes>("0");
	const first = useFirst();
	const why = app.may({ command: "FILA.FIGURES" }) || app.may({ command: "FILA.STATS" });
	const keep = useHistory("", ["FILA.HISTORY"]);
	const live = useLive(why === "" ? `v1/live?${listQuery(route, cursor)}` : null, (f) => keep(num(f.at), f.stats as Fields));
	const last = useRef<Fields | null>(null);
	last.current = live.figures ?? last.current; // what was shown stays while another page comes
	const figures = last.current;
	const actions = <ActionButton action={createQueue()} primary />;
	if (why !== "") {
		return <Page title="Queues" actions={actions}><Empty title="You may not see the figures of the broker.">This {why}.</Empty></Page>;
	}
	if (!figures) {
		return <Page title="Queues" actions={actions}>{live.why ? <Failure error={live.why} /> : <Loading />}</Page>;
	}
	const stats = figures.stats as Fields;
	const queues = list(figures.queues) as Fields[];
	const groups = list(figures.groups) as Fields[];
	if (first.shown(stats)) {
		return <Page title="Queues" sub={<Connection state={live.state} />}><FirstSteps queues={queues} acked={first.acked(stats)} onEnd={first.end} /></Page>;
	}
	const next = bytes(figures.next);
	const all = num(stats.queues);
	const whole = cursor === "0" && text(next) === "0" && match === ""; // else dead-letter queues that have no row of their own are counted
	const some = (word: string) => num(groups.find((g) => text(g.trouble) === word)?.queues);
	const choose = (change: Record<string, string>) => {
		setCursor("0");
		refine(route, change);
	};
	const choices: [string, string][] = [["", "All"], ["any", `Needs attention ${count(some("any"))}`]];
	if (show !== "" && show !== "any") {
		choices.push([show, `${labelOf(show)} ${count(some(show))}`]);
	}
	return (
		<Page title="Queues" actions={actions} sub={<Connection state={live.state} />}>
			{show === "" && <Attention groups={groups} />}
			<Totals stats={stats} />
			<Card title={show === "" ? plural(whole ? queues.length : all, "queue") : plural(some(show), show === "any" ? "queue needs attention" : `queue: ${labelOf(show)}`, show === "any" ? "queues need attention" : `queues: ${labelOf(show)}`)} note={show === "" && !whole ? "with those of dead letters" : undefined} actions={
				<>
					<Choice label="Which queues" value={show} options={choices} onChange={(v) => choose({ show: v })} />
					<Search label="Filter by name" shortcut value={match} onChange={(v) => choose({ match: v })} />
				</>
			}>
				{live.why && <Failure error={live.why} />}
				<Table caption="Queues" columns={columns()} rows={queues} id={(q) => key(bytes(q.name))} ordered
					sorted={route.query.get("sort") ?? "Queue"} onSort={(sort) => choose({ sort: sort === "Queue" ? "" : sort })}
					empty={all === 0
						? <Empty title="There is no queue yet.">A queue holds messages until a worker has done them. Make one here, or with <code>FILA.QUEUE CREATE</code>.</Empty>
						: match !== "" ? <Empty title="No queue has such a name." /> : <Empty title="Nothing is wrong." />} />
				<p class="caption">A dead-letter queue is shown with its queue, as “Dead”.</p>
				<Pager what="queues" first={cursor === "0"} next={text(next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(next)} />
			</Card>
		</Page>
	);
}

function columns(): Column<Fields>[] {
	const sort = () => 0; // the broker sorts
	const figure = (name: string, field: string, hint?: string): Column<Fields> => ({ name, hint, right: true, sort, cell: (q) => <Num n={num(q[field])} /> });
	return [
		{ name: "Queue", head: true, wide: true, sort, cell: (q) => <a href={to(["queues", bytes(q.name)])}>{text(q.name)}</a> },
		{
			name: "State", hint: "What is most urgent first", right: false, sort,
			cell: (q) => {
				const wrong = troubles(q);
				return (
					<span class="badges">
						{wrong.map((t) => <Badge key={t.word} tone={t.tone} title={t.why}>{t.label}</Badge>)}
						{wrong.length === 0 && (text(q.state) === "empty" ? <span class="zero">idle</span> : <State state={text(q.state)} reason={text(q.reason)} />)}
					</span>
				);
			},
		},
		figure("Ready", "ready"),
		figure("Leased", "leased"),
		figure("Delayed", "delayed"),
		{ name: "Dead", hint: "Messages of its dead-letter queue", right: true, sort, cell: (q) => (num(q.dead_letters) > 0 ? <a href={deadPage(q)}><Num n={num(q.dead_letters)} /></a> : <span class="zero">0</span>) },
		{ name: "In/s", hint: "Enqueued in a second, lately", right: true, sort, cell: (q) => <Rate n={num(q.in_rate)} /> },
		{ name: "Out/s", hint: "Delivered in a second, lately", right: true, sort, cell: (q) => <Rate n={num(q.out_rate)} /> },
		{ name: "Oldest", hint: "How long the oldest ready message waits", right: true, sort, cell: (q) => (num(q.ready) ? duration(maybe(q.oldest_ready_ms)) : <span class="zero">–</span>) },
		{ name: "Wait p99", hint: "From being ready until the delivery, since the broker started", right: true, sort, cell: (q) => (num(q.delivered) ? micros(maybe(q.wait_p99_us)) : <span class="zero">–</span>) },
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

