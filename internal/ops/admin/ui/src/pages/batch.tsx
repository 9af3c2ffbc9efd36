// What is done with many messages: those that a search finds, or some of them. They are counted first, then the broker is
// sent a few at a time, at a rate, and can be stopped.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields, Refusal } from "../api";
import { CommandLine, initial, Input } from "../action";
import { refusalOf, useApp } from "../app";
import type { Field, Values } from "../app";
import { count, duration, plural } from "../format";
import { to } from "../route";
import { Card, Failure, Level } from "../ui";
import { bytes, key, list, num, page, text } from "../value";

/** Deed is what can be done with messages. */
interface Deed {
	label: string;
	done: string; // of messages: "12 cancelled"
	text: string;
	need: string;
	at: number; // messages of a command
	fields: Field[];
	danger?: boolean;
	only?: string; // a status: messages in another one are left out
	words(queue: Bytes, ids: Bytes[], v: Values): Bytes[];
	/** whole is one command for all that the search finds, or for those that are picked; the broker goes on by itself. */
	whole?(queue: Bytes, search: Bytes[], picked: Bytes[], until: number, v: Values): Bytes[];
}

const deeds: Record<string, Deed> = {
	cancel: {
		label: "Cancel", done: "cancelled", need: "FILA.CANCEL", at: 100, danger: true, text: "They are removed, whatever their status. Receipts of leased ones are lost.", fields: [],
		words: (queue, ids) => ["FILA.CANCEL", queue, ...ids],
	},
	reschedule: {
		label: "Reschedule", done: "rescheduled", need: "FILA.RESCHEDULE", at: 1, text: "Their attempts and their places stay. Leased messages are left as they are.",
		fields: [{ name: "ms", label: "Ready in, ms", kind: "number", min: 0, value: "0", hint: "0: at once." }],
		words: (queue, ids, v) => ["FILA.RESCHEDULE", queue, ids[0] ?? "", v.ms || "0"],
	},
	release: {
		label: "Release", done: "released", need: "FILA.RESCHEDULE", at: 1, text: "Those that wait for their time are ready at once. The others are left as they are.", fields: [], only: "delayed",
		words: (queue, ids) => ["FILA.RESCHEDULE", queue, ids[0] ?? "", "0"],
	},
	redrive: {
		label: "Redrive", done: "moved", need: "FILA.REDRIVE", at: 0, text: "They go back to the queues that they came from, and their attempts start again. What dies meanwhile is left out.", fields: [],
		words: () => [],
		whole: (queue, search, picked, until, v) => [
			"FILA.REDRIVE", queue,
			...(picked.length > 0 ? picked.flatMap((id) => ["ID", id]) : [...redriveOptions(search), ...(search.includes("UNTIL") ? [] : ["UNTIL", String(until)])]),
			...(v.rate ? ["RATE", v.rate] : []),
		],
	},
};

/** redriveOptions are the options of a search that a redrive has as well: it moves dead messages anyway. */
function redriveOptions(search: Bytes[]): Bytes[] {
	const all = search.slice(2);
	const at = all.indexOf("STATUS");
	return at < 0 ? all : [...all.slice(0, at), ...all.slice(at + 2)];
}

/** brokerTime is the time of the broker in milliseconds, or that of this machine if the user may not ask for it. */
async function brokerTime(): Promise<number> {
	try {
		const [seconds, micros] = list(await run(["TIME"]));
		return num(seconds) * 1000 + Math.floor(num(micros) / 1000);
	} catch {
		return Date.now();
	}
}

const idsMax = 100_000; // messages of one batch
const pickedMax = 1000; // messages that one command names
const step = 10_000;

interface Progress {
	of: number;
	done: number;
	refused: number;
	last?: string; // refusal
	began: number;
	running: boolean;
	again?: number; // moved messages that have died again
}

