// One message: what is in it, and why it is where it is.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Bytes, Fields, Value } from "../api";
import { useApp, useReply } from "../app";
import type { Action } from "../app";
import { parsed, Tree } from "../json";
import { ago, count, duration, plural, size } from "../format";
import { to } from "../route";
import { ActionButton, Actions, Badge, Card, Choice, Copy, Empty, Facts, Failure, Loading, Table, Time } from "../ui";
import { bytes, fields, list, maps, maybe, num, pairs, raw, text } from "../value";
import { KeyTables, Reason, State } from "./keys";
import { statusTone } from "./messages";
import { TimeLine } from "./timeline";

const shownMax = 64 << 10; // bytes of a payload that are shown

export function copyWords(queue: Bytes, m: Fields): Bytes[] {
	const words: Bytes[] = ["FILA.ENQUEUE", queue, bytes(m.payload), "KEY", bytes(m.key)];
	const add = (...more: Bytes[]) => words.push(...more);
	for (const [name, value] of pairs(m.headers)) {
		add("HEADER", name, bytes(value));
	}
	for (const t of list(m.throttle)) {
		add("THROTTLE", bytes(t));
	}
	for (const b of list(m.budgets)) {
		add("BUDGET", bytes(b));
	}
	if (num(m.cost) !== 1 && m.cost !== null && m.cost !== undefined) {
		add("COST", text(m.cost));
	}
	if (list(m.budgets).length > 0 && m.charge !== null && m.charge !== undefined) {
		add("CHARGE", text(m.charge));
	}
	for (const [option, value] of [["MAXATTEMPTS", m.max_attempts], ["BACKOFF", m.backoff_ms], ["MAXBACKOFF", m.max_backoff_ms]] as const) {
		if (maybe(value) !== null) {
			add(option, text(value));
		}
	}
	add("PRIORITY", text(m.priority));
	return words;
}

export function Message({ queue, id }: { queue: Bytes; id: Bytes }) {
	const app = useApp();
	const why = app.may({ command: "FILA.GET", queue, access: "consume" });
	const mayExplain = app.may({ command: "FILA.EXPLAIN", queue, access: "either" }) === "";
	const asked = useReply(why === "" ? ["FILA.GET", queue, id, "ATTEMPTS"] : null, mayExplain ? 0 : 3000);
	const done = text(fields(asked.data).status) === "done";
	const reasons = useReply(why === "" && mayExplain && asked.data && !done ? ["FILA.EXPLAIN", queue, id] : null, 3000);
	// The message may be large: it is read again only when the explanation says that it has changed.
	const seen = stateOf(asked.data);
	const now = done ? "" : reasons.error ? "gone" : stateOf(reasons.data);
	useEffect(() => {
		if (seen !== "" && now !== "" && now !== seen) {
			asked.reload();
		}
	}, [now]);
	if (why !== "") {
		return <Empty title="You may not look at messages here.">This {why}.</Empty>;
	}
	if (asked.data === undefined) {
		return <Card>{asked.error ? <Failure error={asked.error} /> : <Loading />}</Card>;
	}
	if (asked.data === null) {
		return <Card title={text(id)}><Empty title="There is no such message here any more.">It was acked, cancelled, purged or moved to another queue.</Empty></Card>;
	}
	const m = asked.data as Fields;
	const e = (reasons.data ?? null) as Fields | null;
	const told = text(maps(m.attempts).at(-1)?.error) === text(m.error); // by the time line
	return (
		<Card title={<span class="mono">{text(id)}</span>} actions={<Actions><Copy text={text(id)} label="Copy the id" />{messageActions(queue, id, m, asked.reload).map((a) => <ActionButton key={a.label} action={a} />)}</Actions>}>
			<p class="explain">
				<Badge tone={statusTone[text(m.status)] ?? "quiet"}>{text(m.status)}</Badge>{" "}
				{text(m.status) === "dead" ? "It stays here until it is redriven, cancelled or purged." : done ? "It was acked. What is known of it is kept for the KEEPDONE of the queue." : e && <><State state={text(e.state)} /> <Reason queue={queue} k={e} />{maybe(e.position) !== null && num(e.position) > 0 && ` · ${plural(num(e.position), "message")} of its key before it`}</>}
			</p>
			{m.error !== null && m.error !== undefined && !told && <p class="failure"><strong>{text(m.reason) ? `Died: ${text(m.reason)}.` : "Last error."}</strong> {text(m.error)}</p>}
			<TimeLine m={m} />
			<h3>Facts</h3>
			<Facts facts={facts(queue, m)} />
			<KeyTables k={e ?? {}} />
			<Headers headers={m.headers} />
			{!done && <Payload payload={bytes(m.payload)} name={text(id)} />}
			{done && m.result !== null && m.result !== undefined && <Payload title="Result" payload={bytes(m.result)} name={text(id)} />}
		</Card>
	);
}

