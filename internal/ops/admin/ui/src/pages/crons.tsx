import { useState } from "preact/hooks";
import type { Fields } from "../api";
import { useReply } from "../app";
import type { Action, Values } from "../app";
import { ago, count, duration, exactTime, plural } from "../format";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Code, Empty, Num } from "../ui";
import { bytes, key, list, maybe, num, text } from "../value";
import { List } from "./listing";
import { headerWords } from "./queue";

function set(): Action {
	return {
		label: "New schedule", need: { command: "FILA.CRON SET" }, submit: "Set", text: "At each tick one message is enqueued. One of the same name is replaced.",
		fields: [
			{ name: "name", label: "Name", required: true, placeholder: "morning" },
			{ name: "queue", label: "Queue", required: true },
			{ name: "expression", label: "Expression", required: true, placeholder: "30 6 * * mon-fri", hint: "minute hour day month weekday, or @daily, @hourly, @every 90s" },
			{ name: "zone", label: "Time zone", placeholder: "UTC" },
			{ name: "payload", label: "Payload", kind: "area" },
			{ name: "key", label: "Fairness key", placeholder: "default" },
			{ name: "unique", label: "Unique id", hint: "A tick enqueues nothing while a message with this id is in the queue." },
			{ name: "headers", label: "Headers", kind: "area", placeholder: "name: value", hint: "One on a line." },
			{ name: "catchup", label: "Ticks that were missed", kind: "select", options: [["", "the last one is made up for"], ["NONE", "none is"], ["ALL", "all are"]] },
		],
		words: (v: Values) => [
			"FILA.CRON", "SET", v.name ?? "", v.queue ?? "", v.expression ?? "", v.payload ?? "",
			...(v.zone ? ["TZ", v.zone] : []), ...(v.catchup ? ["CATCHUP", v.catchup] : []), ...(v.key ? ["KEY", v.key] : []), ...(v.unique ? ["UNIQUE", v.unique] : []), ...headerWords(v.headers ?? ""),
		],
		done: () => "The schedule is set.",
	};
}

export function Crons({ route }: { route: Route }) {
	return (
		<List route={route} of={{
			title: "Schedules", what: "schedules", filter: "Filter by name", words: ["FILA.CRON", "LIST"], command: "FILA.CRON LIST", create: set(),
			sub: "Recurring messages: each tick enqueues one.", id: (c) => key(bytes(c.name)),
			empty: <Empty title="There is no schedule yet.">A schedule enqueues a message at each tick of a cron expression, in a time zone, exactly once.</Empty>,
			columns: (reload) => [
				{ name: "Schedule", head: true, wide: true, sort: (c) => text(c.name), cell: (c) => <>{text(c.name)}{options(c) !== "" && <small class="under">{options(c)}</small>}</> },
				{ name: "Queue", sort: (c) => text(c.queue), cell: (c) => <a href={to(["queues", bytes(c.queue)])}>{text(c.queue)}</a> },
				{ name: "Expression", cell: (c) => <><Code>{text(c.expression)}</Code> <small>{text(c.tz)}</small></> },
				{ name: "Next", sort: (c) => num(c.next_at), cell: (c) => <Next c={c} /> },
				{ name: "Last", sort: (c) => num(c.last_at), cell: (c) => <Last c={c} /> },
				{ name: "Fired", right: true, sort: (c) => num(c.fired), cell: (c) => <Num n={num(c.fired)} /> },
				{ name: "Missed", right: true, sort: (c) => num(c.missed), cell: (c) => <Num n={num(c.missed)} /> },
				{ name: "Actions", cell: (c) => (
					<span class="rowactions">
						<ActionButton small action={{
							label: "Run now", title: `Run now: ${text(c.name)}`, need: { command: "FILA.CRON RUN", queue: bytes(c.queue), access: "produce" },
							text: "One message is enqueued now. The next tick stays.", words: () => ["FILA.CRON", "RUN", bytes(c.name)], done: (id) => `Enqueued as ${text(id)}.`, after: reload,
						}} />
						<ActionButton small action={{
							label: "Delete", title: `Delete ${text(c.name)}`, need: { command: "FILA.CRON DEL", queue: bytes(c.queue), access: "produce" },
							danger: { what: `The schedule ends; ${count(num(c.fired))} messages that it has enqueued stay.`, name: text(c.name) },
							words: () => ["FILA.CRON", "DEL", bytes(c.name)], done: () => "The schedule is deleted.", after: reload,
						}} />
					</span>
				) },
			],
		}} />
	);
}

function Next({ c }: { c: Fields }) {
	const [open, set] = useState(false);
	const asked = useReply(open ? ["FILA.CRON", "GET", bytes(c.name)] : null);
	const ticks = list((asked.data as Fields | undefined)?.upcoming).map(num);
	const first = maybe(c.next_at);
	if (!first) {
		return <Badge tone="bad">never</Badge>;
	}
	return (
		<details class="ticks" onToggle={(e) => set(e.currentTarget.open)}>
			<summary>{ago(first)}</summary>
			<ol>{(ticks.length > 0 ? ticks : [first]).map((t) => <li key={t}>{exactTime(t)}</li>)}</ol>
		</details>
	);
}

function Last({ c }: { c: Fields }) {
	const error = text(c.last_error);
	const failed = error !== "" && num(c.error_at) >= num(c.last_at);
	return failed ? <span class="why"><Badge tone="bad">missed {ago(maybe(c.error_at))}</Badge><span class="reason">{error}</span></span> : <>{c.last_at ? ago(maybe(c.last_at)) : <span class="zero">never</span>}</>;
}

function options(c: Fields): string {
	return [
		c.key !== null && `key ${text(c.key)}`, text(c.catchup).toLowerCase() !== "last" && `catch up: ${text(c.catchup).toLowerCase()}`,
		num(c.delay_ms) > 0 && `delay ${duration(num(c.delay_ms))}`, num(c.ttl_ms) > 0 && `expires after ${duration(num(c.ttl_ms))}`,
		text(c.unique) !== "" && `unique id ${text(c.unique)}`, num(c.skipped) > 0 && `${plural(num(c.skipped), "tick")} skipped`,
		maybe(c.max_attempts) !== null && `max attempts ${text(c.max_attempts)}`, maybe(c.backoff_ms) !== null && `backoff ${duration(num(c.backoff_ms))}`,
		maybe(c.max_backoff_ms) !== null && `max backoff ${duration(num(c.max_backoff_ms))}`,
		list(c.budgets).length > 0 && `budgets ${list(c.budgets).map(text).join(", ")}`,
	].filter(Boolean).join(", ");
}
