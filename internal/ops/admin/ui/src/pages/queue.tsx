// A queue: its figures, and its parts.

import type { ComponentChildren } from "preact";
import type { Bytes, Fields } from "../api";
import { useApp, useHistory, useLive, useTitle } from "../app";
import type { Action, Field, Values } from "../app";
import { Charts } from "../chart";
import { count, duration, micros, plural, rate, short } from "../format";
import { levels, rateOf, rates, recorded } from "../history";
import { pastRates, Ranges, rangeOf, ranges, usePast } from "./past";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Empty, Failure, Figure, Figures, Loading, Page, Tabs } from "../ui";
import { bytes, key, list, maybe, num, percent, text } from "../value";
import { Consumers } from "./consumers";
import { Dead } from "./dead";
import { KeyPage, Keys } from "./keys";
import { Message } from "./message";
import { Messages } from "./messages";
import { Connection } from "./overview";
import { Scripts } from "./scripts";
import { Settings } from "./settings";
import { deadPage, troubles, Whys } from "./troubles";
import { QueueTopics } from "./topics";

export function queueActions(queue: Bytes, q: Fields): Action[] {
	const need = (command: string) => ({ command, queue, access: "both" as const });
	const name = text(queue);
	const messages = num(q.ready) + num(q.delayed) + num(q.leased) + num(q.dead);
	const side = { name: "side", label: "What", kind: "select" as const, options: [["OUT", "Deliveries: hand out no messages"], ["IN", "Enqueues: take no messages"], ["", "Both"]] as [string, string][] };
	const paused = num(q.paused_in) || num(q.paused_out);
	const all: Action[] = [enqueue(queue)];
	if (!(num(q.paused_in) && num(q.paused_out))) {
		all.push({
			label: "Pause", title: `Pause ${name}`, need: need("FILA.QUEUE PAUSE"), text: "What is leased stays leased, and consumers that wait go on waiting.", fields: [side],
			words: (v) => ["FILA.QUEUE", "PAUSE", queue, ...(v.side ? [v.side] : [])], done: () => `${name} is paused.`,
		});
	}
	if (paused) {
		all.push({
			label: "Resume", title: `Resume ${name}`, need: need("FILA.QUEUE RESUME"), text: "Consumers that wait are served at once.",
			fields: [{ ...side, value: "", options: [["", "Both"], ["OUT", "Deliveries"], ["IN", "Enqueues"]] }],
			words: (v) => ["FILA.QUEUE", "RESUME", queue, ...(v.side ? [v.side] : [])], done: () => `${name} goes on.`,
		});
	}
	all.push({
		label: "Purge", title: `Purge ${name}`, need: need("FILA.PURGE"),
		danger: { what: `This removes ${plural(messages, "message")} of ${name}. Receipts of leased ones are lost.`, name },
		words: () => ["FILA.PURGE", queue], done: (n) => `${plural(num(n), "message")} removed.`,
	}, {
		label: "Delete", title: `Delete ${name}`, need: need("FILA.QUEUE DELETE"),
		danger: { what: `This deletes the queue ${name} with ${plural(messages, "message")}, its scripts and its settings.`, name },
		words: () => ["FILA.QUEUE", "DELETE", queue, ...(messages > 0 ? ["FORCE"] : [])], done: () => `${name} is deleted.`, after: () => (location.hash = "#/"),
	});
	return all;
}

/** enqueue is the action that makes a message. */
export function enqueue(queue: Bytes, start: Record<string, string> = {}, label = "Enqueue"): Action {
	return {
		label, title: `${label} in ${text(queue)}`, need: { command: "FILA.ENQUEUE", queue, access: "produce" },
		fields: messageFields(start), words: (v) => ["FILA.ENQUEUE", queue, ...messageWords(v)],
		done: (id) => `Enqueued as ${text(id)}.`,
	};
}

/** messageFields are the inputs of a new message. */
export function messageFields(start: Record<string, string> = {}): Field[] {
	return [
		{ name: "payload", label: "Payload", kind: "area", value: start.payload },
		{ name: "key", label: "Fairness key", value: start.key, placeholder: "default" },
		{ name: "headers", label: "Headers", kind: "area", value: start.headers, placeholder: "name: value", hint: "One on a line." },
		{ name: "priority", label: "Priority", kind: "number", min: 0, value: start.priority, placeholder: "4" },
		{ name: "throttle", label: "Throttles", value: start.throttle, hint: "Separated by spaces." },
		{ name: "delay", label: "Delay, ms", kind: "number", min: 0 },
	];
}