/** stateOf is what changes of a message; "" if that is not known. */
function stateOf(reply: Value | undefined): string {
	const m = fields(reply);
	return m.status === undefined ? "" : JSON.stringify([m.status, m.attempt, m.deliveries, m.lease_until, m.consumer]);
}

function messageActions(queue: Bytes, id: Bytes, m: Fields, reload: () => void): Action[] {
	if (text(m.status) === "done") {
		return [];
	}
	const name = text(queue);
	const both = (command: string) => ({ command, queue, access: "both" as const });
	return [
		{
			label: "Reschedule", need: both("FILA.RESCHEDULE"), text: "Its attempts and its place stay. A leased message cannot be rescheduled.",
			fields: [{ name: "ms", label: "Ready in, ms", kind: "number", min: 0, value: "0", required: true, hint: "0: at once" }],
			words: (v) => ["FILA.RESCHEDULE", queue, id, v.ms ?? "0"], done: () => "The message is rescheduled.", after: reload,
		},
		{
			label: "Enqueue a copy", need: { command: "FILA.ENQUEUE", queue, access: "produce" },
			text: "The copy has the payload, headers, key, throttles, budgets and priority of this one; the original stays.",
			words: () => copyWords(queue, m), done: (copy) => `Enqueued as ${text(copy)}.`,
		},
		{
			label: "Cancel", title: "Cancel this message", need: both("FILA.CANCEL"), submit: "Cancel the message",
			danger: { what: `This removes 1 message of ${name}.`, name }, words: () => ["FILA.CANCEL", queue, id],
			done: (n) => (num(n) === 1 ? "The message is removed." : "It was gone already."), after: reload,
		},
	];
}

/** failures is the number of attempts that a message has of its own. */
function failures(most: Fields[string] | undefined): string {
	if (maybe(most) === null) {
		return "";
	}
	return num(most) === 0 ? "never" : plural(num(most), "failure");
}

function facts(queue: Bytes, m: Fields): [ComponentChildren, ComponentChildren][] {
	const all: [ComponentChildren, ComponentChildren][] = [
		["Fairness key", <a href={to(["queues", queue, "keys", bytes(m.key)])}>{text(m.key)}</a>],
		["Priority", text(m.priority)], ["Weight of the key", text(m.weight)], ["Cost", text(m.cost)],
		["Attempt", count(num(m.attempt))], ["Deliveries", count(num(m.deliveries))],
		["Enqueued", <><Time at={maybe(m.enqueued_at)} /> ({ago(maybe(m.enqueued_at))})</>],
	];
	const some = (name: string, v: string) => v !== "" && all.push([name, v]);
	some("Consumer", text(m.consumer));
	some("Unique id", text(m.unique));
	const group = (title: string, name: Value | undefined) => text(name) !== "" && all.push([title, <a href={to(["groups", bytes(name)])}>{text(name)}</a>]);
	group("Group", m.group);
	group("Enqueued at the end of", pairs(m.headers).find(([name]) => name === "fila-group")?.[1]);
	some("Throttles", list(m.throttle).map(text).join(", "));
	some("Budgets", list(m.budgets).map(text).join(", "));
	if (list(m.budgets).length > 0) {
		some("Charge", text(m.charge));
	}
	some("Dead after", failures(m.max_attempts));
	some("Backoff", maybe(m.backoff_ms) === null ? "" : duration(num(m.backoff_ms)));
	some("Longest backoff", maybe(m.max_backoff_ms) === null ? "" : duration(num(m.max_backoff_ms)));
	some("Died in", text(m.origin));
	some("Attempts before it died", text(m.dead_attempts));
	return all.filter(([, v]) => v !== ""); // weight and cost of a done message are not known
}

