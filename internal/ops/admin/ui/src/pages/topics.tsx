// Topics: which queues are bound to each, by which headers, and what was published.

import { useState } from "preact/hooks";
import type { Bytes, Fields } from "../api";
import { useApp, useReply, useTitle } from "../app";
import type { Action } from "../app";
import { CommandLine } from "../action";
import { count, plural, short } from "../format";
import type { Access } from "../rights";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Card, Code, Empty, Failure, Figure, Figures, Loading, Num, Page, Pager, Table } from "../ui";
import type { Column } from "../ui";
import { bytes, key, list, maps, num, page, text } from "../value";
import { List } from "./listing";
import { headerWords, messageFields, messageWords } from "./queue";

const patternsHint = "One on a line, each with a pattern of its value; all must match. None: every message.";

/** pairsOf splits the headers of a binding into names and patterns. */
function pairsOf(binding: Fields): [Bytes, Bytes][] {
	const words = list(binding.headers).map(bytes);
	return words.flatMap((name, i) => (i % 2 === 0 ? [[name, words[i + 1] ?? ""] as [Bytes, Bytes]] : []));
}

/** needOf is the right to change the binding of a queue: to manage the topic, and to produce to the queue. */
function needOf(command: string, topic?: Bytes, queue?: Bytes) {
	const and = queue === undefined ? undefined : { queue, access: "produce" as Access };
	return topic === undefined ? { command, ...and } : { command, queue: topic, access: "both" as Access, and };
}

/** bind binds a queue to a topic. What of them is not given is asked for. */
function bind(given: { topic?: Bytes; queue?: Bytes }, after?: () => void): Action {
	const { topic, queue } = given;
	return {
		label: topic === undefined && queue !== undefined ? "Bind to a topic" : "Bind a queue", title: topic !== undefined ? `Bind a queue to ${text(topic)}` : queue !== undefined ? `Bind ${text(queue)} to a topic` : "Bind a queue to a topic",
		need: needOf("FILA.TOPIC BIND", topic, queue), submit: "Bind", text: "The queue gets what is published to the topic from then on. A binding that is there already gets these headers in place of its own.",
		fields: [
			...(topic === undefined ? [{ name: "topic", label: "Topic", required: true, placeholder: "order.placed" }] : []),
			...(queue === undefined ? [{ name: "queue", label: "Queue", required: true }] : []),
			{ name: "headers", label: "Headers", kind: "area" as const, placeholder: "kind: goods", hint: patternsHint },
		],
		words: (v) => ["FILA.TOPIC", "BIND", topic ?? v.topic ?? "", queue ?? v.queue ?? "", ...headerWords(v.headers ?? "")],
		done: (n) => (num(n) === 1 ? "The queue is bound." : "The queue was bound already: it has these headers now."), after,
	};
}

/** change replaces the headers of a binding. Lines that stay as they are keep their bytes, also those that cannot be typed. */
function change(topic: Bytes, binding: Fields, after: () => void): Action {
	const queue = bytes(binding.queue);
	const had = pairsOf(binding);
	const lines = new Map(had.map(([name, pattern]) => [`${text(name)}: ${text(pattern)}`, ["HEADER", name, pattern] as Bytes[]]));
	const typed = [...lines.keys()].join("\n");
	const words = (line: string): Bytes[] => lines.get(line) ?? headerWords(line);
	return {
		label: "Change", title: `Change the headers of ${text(queue)} at ${text(topic)}`, need: needOf("FILA.TOPIC BIND", topic, queue), submit: "Set headers",
		fields: [{ name: "headers", label: "Headers", kind: "area", value: typed, placeholder: "kind: goods", hint: patternsHint }],
		words: (v) => ["FILA.TOPIC", "BIND", topic, queue, ...(v.headers === typed ? [...lines.values()].flat() : (v.headers ?? "").split("\n").flatMap(words))],
		done: () => "The headers are set.", after,
	};
}

function unbind(topic: Bytes, queue: Bytes, after: () => void): Action {
	return {
		label: "Unbind", title: `Unbind ${text(queue)} from ${text(topic)}`, need: needOf("FILA.TOPIC UNBIND", topic, queue),
		danger: { what: `${text(queue)} gets nothing more of what is published to ${text(topic)}; the messages that it has got stay.`, name: text(queue) },
		words: () => ["FILA.TOPIC", "UNBIND", topic, queue], done: (n) => (num(n) === 1 ? "The queue is unbound." : "It was not bound any more."), after,
	};
}

function publish(topic: Bytes, after: () => void): Action {
	return {
		label: "Publish", title: `Publish to ${text(topic)}`, need: { command: "FILA.PUBLISH", queue: topic, access: "produce" },
		text: "Each queue whose headers the message matches stores it, in one write: all of them, or none.",
		fields: [...messageFields(), { name: "effort", label: "Leave out queues that refuse it", kind: "check" }],
		words: (v) => ["FILA.PUBLISH", topic, ...messageWords(v), ...(v.effort ? ["BESTEFFORT"] : [])],
		done: (reply) => (list(reply).length === 0 ? "Published: it matches no binding, so no queue has got it." : `Published to ${list(reply).map((p) => text(list(p)[0])).join(", ")}.`), after,
	};
}

/** counts are the columns of a topic in a list. */
function counts(): Column<Fields>[] {
	return [
		{ name: "Queues", hint: "That are bound to it", right: true, sort: (t) => num(t.bindings), cell: (t) => <Num n={num(t.bindings)} /> },
		{ name: "Published", hint: "Since the broker started", right: true, sort: (t) => num(t.published), cell: (t) => <Num n={num(t.published)} /> },
		{ name: "Unmatched", hint: "Those that no queue has got, as they matched no binding", right: true, sort: (t) => num(t.unmatched), cell: (t) => <Num n={num(t.unmatched)} /> },
	];
}