/** Batch offers what can be done with the messages that are picked, or with all that the search finds. */
export function Batch({ queue, search, some, picked, dlq, after, children }: {
	queue: Bytes; search: Bytes[]; some: boolean; picked: Bytes[]; dlq: boolean; after(): void; children?: ComponentChildren;
}) {
	const app = useApp();
	const [name, choose] = useState("");
	const [ids, setIds] = useState<Bytes[]>();
	const [named, setNamed] = useState<Bytes[]>([]); // those of them that were picked; none: all that the search finds
	const [counted, setCounted] = useState(0); // when, by the clock of the broker
	const [values, set] = useState<Values>({});
	const [typed, type] = useState("");
	const [error, fail] = useState<Refusal>();
	const [progress, show] = useState<Progress>();
	const cancel = useRef<AbortController | null>(null);
	const deed = deeds[name];
	const under = useRef<{ p: Progress; deed: Deed } | null>(null); // the batch that the page sends message by message
	useEffect(() => () => {
		cancel.current?.abort();
		if (under.current) {
			const { p, deed } = under.current;
			app.say(`${deed.label}: stopped with its page, ${count(p.done)} of ${count(p.of)} ${deed.done}.`);
		}
	}, []);
	const runs = progress?.running === true && !deed?.whole;
	useEffect(() => {
		if (!runs) {
			return;
		}
		const ask = (e: BeforeUnloadEvent) => e.preventDefault();
		addEventListener("beforeunload", ask);
		return () => removeEventListener("beforeunload", ask);
	}, [runs]);
	const begin = async (next: string) => {
		cancel.current?.abort();
		const signal = (cancel.current = new AbortController()).signal;
		const d = deeds[next]!;
		choose(next);
		set({ ...initial(d.fields), rate: "100" });
		type("");
		fail(undefined);
		show(undefined);
		if (d.whole) {
			setCounted(await brokerTime());
		}
		setNamed(picked);
		setIds(picked.length > 0 ? picked : undefined);
		if (picked.length > 0) {
			return;
		}
		let found: Bytes[] = [];
		try {
			for (let cursor: Bytes = "0"; found.length < idsMax;) {
				const got: { next: Bytes; items: Fields[] } = page(await run([...search, "CURSOR", cursor, "COUNT", String(step)], signal));
				found = [...found, ...got.items.filter((m) => !d.only || text(m.status) === d.only).map((m) => bytes(m.id))];
				cursor = got.next;
				if (text(cursor) === "0") {
					break;
				}
			}
			setIds(found.slice(0, idsMax));
		} catch (e) {
			if (!signal.aborted) {
				fail(refusalOf(e));
			}
		}
	};
	const stop = () => {
		cancel.current?.abort();
		show((p) => (p ? { ...p, running: false } : p));
		if (deed?.whole) {
			void run(["FILA.REDRIVE", queue, "STOP"]).catch((e) => fail(refusalOf(e)));
		}
	};
	const start = async () => {
		if (!deed || !ids) {
			return;
		}
		const signal = (cancel.current = new AbortController()).signal;
		const p: Progress = { of: ids.length, done: 0, refused: 0, began: Date.now(), running: true };
		show(p);
		under.current = deed.whole ? null : { p, deed };
		try {
			await (deed.whole ? redriven(deed.whole(queue, search, named, counted, values), p, signal) : each(p, signal));
		} catch (e) {
			if (!signal.aborted) {
				fail(refusalOf(e));
			}
		}
		under.current = null;
		if (!signal.aborted) {
			show({ ...p, running: false });
			app.say(`${deed.label}: ${plural(p.done, "message")} ${deed.done}.`);
		}
		after();
	};
	const each = async (p: Progress, signal: AbortSignal) => {
		const rate = Number(values.rate) || 0;
		const at = rate > 0 ? Math.min(deed!.at, Math.max(1, Math.ceil(rate / 5))) : deed!.at;
		for (let i = 0; i < ids!.length; i += at) {
			const some = ids!.slice(i, i + at);
			try {
				const reply = await run(deed!.words(queue, some, values), signal);
				const n = deed!.at > 1 ? num(reply) : 1;
				p.done += n;
				p.refused += some.length - n;
			} catch (e) {
				const refusal = refusalOf(e);
				if (signal.aborted || refusal.status === 0 || refusal.code === "NOPERM") {
					throw e;
				}
				p.refused += some.length;
				p.last = refusal.text;
			}
			show({ ...p });
			const ahead = rate > 0 ? ((i + some.length) / rate) * 1000 - (Date.now() - p.began) : 0;
			if (ahead > 0) {
				await new Promise((resolve) => setTimeout(resolve, ahead));
			}
			if (signal.aborted) {
				return;
			}
		}
	};
	const redriven = async (words: Bytes[], p: Progress, signal: AbortSignal) => {
		const mine = new Set(ids!.map(key));
		await run(words, signal);
		for (let running = true; running && !signal.aborted;) {
			const s = (await run(["FILA.STATS", queue], signal)) as Fields;
			p.done = num(s.redrive_moved);
			p.refused = num(s.redrive_skipped);
			running = num(s.redrive_running) === 1;
			const { items } = page(await run(["FILA.BROWSE", queue, "SINCE", String(num(s.redrive_started_at)), "COUNT", String(step)], signal));
			p.again = items.filter((m) => mine.has(key(bytes(m.id)))).length;
			show({ ...p });
			if (running) {
				await new Promise((resolve) => setTimeout(resolve, 1000));
			}
		}
	};
	const offered = Object.entries(deeds).filter(([n]) => (n === "redrive") === dlq || n === "cancel");
	const what = picked.length > 0 ? plural(picked.length, "message") : "all that are found";
	const words = deed && ids && (deed.whole ? deed.whole(queue, search, named, counted, values) : deed.words(queue, ids.slice(0, Math.max(1, deed.at)), values));
	const more = deed && ids && !deed.whole && ids.length > deed.at;
	return (
		<>
			{some && <div class="actions batch" role="group" aria-label="With these messages">
				{offered.map(([n, d]) => {
					const why = app.may({ command: d.need, queue, access: d.whole ? "consume" : "both" }) || (d.whole && picked.length > pickedMax ? `takes at most ${count(pickedMax)} that are chosen` : "");
					return <button type="button" key={n} class={d.danger ? "danger" : ""} aria-disabled={why !== ""} title={why}
						onClick={() => (why === "" ? void begin(n) : app.say(`${d.label}: ${why}`))}>{d.label} {what}</button>;
				})}
				{children}
			</div>}
			{deed && (
				<Card title={ids ? `${deed.label} ${plural(ids.length, "message")}` : "Counting…"}>
					<Failure error={error} />
					{ids && !progress && (
						<form onSubmit={(e) => {
							e.preventDefault();
							if (!deed.danger || typed === text(queue)) {
								void start();
							}
						}}>
							<p>{deed.text} {deed.whole ? "The broker goes on with it when this page is closed." : "This page sends them one after the other: when it is closed, it ends."}</p>
							<div class="fields across">
								{[...deed.fields, { name: "rate", label: "Messages per second", kind: "number" as const, min: 1, hint: "Empty: as fast as it goes." }].map((f) => (
									<Input key={f.name} field={f} value={values[f.name] ?? ""} onChange={(v) => set((all) => ({ ...all, [f.name]: v }))} />
								))}
								{deed.danger && <Input field={{ name: "confirm", label: `Type ${text(queue)} to confirm`, required: true }} value={typed} onChange={type} />}
							</div>
							<p class="caption">This sends{more ? ", and more like it" : ""}:</p>
							{words && <CommandLine words={words} />}
							<div class="actions end">
								<button type="button" onClick={() => choose("")}>Not now</button>
								<button type="submit" class={deed.danger ? "danger solid" : "primary"} disabled={ids.length === 0 || (deed.danger && typed !== text(queue))}>{deed.label} {plural(ids.length, "message")}</button>
							</div>
						</form>
					)}
					{progress && <Running p={progress} deed={deed} onStop={stop} onClose={() => choose("")} queue={queue} />}
				</Card>
			)}
		</>
	);
}

