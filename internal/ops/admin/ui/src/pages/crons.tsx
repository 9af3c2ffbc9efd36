// Schedules: the list, and a page of each with what it enqueues.

import { useEffect, useState } from "preact/hooks";
import type { Bytes, Fields, Value } from "../api";
import { useApp, useReply, useTitle } from "../app";
import type { Action, Values } from "../app";
import { ago, count, duration, exactTime, plural } from "../format";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Actions, Badge, Card, Code, Empty, Facts, Failure, Loading, Num, Page, Time } from "../ui";
import { bytes, key, list, maybe, num, pairs, text } from "../value";
import { List } from "./listing";
import { Headers, Payload } from "./message";
import { headerWords } from "./queue";

/** given are options of a schedule that the fields of its dialog do not have. */
function given(c: Fields): Bytes[] {
	const some = (option: string, v: Value | undefined, none = 0) => (maybe(v) !== null && num(v) !== none ? [option, text(v)] : []);
	return [
		...some("WEIGHT", c.weight), ...some("COST", c.cost), ...list(c.throttle).flatMap((t) => ["THROTTLE", bytes(t)]), ...list(c.budgets).flatMap((b) => ["BUDGET", bytes(b)]),
		...some("CHARGE", c.charge, -1), ...some("MAXATTEMPTS", c.max_attempts, -1), ...some("BACKOFF", c.backoff_ms, -1), ...some("MAXBACKOFF", c.max_backoff_ms, -1),
		...some("PRIORITY", c.priority, -1), ...some("DELAY", c.delay_ms), ...some("TTL", c.ttl_ms),
	];
}

const headerLines = (c: Fields | undefined) => pairs(c?.headers).map(([n, v]) => `${text(n)}: ${text(v)}`).join("\n");

/** set sets a schedule: a new one, or one that exists, with its content. What has no field stays as it is. */
function set(c?: Fields): Action {
	const name = c ? bytes(c.name) : undefined;
	const zone = text(c?.tz) === "UTC" ? "" : text(c?.tz);
	const missed = text(c?.catchup).toUpperCase();
	const headers = headerLines(c);
	return {
		label: c ? "Edit" : "New schedule", title: c ? `Edit ${text(name)}` : undefined, need: c ? { command: "FILA.CRON SET", queue: bytes(c.queue), access: "produce" } : { command: "FILA.CRON SET" }, submit: "Set",
		text: c ? "The next tick stays unless the expression or the zone changes, and so does a pause." : "At each tick one message is enqueued. One of the same name is replaced.",
		fields: [
			...(c ? [] : [{ name: "name", label: "Name", required: true, placeholder: "morning" }]),
			{ name: "queue", label: num(c?.topic) ? "Topic" : "Queue", required: true, value: text(c?.queue) },
			{ name: "expression", label: "Expression", required: true, value: text(c?.expression), placeholder: "30 6 * * mon-fri", hint: "minute hour day month weekday, or @daily, @hourly, @every 90s" },
			{ name: "zone", label: "Time zone", value: zone, placeholder: "UTC" },
			{ name: "payload", label: "Payload", kind: "area", value: text(c?.payload) },
			{ name: "key", label: "Fairness key", value: text(c?.key), placeholder: "default" },
			{ name: "unique", label: "Unique id", value: text(c?.unique), hint: "A tick enqueues nothing while a message with this id is in the queue." },
			{ name: "headers", label: "Headers", kind: "area", value: headers, placeholder: "name: value", hint: "One on a line." },
			{ name: "catchup", label: "Ticks that were missed", kind: "select", value: missed === "LAST" ? "" : missed, options: [["", "the last one is made up for"], ["NONE", "none is"], ["ALL", "all are"]] },
		],
		words: (v: Values) => {
			const kept = (field: string, old: Value | undefined): Bytes => (old !== undefined && old !== null && v[field] === text(old) ? bytes(old) : (v[field] ?? "")); // also what is not text
			return [
				"FILA.CRON", "SET", name ?? v.name ?? "", kept("queue", c?.queue), v.expression ?? "", kept("payload", c?.payload),
				...(v.zone ? ["TZ", v.zone] : []), ...(v.catchup ? ["CATCHUP", v.catchup] : []), ...(v.key ? ["KEY", kept("key", c?.key)] : []),
				...(c ? given(c) : []), ...(v.headers === headers ? pairs(c?.headers).flatMap(([n, value]) => ["HEADER", n, bytes(value)]) : headerWords(v.headers ?? "")),
				...(v.unique ? ["UNIQUE", kept("unique", c?.unique)] : []), ...(c && v.unique && num(c.until_lease) ? ["UNTIL", "LEASE"] : []),
				...(c && v.unique && num(c.replace) ? ["REPLACE", ...(num(c.max_delay_ms) > 0 ? ["MAXDELAY", text(c.max_delay_ms)] : [])] : []), ...(num(c?.topic) ? ["TOPIC"] : []),
			];
		},
		done: () => "The schedule is set.",
	};
}