const nameColumn: Column<Fields> = { name: "Topic", head: true, wide: true, sort: (t) => text(t.name), cell: (t) => <a href={to(["topics", bytes(t.name)])}>{text(t.name)}</a> };

export function Topics({ route }: { route: Route }) {
	const name = route.names[1];
	if (name !== undefined) {
		return <Topic key={key(name)} topic={name} />;
	}
	return (
		<List route={route} of={{
			title: "Topics", what: "topics", filter: "Filter by name", words: ["FILA.TOPIC", "LIST"], command: "FILA.TOPIC LIST", create: bind({}),
			sub: "A message that is published to a topic goes to each queue that is bound to it.", id: (t) => key(bytes(t.name)),
			empty: <Empty title="There is no topic yet.">A topic is there while queues are bound to it: bind one here, or with <code>FILA.TOPIC BIND</code>.</Empty>,
			columns: () => [nameColumn, ...counts()],
		}} />
	);
}

function Topic({ topic }: { topic: Bytes }) {
	const name = text(topic);
	useTitle(name);
	const app = useApp();
	const why = app.may({ command: "FILA.TOPIC INFO", queue: topic, access: "either" });
	const words: Bytes[] = ["FILA.TOPIC", "INFO", topic];
	const asked = useReply(why === "" ? words : null, 2000);
	const crumbs: [string, string][] = [["Topics", "#/topics"]];
	const actions = <><ActionButton action={publish(topic, asked.reload)} /><ActionButton primary action={bind({ topic }, asked.reload)} /></>;
	if (why !== "") {
		return <Page title={name} crumbs={crumbs}><Empty title="You may not see this topic.">This {why}.</Empty></Page>;
	}
	if (asked.data === undefined) {
		return <Page title={name} crumbs={crumbs}>{asked.error ? <Failure error={asked.error} /> : <Loading />}</Page>;
	}
	const t = (asked.data ?? {}) as Fields;
	const bindings = maps(t.bindings);
	return (
		<Page title={name} crumbs={crumbs} actions={actions}>
			<Failure error={asked.error} />
			<Figures>
				<Figure name="Queues" value={count(bindings.length)} />
				<Figure name="Published" value={short(num(t.published))} hint={`${count(num(t.published))} since the broker started`} />
				<Figure name="Unmatched" value={short(num(t.unmatched))} hint="Those that no queue has got, as they matched no binding" />
			</Figures>
			<Card title={plural(bindings.length, "binding")}>
				<Table caption="Bindings" rows={bindings} id={(b) => key(bytes(b.queue))}
					empty={<Empty title="No queue is bound to this topic.">What is published to it goes nowhere. It is there again when a queue is bound.</Empty>}
					columns={[
						{ name: "Queue", head: true, wide: true, sort: (b) => text(b.queue), cell: (b) => <a href={to(["queues", bytes(b.queue)])}>{text(b.queue)}</a> },
						{ name: "Headers", wide: true, broad: true, hint: "That a message must have, with patterns of their values", cell: (b) => <Headers binding={b} /> },
						{ name: "Actions", cell: (b) => <span class="rowactions"><ActionButton small action={change(topic, b, asked.reload)} /><ActionButton small action={unbind(topic, bytes(b.queue), asked.reload)} /></span> },
					]} />
				<details><summary>Command line</summary><CommandLine words={words} /></details>
			</Card>
		</Page>
	);
}

function Headers({ binding }: { binding: Fields }) {
	const all = pairsOf(binding);
	if (all.length === 0) {
		return <span class="zero">every message</span>;
	}
	return <>{all.map(([name, pattern], i) => <span key={i}>{i > 0 && " and "}<Code>{text(name)}: {text(pattern)}</Code></span>)}</>;
}

const lookedAt = "1000"; // topics of a page, those of other queues included

/** QueueTopics are the topics that a queue is bound to. */
export function QueueTopics({ queue }: { queue: Bytes }) {
	const app = useApp();
	const [cursor, setCursor] = useState<Bytes>("0");
	const why = app.may({ command: "FILA.TOPIC LIST", queue, access: "either" });
	const asked = useReply(why === "" ? ["FILA.TOPIC", "LIST", "QUEUE", queue, "CURSOR", cursor, "COUNT", lookedAt] : null, 3000);
	const { next, items } = page(asked.data);
	const more = text(next) !== "0";
	if (why !== "") {
		return <Empty title="You may not see the topics of this queue.">This {why}.</Empty>;
	}
	return (
		<Card title="Topics" note="that this queue is bound to" actions={<ActionButton action={bind({ queue }, asked.reload)} />}>
			<Failure error={asked.error} />
			{asked.data === undefined ? !asked.error && <Loading /> : (
				<Table caption="Topics of the queue" rows={items} id={(t) => key(bytes(t.name))}
					empty={<Empty title={more || cursor !== "0" ? "The queue is bound to no topic of this page." : "The queue is bound to no topic."}>A queue that is bound gets what is published to the topic.</Empty>}
					columns={[nameColumn, ...counts(), { name: "Actions", cell: (t) => <ActionButton small action={unbind(bytes(t.name), queue, asked.reload)} /> }]} />
			)}
			<Pager what="topics" first={cursor === "0"} next={more} onFirst={() => setCursor("0")} onNext={() => setCursor(next)} />
		</Card>
	);
}