/** messageWords are the payload and the options that messageFields have asked for. */
export function messageWords(v: Values): string[] {
	return [
		v.payload ?? "",
		...(v.key ? ["KEY", v.key] : []),
		...headerWords(v.headers ?? ""),
		...(v.throttle ?? "").split(/\s+/).filter(Boolean).flatMap((t) => ["THROTTLE", t]),
		...(v.priority ? ["PRIORITY", v.priority] : []), ...(v.delay ? ["DELAY", v.delay] : []),
	];
}

/** headerWords are the options for headers, one on a line. */
export function headerWords(lines: string): string[] {
	return lines.split("\n").filter((l) => l.includes(":")).flatMap((l) => {
		const at = l.indexOf(":");
		return ["HEADER", l.slice(0, at).trim(), l.slice(at + 1).trim()];
	});
}

/** Queue shows a queue. A dead-letter queue opens on its dead letters. */
export function Queue({ queue, route, part: asked }: { queue: Bytes; route: Route; part: string }) {
	const name = text(queue);
	useTitle(name);
	const app = useApp();
	const by = route.query.get("by") ?? "depth";
	const need = { command: "FILA.FIGURES", queue, access: "either" as const };
	const why = app.may(need) || app.may({ ...need, command: "FILA.KEYS" });
	const source = "q" + key(queue);
	const path = why === "" ? `v1/live?queue=${percent(queue)}&by=${encodeURIComponent(by)}` : null;
	const keep = useHistory(source, ["FILA.HISTORY", queue]);
	const live = useLive(path, (f) => {
		if (f.queue) {
			keep(num(f.at), f.queue as Fields);
		}
	});
	const crumbs: [string, string][] = [["Queues", "#/queues"]];
	if (why !== "") {
		return <Page title={name} crumbs={crumbs}><Empty title="You may not see this queue.">It {why}.</Empty></Page>;
	}
	const figures = live.figures;
	const q = figures?.queue as Fields | null | undefined;
	if (!q) {
		return <Page title={name} crumbs={crumbs}>{live.why ? <Failure error={live.why} /> : <Loading />}</Page>;
	}
	const dlq = num(q.dead_letter) === 1;
	const part = asked === "" ? (dlq ? "dead" : "keys") : asked;
	const wrong = troubles(q);
	const held = num(q.ready) + num(q.delayed) + num(q.leased) + num(q.dead);
	const inPart = route.names[3];
	const other = q.dlq !== null && q.dlq !== undefined ? bytes(q.dlq) : undefined;
	const tabs: [string, string, ComponentChildren?][] = [
		...(dlq ? [["Dead letters", to(["queues", queue])] as [string, string]] : []),
		["Keys", to(["queues", queue, ...(dlq ? ["keys"] : [])])],
		["Messages", to(["queues", queue, "messages"])],
		["Consumers", to(["queues", queue, "consumers"])],
		...(other !== undefined ? [["Dead letters", to(["queues", other])] as [string, string]] : []),
		["Topics", to(["queues", queue, "topics"])],
		["Scripts", to(["queues", queue, "scripts"])],
		["Settings", to(["queues", queue, "settings"])],
	];
	return (
		<Page title={name} crumbs={crumbs} sub={
			<>
				<Connection state={live.state} />
				{dlq && <Badge tone="quiet">dead-letter queue</Badge>}
				{num(q.ordered) === 1 && <Badge tone="quiet" title="Of each fairness key, one message is out at a time.">ordered</Badge>}
				{wrong.filter((t) => t.word !== "dead").map((t) => <Badge key={t.word} tone={t.tone} title={t.why}>{t.label}</Badge>)}
				{q.dlq !== null && !dlq && <>Dead letters go to <a href={to(["queues", bytes(q.dlq)])}>{text(q.dlq)}</a></>}
				{q.dlq_of !== null && dlq && <>Dead letters of <a href={to(["queues", bytes(q.dlq_of)])}>{text(q.dlq_of)}</a></>}
			</>
		} actions={queueActions(queue, q).map((a) => <ActionButton key={a.label} action={a} />)}>
			<QueueFigures q={q} dlq={dlq} />
			{(part === "keys" || part === "dead") && !(part === "keys" && inPart !== undefined) && <QueueCharts source={source} dlq={dlq} queue={queue} route={route} />}
			{inPart === undefined && <Whys wrong={wrong} />}
			<Tabs current={titleOf(part)} tabs={tabs} />
			{part === "messages" ? (inPart !== undefined ? <Message key={text(inPart)} queue={queue} id={inPart} /> : <Messages queue={queue} route={route} total={held} dlq={dlq} />)
				: part === "dead" ? <Dead dlq={dlq || other === undefined ? queue : other} route={route} total={dlq ? held : num(q.dead_letters)} />
				: part === "consumers" ? <Consumers queue={queue} q={q} />
				: part === "topics" ? <QueueTopics queue={queue} />
				: part === "scripts" ? <Scripts queue={queue} route={route} />
				: part === "settings" ? <Settings queue={queue} />
				: part === "keys" && inPart !== undefined ? <KeyPage key={text(inPart)} queue={queue} fairKey={inPart} route={route} />
				: <Keys queue={queue} live={list(figures?.keys) as Fields[]} by={by} route={route} total={num(q.keys)} />}
		</Page>
	);
}