/** Headers are those of a message; nothing without any. */
export function Headers({ headers }: { headers: Value | undefined }) {
	const all = pairs(headers);
	if (all.length === 0) {
		return null;
	}
	return (
		<>
			<h3>Headers</h3>
			<Table caption="Headers" rows={all} id={([n]) => text(n)} columns={[
				{ name: "Name", head: true, cell: ([n]) => <span class="mono">{text(n)}</span> },
				{ name: "Value", wide: true, cell: ([, v]) => <span class="mono">{text(v)}</span> },
			]} />
		</>
	);
}

export function Payload({ payload, name, title = "Payload" }: { payload: Bytes; name: string; title?: string }) {
	const data = useMemo(() => raw(payload), [JSON.stringify(payload)]);
	const json = useMemo(() => pretty(payload, data.length), [data]);
	const [form, set] = useState(json !== null ? "json" : typeof payload === "string" ? "text" : "hex");
	const tree = useMemo(() => (json === null ? undefined : parsed(text(payload))), [json]);
	const cut = data.length > shownMax;
	const download = () => {
		const url = URL.createObjectURL(new Blob([data as BlobPart]));
		const a = document.createElement("a");
		a.href = url;
		a.download = name;
		a.click();
		setTimeout(() => URL.revokeObjectURL(url), 10_000);
	};
	const options: [string, string][] = [["text", "Text"], ["hex", "Hex"]];
	if (json !== null) {
		options.unshift(["json", "JSON"]);
	}
	return (
		<>
			<div class="payloadbar">
				<h3>{title} <small>{size(data.length)}</small></h3>
				<Choice label="Form of the payload" value={form} options={options} onChange={set} />
				{typeof payload === "string" && !cut && <Copy text={form === "json" && json !== null ? json : payload} label={`Copy the ${title.toLowerCase()}`} />}
				<button type="button" class="small" onClick={download}>Download</button>
			</div>
			{form === "json" && tree ? <div class="payload json" role="group" aria-label={title}><Tree value={tree.value} /></div> : (
				<pre class="payload" tabIndex={0} aria-label={title}>
					{form === "json" ? json : form === "hex" ? hex(data.subarray(0, shownMax / 4)) : text(payload).slice(0, shownMax)}
				</pre>
			)}
			{(cut || (form === "hex" && data.length > shownMax / 4)) && <p class="caption">Only the beginning is shown: download it for the rest.</p>}
		</>
	);
}

function pretty(payload: Bytes, length: number): string | null {
	if (typeof payload !== "string" || length > shownMax || !/^\s*[[{"]/.test(payload)) {
		return null;
	}
	try {
		return JSON.stringify(JSON.parse(payload), null, 2);
	} catch {
		return null;
	}
}

function hex(data: Uint8Array): string {
	const lines: string[] = [];
	for (let i = 0; i < data.length; i += 16) {
		const row = Array.from(data.subarray(i, i + 16));
		const codes = row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(48);
		lines.push(`${i.toString(16).padStart(8, "0")}  ${codes} ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
	}
	return lines.join("\n");
}
