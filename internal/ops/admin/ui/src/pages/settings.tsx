// The settings of a queue.

import type { Bytes, Fields } from "../api";
import { useApp, useReply } from "../app";
import type { Action, Field } from "../app";
import { CommandLine } from "../action";
import { count, duration, size } from "../format";
import { to } from "../route";
import { ActionButton, Card, Empty, Facts, Failure, Loading, Time } from "../ui";
import { maybe, num, text } from "../value";

/** Setting is a row of FILA.QUEUE INFO with its option of FILA.QUEUE ALTER. */
interface Setting {
	name: string;
	option: string;
	label: string;
	kind: "ms" | "count" | "bytes" | "percent" | "switch";
	zero: string;
}

const settings: Setting[] = [
	{ name: "visibility_ms", option: "VISIBILITY", label: "Visibility timeout", kind: "ms", zero: "default" },
	{ name: "max_attempts", option: "MAXATTEMPTS", label: "Attempts before a message is dead", kind: "count", zero: "no limit" },
	{ name: "backoff_ms", option: "BACKOFF", label: "First delay after a failure", kind: "ms", zero: "none" },
	{ name: "max_backoff_ms", option: "MAXBACKOFF", label: "Longest delay after a failure", kind: "ms", zero: "none" },
	{ name: "backoff_jitter_percent", option: "BACKOFFJITTER", label: "Random part of a delay", kind: "percent", zero: "none" },
	{ name: "ttl_ms", option: "TTL", label: "Time to live of messages", kind: "ms", zero: "no limit" },
	{ name: "max_depth", option: "MAXDEPTH", label: "Messages at most", kind: "count", zero: "no limit" },
	{ name: "key_max_depth", option: "KEYMAXDEPTH", label: "Messages of a key at most", kind: "count", zero: "no limit" },
	{ name: "dedup_window_ms", option: "DEDUPWINDOW", label: "Deduplication window", kind: "ms", zero: "none" },
	{ name: "lua_timeout_ms", option: "LUATIMEOUT", label: "Time of a script at most", kind: "ms", zero: "default" },
	{ name: "lua_memory_bytes", option: "LUAMEMORY", label: "Memory of a script at most", kind: "bytes", zero: "default" },
	{ name: "breaker_errors", option: "BREAKERERRORS", label: "Errors of a script that open its breaker", kind: "count", zero: "default" },
	{ name: "signals", option: "SIGNALS", label: "Records signals", kind: "switch", zero: "off" },
	{ name: "ordered", option: "ORDERED", label: "Ordered: one message of a key at a time", kind: "switch", zero: "off" },
	{ name: "result_ttl_ms", option: "RESULTTTL", label: "How long results of acks are kept", kind: "ms", zero: "not at all" },
	{ name: "keep_done_ms", option: "KEEPDONE", label: "How long it is known what is done", kind: "ms", zero: "not at all" },
	{ name: "batch", option: "BATCH", label: "Messages that a key gathers", kind: "count", zero: "none" },
	{ name: "batch_wait_ms", option: "BATCHWAIT", label: "Longest time for which a key gathers", kind: "ms", zero: "none" },
];

function shown(s: Setting, q: Fields): string {
	const v = q[s.name];
	if (s.kind === "switch") {
		return num(v) === 1 || text(v).toLowerCase() === "on" ? "on" : "off";
	}
	const n = num(v);
	if (n === 0) {
		return s.zero;
	}
	return s.kind === "ms" ? duration(n) : s.kind === "bytes" ? size(n) : s.kind === "percent" ? `${n} %` : count(n);
}

export function Settings({ queue }: { queue: Bytes }) {
	const app = useApp();
	const why = app.may({ command: "FILA.QUEUE INFO", queue, access: "either" });
	const asked = useReply(why === "" ? ["FILA.QUEUE", "INFO", queue] : null, 5000);
	if (why !== "") {
		return <Empty title="You may not see the settings of this queue.">This {why}.</Empty>;
	}
	if (!asked.data) {
		return <Card>{asked.error ? <Failure error={asked.error} /> : <Loading />}</Card>;
	}
	const q = asked.data as Fields;
	return (
		<Card title="Settings" actions={<ActionButton action={alter(queue, q, asked.reload)} />}>
			<Facts facts={[
				...settings.map((s) => [s.label, shown(s, q)] as [string, string]),
				["Dead-letter queue", text(q.dlq) || (num(q.is_dlq) ? "is one itself" : "none: dead messages are dropped")],
				["Topics", num(q.topics) > 0 ? <a href={to(["queues", queue, "topics"])}>bound to {count(num(q.topics))}</a> : "none"],
				["Paused", [num(q.paused_in) && "enqueues", num(q.paused_out) && "deliveries"].filter(Boolean).join(", ") || "no"],
				["Created", <Time at={maybe(q.created_at)} />],
			]} />
			<h3>Since the broker started</h3>
			<Facts facts={(["enqueued", "delivered", "acked", "nacked", "expired", "released", "dead_lettered", "dropped", "redriven", "deduplicated", "ttl_expired"] as const)
				.map((name) => [name.replace("_", " "), count(num(q[name]))])} />
			<details><summary>Command line</summary><CommandLine words={["FILA.QUEUE", "INFO", queue]} /></details>
		</Card>
	);
}

/** alter changes the settings that differ from what they are. */
function alter(queue: Bytes, q: Fields, after: () => void): Action {
	const units: Record<Setting["kind"], string> = { ms: ", ms", bytes: ", bytes", percent: ", percent", count: "", switch: "" };
	const now = (s: Setting) => (s.kind === "switch" ? (shown(s, q) === "on" ? "ON" : "OFF") : text(q[s.name]));
	const inputs: Field[] = settings.map((s) => ({
		name: s.name, label: s.label + units[s.kind], value: now(s), hint: s.kind === "switch" ? undefined : `0: ${s.zero}`,
		...(s.kind === "switch" ? { kind: "select" as const, options: [["ON", "on"], ["OFF", "off"]] as [string, string][] } : { kind: "number" as const, min: 0 }),
	}));
	if (!num(q.is_dlq)) {
		inputs.push({ name: "dlq", label: "Dead-letter queue", value: text(q.dlq), hint: "Empty: dead messages are dropped." });
	}
	return {
		label: "Change settings", title: `Settings of ${text(queue)}`, need: { command: "FILA.QUEUE ALTER", queue, access: "both" }, submit: "Save", fields: inputs,
		words: (v) => {
			const words: Bytes[] = ["FILA.QUEUE", "ALTER", queue];
			for (const s of settings) {
				const value = v[s.name] ?? "";
				if (value !== "" && value !== now(s)) {
					words.push(s.option, value);
				}
			}
			if (!num(q.is_dlq) && (v.dlq ?? "") !== text(q.dlq)) {
				words.push(...(v.dlq ? ["DLQ", v.dlq] : ["NODLQ"]));
			}
			return words;
		},
		done: () => "The settings are changed.", after,
	};
}
