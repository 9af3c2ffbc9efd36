import type { Bytes, Fields } from "../api";
import type { Action, Values } from "../app";
import { ago, count, duration, exactTime, figure, percent, plural, short } from "../format";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Empty, Level, Num } from "../ui";
import { bytes, key, maybe, num, text } from "../value";
import { List } from "./listing";

/** ofPattern tells whether a throttle has the limits of a pattern. */
const ofPattern = (t: Fields) => t.pattern !== null && t.pattern !== undefined;

/** isPattern tells whether it is a pattern: each throttle with its prefix has its limits, for itself. */
const isPattern = (t: Fields) => t.instances !== null && t.instances !== undefined;

/** isSet tells whether it has a setting of its own, which one that is only held has not. */
const isSet = (t: Fields) => !ofPattern(t) && (t.rate !== null || t.concurrency !== null);

function set(t?: Fields): Action {
	const had = (name: string) => (t && t[name] !== null && t[name] !== undefined ? text(t[name]) : "");
	const name = t ? bytes(t.key) : undefined;
	return {
		label: !t ? "New throttle" : isSet(t) ? "Change" : "Set limits", title: t ? `Change ${text(name)}` : "New throttle", need: { command: "FILA.THROTTLE SET" }, submit: "Set",
		text: t && isPattern(t) ? `Each throttle that begins with ${text(name).slice(0, -1)} has these limits, for itself, unless it has limits of its own or a longer pattern covers it.`
			: t && ofPattern(t) ? `It has the limits of ${text(t.pattern)} until it gets these, for itself alone.`
			: "It limits the messages of all queues that name it, at once, also those that wait. With a name that ends in * each throttle with that prefix has the limits, for itself.",
		fields: [
			...(t ? [] : [{ name: "key", label: "Name", required: true, placeholder: "tenant:acme" }]),
			{ name: "rate", label: "Messages per second", value: had("rate"), placeholder: "no limit" },
			{ name: "burst", label: "Burst: the most that go out at once after a pause", kind: "number" as const, min: 1, value: had("burst"), placeholder: "the rate" },
			{ name: "cost", label: "A message takes its cost in tokens", kind: "check" as const, value: num(t?.by_cost) ? "on" : "" },
			{ name: "concurrency", label: "Leases at the same time", kind: "number" as const, min: 1, value: had("concurrency"), placeholder: "no limit" },
			{ name: "adaptive", label: "Fewer while work fails", kind: "check" as const, value: t && t.min !== null && t.min !== undefined ? "on" : "" },
			{ name: "min", label: "At least", kind: "number" as const, min: 1, value: had("min"), placeholder: "1", hint: "Only for one that follows failures." },
		],
		words: (v: Values) => [
			"FILA.THROTTLE", "SET", name ?? v.key ?? "",
			...(v.rate ? ["RATE", v.rate] : []), ...(v.burst ? ["BURST", v.burst] : []), ...(v.cost ? ["BY", "COST"] : []),
			...(v.concurrency ? ["CONCURRENCY", v.concurrency] : []), ...(v.adaptive ? ["ADAPTIVE"] : []), ...(v.adaptive && v.min ? ["MIN", v.min] : []),
		],
		done: () => "The throttle is set.",
	};
}

/** hold stops what names a throttle for some time. */
function hold(name: Bytes, after: () => void): Action {
	return {
		label: "Hold", title: `Hold the throttle ${text(name)}`, need: { command: "FILA.THROTTLE HOLD" }, submit: "Hold", after,
		text: "No message that names it is delivered for that time. What is leased stays leased.",
		fields: [{ name: "ms", label: "For, ms", kind: "number", min: 1, value: "60000", required: true }],
		words: (v) => ["FILA.THROTTLE", "HOLD", name, v.ms ?? ""], done: () => "The throttle is held.",
	};
}

function release(name: Bytes, after: () => void): Action {
	return {
		label: "End hold", title: `End the hold of ${text(name)}`, need: { command: "FILA.THROTTLE HOLD" }, submit: "End the hold", after,
		text: "Its messages are delivered at once, as its limits allow.",
		words: () => ["FILA.THROTTLE", "HOLD", name, "0"], done: () => "The hold has ended.",
	};
}

function remove(name: Bytes, waiting: number, after: () => void): Action {
	return {
		label: "Remove", title: `Remove the throttle ${text(name)}`, need: { command: "FILA.THROTTLE DEL" },
		danger: { what: `The limits of ${text(name)} go; ${count(waiting)} keys that wait for it go on at once.`, name: text(name) },
		words: () => ["FILA.THROTTLE", "DEL", name], done: () => "The throttle is removed.", after,
	};
}

