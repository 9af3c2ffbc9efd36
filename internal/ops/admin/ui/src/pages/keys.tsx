// Fairness keys: the share of each beside its fair share, and why it waits.

import { useState } from "preact/hooks";
import type { Bytes, Fields } from "../api";
import { useReply } from "../app";
import type { Action } from "../app";
import { ago, count, duration, figure, plural, short, spoken, stamped } from "../format";
import { refine, to } from "../route";
import type { Route } from "../route";
import { ActionButton, Actions, Badge, Card, Choice, Code, Empty, Facts, Failure, Loading, Num, Pager, Search, Share, Table, Time } from "../ui";
import type { Column, Tone } from "../ui";
import { bytes, key, list, maps, maybe, num, page, text } from "../value";
import { patternOf } from "./overview";
import { KeyPast } from "./past";

/** states are those of FILA.KEYS. */
export function stateOf(state: string): { tone: Tone; name: string } {
	const tones: Record<string, Tone> = {
		ready: "ready", leased: "busy", held: "wait", throttled: "wait", concurrency: "wait", no_credit: "wait", ordered: "wait", gathering: "wait", paused: "quiet", busy: "busy", no_consumer: "alone",
		dead: "bad", delayed: "quiet", loading: "quiet", empty: "quiet",
	};
	return { tone: tones[state] ?? "quiet", name: state.replace("_", " ") };
}

export function State({ state, reason }: { state: string; reason?: string }) {
	const s = stateOf(state);
	return <Badge tone={s.tone} title={reason}>{s.name}</Badge>;
}

export function keyActions(queue: Bytes, k: Fields): Action[] {
	const name = bytes(k.key);
	const shown = text(name);
	const need = (command: string) => ({ command, queue, access: "both" as const });
	return [
		{
			label: "Weight", title: `Weight of ${shown}`, need: need("FILA.KEY SET"),
			text: "A key with twice the weight gets twice the deliveries while both have messages. It counts for its whole backlog.",
			fields: [{ name: "weight", label: "Weight", kind: "number", min: 1, value: text(k.weight), required: true }],
			words: (v) => ["FILA.KEY", "SET", queue, name, "WEIGHT", v.weight ?? ""], done: () => `The weight of ${shown} is set.`, submit: "Set weight",
		},
		num(k.paused)
			? { label: "Resume", title: `Resume ${shown}`, need: need("FILA.KEY RESUME"), words: () => ["FILA.KEY", "RESUME", queue, name], done: () => `${shown} goes on.` }
			: {
				label: "Pause", title: `Pause ${shown}`, need: need("FILA.KEY PAUSE"), text: "It still accepts messages, and live leases go on.",
				words: () => ["FILA.KEY", "PAUSE", queue, name], done: () => `${shown} is paused.`,
			},
	];
}

const orders: [string, string][] = [["depth", "Deepest"], ["age", "Oldest"], ["delivered", "Busiest"], ["behind", "Most behind"]];