function titleOf(part: string): string {
	return { "": "Keys", keys: "Keys", messages: "Messages", consumers: "Consumers", dead: "Dead letters", topics: "Topics", scripts: "Scripts", settings: "Settings" }[part] ?? "";
}

function QueueFigures({ q, dlq }: { q: Fields; dlq: boolean }) {
	const samples = recorded("q" + key(bytes(q.name)));
	const now = (name: string) => rate(rateOf(samples, name));
	const some = num(q.delivered) > 0;
	return (
			<Figures>
				<Figure name="Ready" value={short(num(q.ready))} hint={count(num(q.ready))} />
				<Figure name="Leased" value={num(q.leased) > 0 ? <a href={to(["queues", bytes(q.name), "messages"], { status: "leased" })}>{short(num(q.leased))}</a> : "0"} hint="Which messages, and who holds them" />
				{dlq ? <Figure name="Dead" value={short(num(q.dead))} hint={count(num(q.dead))} tone={num(q.dead) > 0 ? "bad" : undefined} />
					: num(q.dead_letters) > 0 && <Figure name="Dead" value={<a href={deadPage(q)}>{short(num(q.dead_letters))}</a>} tone="bad" hint="In its dead-letter queue" />}
				<Figure name="Delayed" value={short(num(q.delayed))} />
				<Figure name="Waiting" value={num(q.waiters) > 0 ? <a href={to(["queues", bytes(q.name), "consumers"])}>{short(num(q.waiters))}</a> : "0"} hint="Consumers that wait for messages" />
				<Figure name="In" value={now("enqueued")} unit="/s" />
				<Figure name="Out" value={now("delivered")} unit="/s" />
				<Figure name="Oldest ready" value={num(q.ready) ? duration(maybe(q.oldest_ready_ms)) : "–"} />
				<Figure name="Wait p50, p99" value={some ? `${micros(num(q.wait_p50_us))}, ${micros(num(q.wait_p99_us))}` : "–"} hint="From being ready until the delivery, since the broker started" />
				<Figure name="Work p50, p99" value={num(q.work_p99_us) > 0 ? `${micros(num(q.work_p50_us))}, ${micros(num(q.work_p99_us))}` : "–"} hint="From the delivery until the end of the lease, since the broker started" />
			</Figures>
	);
}

const queueRanges: [string, string][] = [["", "Live"], ...ranges];

function QueueCharts({ source, dlq, queue, route }: { source: string; dlq: boolean; queue: Bytes; route: Route }) {
	const range = rangeOf(route, queueRanges);
	const past = usePast([queue], range);
	const samples = range === "" ? recorded(source) : past.samples;
	const level = (name: string) => levels(samples, name);
	const grows = (...names: string[]) => (range === "" ? rates(samples, ...names) : pastRates(samples, ...names));
	const charts = dlq ? [
		{ title: "Dead letters", unit: "messages", series: [{ name: "dead", color: "--c3", values: level("dead") }] },
	] : [
		{ title: "Messages per second", unit: "per second", series: [
			{ name: "enqueued", color: "--c1", values: grows("enqueued") },
			{ name: "acked", color: "--c2", values: grows("acked") },
			{ name: "failed", color: "--c3", values: grows("nacked", "expired") },
		] },
		{ title: "Backlog", unit: "messages", series: [
			{ name: "ready", color: "--c1", values: level("ready") },
			{ name: "leased", color: "--c2", values: level("leased") },
			{ name: "delayed", color: "--c4", values: level("delayed") },
		] },
	];
	return (
		<>
			<Ranges route={route} options={queueRanges} />
			<Failure error={past.error} />
			<Charts key={range} times={samples.map((s) => s.at)} charts={charts} />
		</>
	);
}