/** cronActions are what can be done with a schedule. */
function cronActions(c: Fields, after: () => void): Action[] {
	const name = bytes(c.name);
	const need = (command: string) => ({ command, queue: bytes(c.queue), access: "produce" as const });
	const paused = maybe(c.paused_at) !== null;
	return [
		{
			label: "Run now", title: `Run now: ${text(name)}`, need: need("FILA.CRON RUN"),
			text: "One message is enqueued now. The next tick stays.", words: () => ["FILA.CRON", "RUN", name], done: (id) => `Enqueued as ${text(id)}.`, after,
		},
		paused ? {
			label: "Resume", title: `Resume ${text(name)}`, need: need("FILA.CRON RESUME"), text: "It goes on with the next tick to come; those of the pause enqueue nothing.",
			words: () => ["FILA.CRON", "RESUME", name], done: () => "The schedule goes on.", after,
		} : {
			label: "Pause", title: `Pause ${text(name)}`, need: need("FILA.CRON PAUSE"), text: "Its ticks enqueue nothing until it is resumed, and are not made up for.",
			words: () => ["FILA.CRON", "PAUSE", name], done: () => "The schedule is paused.", after,
		},
		{
			label: "Delete", title: `Delete ${text(name)}`, need: need("FILA.CRON DEL"),
			danger: { what: `The schedule ends; ${plural(num(c.fired), "message")} that it has enqueued ${num(c.fired) === 1 ? "stays" : "stay"}.`, name: text(name) },
			words: () => ["FILA.CRON", "DEL", name], done: () => "The schedule is deleted.", after,
		},
	];
}

export function Crons({ route }: { route: Route }) {
	return (
		<List route={route} of={{
			title: "Schedules", what: "schedules", filter: "Filter by name", words: ["FILA.CRON", "LIST"], command: "FILA.CRON LIST", create: set(),
			sub: "Recurring messages: each tick enqueues one.", id: (c) => key(bytes(c.name)),
			empty: <Empty title="There is no schedule yet.">A schedule enqueues a message at each tick of a cron expression, in a time zone, exactly once.</Empty>,
			columns: (reload) => [
				{ name: "Schedule", head: true, wide: true, sort: (c) => text(c.name), cell: (c) => <><a href={to(["crons", bytes(c.name)])}>{text(c.name)}</a>{options(c) !== "" && <small class="under">{options(c)}</small>}</> },
				{ name: "Queue", sort: (c) => text(c.queue), cell: (c) => <Target c={c} /> },
				{ name: "Expression", cell: (c) => <><Code>{text(c.expression)}</Code> <small>{text(c.tz)}</small></> },
				{ name: "Next", sort: (c) => num(c.next_at), cell: (c) => <Next c={c} /> },
				{ name: "Last", sort: (c) => num(c.last_at), cell: (c) => <Last c={c} /> },
				{ name: "Fired", right: true, sort: (c) => num(c.fired), cell: (c) => <Num n={num(c.fired)} /> },
				{ name: "Missed", right: true, sort: (c) => num(c.missed), cell: (c) => <Num n={num(c.missed)} /> },
				{ name: "Actions", cell: (c) => <span class="rowactions">{cronActions(c, reload).map((a) => <ActionButton small key={a.label} action={a} />)}</span> },
			],
		}} />
	);
}