export function Throttles({ route }: { route: Route }) {
	return (
		<List route={route} of={{
			title: "Throttles", what: "throttles", filter: "Filter by name", words: ["FILA.THROTTLE", "LIST"], command: "FILA.THROTTLE LIST", create: set(),
			sub: "Limits of rate and of leases that messages name, across queues. A filter shows the throttles of patterns as well.", id: (t) => key(bytes(t.key)),
			empty: <Empty title="There is no throttle yet.">Messages name throttles, such as the one of a tenant or of a provider; a name without limits does nothing.</Empty>,
			columns: (reload) => [
				{ name: "Throttle", head: true, wide: true, sort: (t) => text(t.key), cell: (t) => <Name t={t} /> },
				{ name: "Tokens", hint: "In the bucket, and how many it gets a second", sort: (t) => num(t.tokens), cell: (t) => (t.rate === null ? <span class="zero">–</span> : (
					<span class="gauge"><Level value={num(t.tokens)} max={num(t.burst)} tone={num(t.tokens) < 1 ? "wait" : undefined} label={`${text(t.tokens)} of ${text(t.burst)} tokens`} />
						<span>{short(Math.floor(num(t.tokens)))} of {short(num(t.burst))}<small> {num(t.rate) < 10_000 ? figure(num(t.rate)) : short(num(t.rate))}/s</small></span></span>
				)) },
				{ name: "Goes on", right: true, hint: "At the end of its hold, or when the next token comes", sort: (t) => Math.max(num(t.held_until), num(t.next_at)), cell: (t) => <Next t={t} /> },
				{ name: "Leases", sort: (t) => num(t.held), cell: (t) => <Leases t={t} /> },
				{ name: "Keys waiting", right: true, sort: (t) => num(t.waiting), cell: (t) => (num(t.waiting) > 0 ? <Badge tone="wait">{count(num(t.waiting))}</Badge> : <Num n={0} />) },
				{ name: "Passed", right: true, sort: (t) => num(t.passed), cell: (t) => <Num n={num(t.passed)} /> },
				{ name: "Waited", right: true, hint: "By all keys together", sort: (t) => num(t.waited_ms), cell: (t) => duration(num(t.waited_ms)) },
				{ name: "Actions", cell: (t) => <span class="rowactions">{throttleActions(t, reload, true)}</span> },
			],
		}} />
	);
}

/** throttleActions are the buttons of a throttle. */
export function throttleActions(t: Fields, reload: () => void, small?: boolean) {
	return (
		<>
			<ActionButton small={small} action={{ ...set(t), after: reload }} />
			{!isPattern(t) && <ActionButton small={small} action={t.held_until === null ? hold(bytes(t.key), reload) : release(bytes(t.key), reload)} />}
			{isSet(t) && <ActionButton small={small} action={remove(bytes(t.key), num(t.waiting), reload)} />}
		</>
	);
}

function Name({ t }: { t: Fields }) {
	return (
		<>
			<a href={to(["throttles", bytes(t.key)])}>{text(t.key)}</a>
			{num(t.by_cost) === 1 && <> <small>by cost</small></>}
			{isPattern(t) && <> <small>pattern, <a href={to(["throttles"], { match: text(t.key) })}>{plural(num(t.instances), "throttle")}</a></small></>}
			{ofPattern(t) && <> <small>of {text(t.pattern)}</small></>}
		</>
	);
}

/** Next shows for how long a throttle is still held, or when it has tokens for the next message. */
export function Next({ t }: { t: Fields }) {
	const until = maybe(t.held_until);
	if (until !== null) {
		const left = duration(Math.max(0, Math.ceil((until - Date.now()) / 1000) * 1000));
		return <Badge tone="wait" title={`held until ${exactTime(until)}`}>held, {left} left</Badge>;
	}
	return t.next_at === null ? <span class="zero">–</span> : <>{ago(maybe(t.next_at))}</>;
}

/** Leases shows how many leases name a throttle, and how many may. */
export function Leases({ t }: { t: Fields }) {
	if (t.concurrency === null) {
		return <span class="zero">{count(num(t.held))}</span>;
	}
	const limit = t.limit === null || t.limit === undefined ? num(t.concurrency) : Math.floor(num(t.limit));
	const adaptive = t.min !== null && t.min !== undefined;
	return (
		<span class="gauge">
			<Level value={num(t.held)} max={num(t.concurrency)} tone={num(t.held) >= limit ? "wait" : undefined} label={`${count(num(t.held))} of ${text(t.concurrency)} leases, ${percent(num(t.held) / Math.max(1, limit))} of what is allowed now`} />
			<span>{count(num(t.held))} of {count(limit)}{adaptive && <small title={`Adaptive: follows failures between ${text(t.min)} and ${text(t.concurrency)}; ${text(t.cuts)} cuts`}> {text(t.cuts)} cuts</small>}</span>
		</span>
	);
}