export function Keys({ queue, live, by, route, total }: { queue: Bytes; live: Fields[]; by: string; route: Route; total: number }) {
	const match = route.query.get("match") ?? "";
	const [cursor, setCursor] = useState<Bytes>("0");
	const found = useReply(match === "" ? null : ["FILA.KEYS", queue, "MATCH", patternOf(match), "CURSOR", cursor, "COUNT", "100"], 2000);
	const result = page(found.data);
	const rows = match === "" ? live : result.items;
	return (
		<Card title={plural(total, "fairness key")} note={match === "" && total > rows.length ? <>the first {count(rows.length)} of this order are shown, <button type="button" class="small" onClick={() => refine(route, { match: "*" })}>list all</button></> : undefined} actions={
			<>
				{match === "" && <Choice label="Order of keys" value={by} options={orders} onChange={(v) => refine(route, { by: v })} />}
				<Search label="Find a key" shortcut value={match} onChange={(v) => {
					setCursor("0");
					refine(route, { match: v });
				}} />
			</>
		}>
			<Failure error={found.error} />
			{match !== "" && found.busy && !found.data ? <Loading /> : (
				<Table caption="Fairness keys" rows={rows} id={(k) => key(bytes(k.key))} columns={columns(queue, scale(rows))}
					empty={match !== ""
						? <Empty title={text(result.next) === "0" ? "No key has such a name." : "None of these keys has such a name: go on to the next page."} />
						: <Empty title="No key has messages.">Each message belongs to a fairness key, such as a tenant. Keys with work share the deliveries by weight.</Empty>} />
			)}
			{match !== "" && <Pager what="keys" first={cursor === "0"} next={text(result.next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(result.next)} />}
			{rows.length > 0 && <p class="caption legend-share"><span class="bar" aria-hidden="true" /> share of the deliveries in the last minute <span class="tick" aria-hidden="true" /> fair share by weight</p>}
		</Card>
	);
}

/** scale is the largest share of those that are compared: a full bar, in steps that rarely change. */
function scale(rows: Fields[]): number {
	const most = Math.max(0.01, ...rows.map((k) => Math.max(num(k.share), num(k.fair_share))));
	return [0.02, 0.05, 0.1, 0.25, 0.5].find((s) => most <= s) ?? 1;
}

function columns(queue: Bytes, max: number): Column<Fields>[] {
	return [
		{ name: "Key", head: true, wide: true, sort: (k) => text(k.key), cell: (k) => <a href={to(["queues", queue, "keys", bytes(k.key)])}>{text(k.key)}</a> },
		{ name: "Share", sort: (k) => num(k.share), cell: (k) => <Share share={num(k.share)} fair={num(k.fair_share)} max={max} /> },
		{ name: "State", wide: true, broad: true, sort: (k) => text(k.state), cell: (k) => <Why queue={queue} k={k} /> },
		{ name: "Weight", right: true, sort: (k) => num(k.weight), cell: (k) => <Num n={num(k.weight)} /> },
		{ name: "Ready", right: true, sort: (k) => num(k.depth), cell: (k) => <><Num n={num(k.depth)} />{num(k.counting) === 1 && <small title="It is still being counted"> +</small>}</> },
		{ name: "Leased", right: true, sort: (k) => num(k.leased), cell: (k) => <Num n={num(k.leased)} /> },
		{ name: "Delayed", right: true, sort: (k) => num(k.delayed), cell: (k) => <Num n={num(k.delayed)} /> },
		{ name: "Oldest", right: true, sort: (k) => num(k.oldest_ms), cell: (k) => (num(k.depth) > 0 ? duration(maybe(k.oldest_ms)) : <span class="zero">–</span>) },
		{ name: "Actions", cell: (k) => <span class="rowactions">{keyActions(queue, k).map((a) => <ActionButton key={a.label} small action={a} />)}</span> },
	];
}

/** Why is the state of a key with its reason. That of a key that could deliver is the queue's, which its page says once. */
export function Why({ queue, k }: { queue: Bytes; k: Fields }) {
	const state = text(k.state);
	const reason = state === "ready" || state === "no_consumer" ? "" : spoken(text(k.reason));
	return (
		<span class="why">
			<State state={state} />
			{state === "ordered" && text(k.waits_for) !== "" ? <span class="reason"><WaitsFor queue={queue} k={k} /></span> : reason !== "" && <span class="reason">{reason}</span>}
		</span>
	);
}

/** Reason says at length why a key or a message waits, and until when if that is known. */
export function Reason({ queue, k }: { queue: Bytes; k: Fields }) {
	if (text(k.waits_for) !== "") {
		return <Ordered queue={queue} k={k} />;
	}
	const reason = text(k.reason);
	return <>{spoken(reason)}{!stamped(reason) && maybe(k.ready_at) !== null && <> · until <Time at={maybe(k.ready_at)} /> ({ago(maybe(k.ready_at))})</>}</>;
}

/** Ordered says at length what a key of an ordered queue waits for. */
export function Ordered({ queue, k }: { queue: Bytes; k: Fields }) {
	return <>It <WaitsFor queue={queue} k={k} />. The next message of the key goes out when that one has ended.</>;
}

/** WaitsFor is the message of an ordered queue that a key waits for, and until when. */
export function WaitsFor({ queue, k }: { queue: Bytes; k: Fields }) {
	const leased = num(k.leased) > 0;
	return (
		<>
			waits for <a href={to(["queues", queue, "messages", bytes(k.waits_for)])}><Code>{text(k.waits_for)}</Code></a>,{" "}
			{leased ? "which is leased" : "which is tried again"}{maybe(k.ready_at) !== null && <>{leased ? " until " : " at "}<Time at={maybe(k.ready_at)} /></>}
		</>
	);
}

export function KeyPage({ queue, fairKey, route }: { queue: Bytes; fairKey: Bytes; route: Route }) {
	const asked = useReply(["FILA.EXPLAIN", queue, "KEY", fairKey], 2000);
	const k = asked.data as Fields | undefined;
	const name = text(fairKey);
	if (!k) {
		return <Card title={`Key ${name}`}>{asked.error ? <Failure error={asked.error} /> : <Loading />}</Card>;
	}
	const messages = num(k.depth) + num(k.leased) + num(k.delayed);
	const more: Action[] = [
		{
			label: "Depth", title: `Depth of ${name}`, need: { command: "FILA.KEY SET", queue, access: "both" },
			text: "The queue refuses more messages of this key, in place of its own limit for keys. 0 goes back to that.",
			fields: [{ name: "depth", label: "Messages at most", kind: "number", min: 0, value: text(k.max_depth), required: true }],
			words: (v) => ["FILA.KEY", "SET", queue, fairKey, "MAXDEPTH", v.depth ?? ""], done: () => `The depth of ${name} is set.`, submit: "Set depth",
		},
		{
			label: "Reset settings", title: `Reset settings of ${name}`, need: { command: "FILA.KEY DEL", queue, access: "both" }, text: "Weight 1, not paused, as many messages as its queue says. Its messages stay.",
			words: () => ["FILA.KEY", "DEL", queue, fairKey], done: () => `The settings of ${name} are reset.`,
		},
		{
			label: "Purge", title: `Purge ${name}`, need: { command: "FILA.PURGE", queue, access: "both" },
			danger: { what: `This removes ${plural(messages, "message")} of the key ${name} in ${text(queue)}.`, name: text(queue) },
			words: () => ["FILA.PURGE", queue, "KEY", fairKey], done: (n) => `${plural(num(n), "message")} removed.`,
		},
	];
	return (
		<Card title={`Key ${name}`} actions={<Actions>{[...keyActions(queue, { ...k, key: fairKey as never }), ...more].map((a) => <ActionButton key={a.label} action={/^(Pause|Resume|Purge)$/.test(a.label) ? { ...a, label: a.label + " key" } : a} />)}</Actions>}>
			<p class="explain"><State state={text(k.state)} /> <Reason queue={queue} k={k} /></p>
			<p><a href={to(["queues", queue, "messages"], { key: name })}>Its messages</a></p>
			<KeyPast queue={queue} fairKey={fairKey} route={route} />
			<Facts facts={[
				["Share", <Share share={num(k.share)} fair={num(k.fair_share)} />],
				["Weight", short(num(k.weight))],
				["Messages at most", num(k.max_depth) > 0 ? count(num(k.max_depth)) : "as the queue says"],
				["Ready", count(num(k.depth))], ["Leased", count(num(k.leased))], ["Delayed", count(num(k.delayed))],
				["Oldest ready", num(k.depth) ? duration(maybe(k.oldest_ms)) : "–"],
				["Delivered", count(num(k.delivered))],
				["Passed, refused by throttles", `${count(num(k.passed))}, ${count(num(k.refused))}`],
				["Waited for throttles", duration(num(k.waited_ms))],
				...(k.budget !== null && k.budget !== undefined ? [["Waits for the budget", `${text(k.budget)}: the charge is ${text(k.charge)}, ${text(k.available)} available`] as [string, string]] : []),
			]} />
			<KeyTables k={k} />
		</Card>
	);
}

/** queuesOf are the queues that rows name, each once. */
export function queuesOf(rows: Fields[]): Bytes[] {
	return [...new Map(rows.map((r) => [key(bytes(r.queue)), bytes(r.queue)])).values()];
}

/** KeyTables shows what an explanation says of throttles and leases. */
export function KeyTables({ k }: { k: Fields }) {
	return (
		<>
			{list(k.blocked_by).length > 0 && (
				<>
					<h3>Throttles that do not admit its next message</h3>
					<Table caption="Throttles that do not admit the next message" rows={maps(k.blocked_by)} id={(t) => key(bytes(t.throttle))} columns={[
						{ name: "Throttle", head: true, cell: (t) => <a href={to(["throttles", bytes(t.throttle)])}>{text(t.throttle)}</a> },
						{ name: "Leases", right: true, cell: (t) => (t.concurrency === null ? count(num(t.in_use)) : `${count(num(t.in_use))} of ${text(t.limit ?? t.concurrency)}`) },
						{ name: "Rate", right: true, cell: (t) => (t.rate === null ? "–" : `${figure(num(t.rate))}/s`) },
						{ name: "Next token", right: true, cell: (t) => (t.next_token_at === null ? "–" : ago(maybe(t.next_token_at))) },
					]} />
				</>
			)}
			{list(k.holders).length > 0 && (
				<>
					<h3>Leases that fill a throttle{num(k.holder_count) > list(k.holders).length && `, ${list(k.holders).length} of ${count(num(k.holder_count))}`}</h3>
					<Table caption="Leases that fill a throttle" rows={maps(k.holders)} id={(h) => text(h.id)} columns={[
						{ name: "Message", head: true, cell: (h) => <a href={to(["queues", bytes(h.queue), "messages", bytes(h.id)])}><Code>{text(h.id)}</Code></a> },
						{ name: "Queue", cell: (h) => text(h.queue) }, { name: "Key", cell: (h) => text(h.key) },
						{ name: "Consumer", cell: (h) => text(h.consumer) || "–" }, { name: "Until", cell: (h) => <Time at={maybe(h.lease_until)} /> },
					]} />
					{num(k.holder_count) > list(k.holders).length && <p class="caption">All of them: {queuesOf(list(k.holders) as Fields[]).map((q, i) => <>{i > 0 && ", "}<a key={key(q)} href={to(["queues", q, "messages"], { status: "leased" })}>leased messages of {text(q)}</a></>)}</p>}
				</>
			)}
		</>
	);
}