/** Target is the queue or the topic of a schedule. */
function Target({ c }: { c: Fields }) {
	return num(c.topic) ? <><a href={to(["topics", bytes(c.queue)])}>{text(c.queue)}</a> <small>topic</small></> : <a href={to(["queues", bytes(c.queue)])}>{text(c.queue)}</a>;
}

/** Cron shows a schedule with what it enqueues, as far as the user may see that. */
export function Cron({ name }: { name: Bytes }) {
	useTitle(text(name));
	const app = useApp();
	const asked = useReply(["FILA.CRON", "GET", name], 2000);
	const c = asked.data as Fields | null | undefined;
	const why = c ? app.may({ command: "FILA.CRON GET", queue: bytes(c.queue), access: "consume" }) : "";
	const content = useReply(c && why === "" ? ["FILA.CRON", "GET", name, "CONTENT"] : null);
	const setAt = num(c?.set_at);
	useEffect(() => {
		if (content.data && num((content.data as Fields).set_at) !== setAt) {
			content.reload(); // it was set anew
		}
	}, [setAt]);
	const crumbs: [string, string][] = [["Schedules", "#/crons"]];
	if (!c) {
		return (
			<Page title={text(name)} crumbs={crumbs}>
				{asked.error ? <Failure error={asked.error} /> : c === undefined ? <Loading /> : <Empty title="There is no such schedule any more." />}
			</Page>
		);
	}
	const full = content.data as Fields | null | undefined;
	return (
		<Page title={text(name)} crumbs={crumbs} actions={<Actions>
			{full && <ActionButton action={{ ...set(full), after: asked.reload }} />}
			{cronActions(c, asked.reload).map((a) => <ActionButton key={a.label} action={a} />)}
		</Actions>}>
			<Card>
				<Facts facts={[
					[num(c.topic) ? "Topic" : "Queue", <Target c={c} />],
					["Expression", <><Code>{text(c.expression)}</Code> {text(c.tz)}</>],
					["Next", <Next c={c} />],
					["Last", <Last c={c} />],
					["Set", <Time at={maybe(c.set_at)} />],
					["Fired, missed, skipped", [c.fired, c.missed, c.skipped].map((n) => count(num(n))).join(", ")],
				]} />
				{options(c) !== "" && <p class="caption">{options(c)}</p>}
			</Card>
			<Card title="What each tick enqueues">
				{why !== "" ? <Empty title="You may not look at messages here.">This {why}.</Empty> : !full ? content.error ? <Failure error={content.error} /> : <Loading /> : (
					<>
						<Headers headers={full.headers} />
						<Payload key={text(full.set_at)} payload={bytes(full.payload)} name={text(name)} />
					</>
				)}
			</Card>
		</Page>
	);
}

function Next({ c }: { c: Fields }) {
	const [open, set] = useState(false);
	const asked = useReply(open ? ["FILA.CRON", "GET", bytes(c.name)] : null);
	const ticks = list((asked.data as Fields | undefined)?.upcoming).map(num);
	const first = maybe(c.next_at);
	if (maybe(c.paused_at) !== null) {
		return <Badge tone="quiet">paused {ago(maybe(c.paused_at))}</Badge>;
	}
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
		maybe(c.priority) !== null && `priority ${text(c.priority)}`, num(c.until_lease) > 0 && "unique until it is leased", num(c.replace) > 0 && "replaces one that waits",
		list(c.budgets).length > 0 && `budgets ${list(c.budgets).map(text).join(", ")}`,
	].filter(Boolean).join(", ");
}