/** Running says how far a batch is, and how long it still takes. */
function Running({ p, deed, onStop, onClose, queue }: { p: Progress; deed: Deed; onStop(): void; onClose(): void; queue: Bytes }) {
	const at = p.done + p.refused;
	const left = at > 0 ? ((p.of - at) * (Date.now() - p.began)) / at : null;
	return (
		<div class="progress">
			<Level value={at} max={Math.max(1, p.of)} label={`${count(at)} of ${count(p.of)}`} />
			<span role="status">
				{count(p.done)} of {count(p.of)} {deed.done}{p.refused > 0 && `, ${count(p.refused)} could not be`}{p.last && ` (${p.last})`}
				{p.running && left !== null && left > 0 && `, ${duration(Math.ceil(left / 1000) * 1000)} left`}
				{!p.running && at < p.of && ", stopped"}
			</span>
			{p.running && <span>{deed.whole ? "It goes on when this page is closed." : "It ends when this page is closed."}</span>}
			{p.again !== undefined && <span>{count(p.again)} have died again{p.again > 0 && <>: <a href={to(["queues", queue, "dead"])}>why</a></>}</span>}
			{p.running ? <button type="button" onClick={onStop}>Stop</button> : <button type="button" onClick={onClose}>Close</button>}
		</div>
	);
}
