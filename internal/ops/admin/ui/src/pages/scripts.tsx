// The two scripts of a queue: edit, try, load, look back, roll back.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields, Refusal, Value } from "../api";
import { CommandLine, initial, Input } from "../action";
import { refusalOf, useApp, useReply } from "../app";
import type { Action, Field, Values } from "../app";
import { ago, count, micros, plural, size } from "../format";
import { refine } from "../route";
import type { Route } from "../route";
import { Diff } from "../diff";
import { ActionButton, Badge, Card, Choice, Code, Copy, Empty, Facts, Failure, Table, Time } from "../ui";
import { list, maps, maybe, num, pairs, text } from "../value";
import { headerWords } from "./queue";

type Hook = "ON_ENQUEUE" | "ON_FAILURE";

const starts: Record<Hook, string> = {
	ON_ENQUEUE: `-- Decides how a message is scheduled.
function on_enqueue(msg)
  return { fairness_key = msg.headers.tenant }
end
`,
	ON_FAILURE: `-- Decides what becomes of a message that has failed.
function on_failure(msg)
  if msg.attempts >= 5 then return { action = "dlq" } end
  return { delay_ms = fila.backoff(msg.attempts, 1000, 60000) }
end
`,
};

export function Scripts({ queue, route }: { queue: Bytes; route: Route }) {
	const app = useApp();
	const need = { queue, access: "either" as const };
	const why = app.may({ command: "FILA.SCRIPT GET", ...need });
	const hook: Hook = route.query.get("hook") === "on_failure" ? "ON_FAILURE" : "ON_ENQUEUE";
	const source = useReply(why === "" ? ["FILA.SCRIPT", "GET", queue, hook] : null);
	const stats = useReply(why === "" && app.may({ command: "FILA.SCRIPT STATS", ...need }) === "" ? ["FILA.SCRIPT", "STATS", queue] : null, 2000);
	const history = useReply(why === "" && app.may({ command: "FILA.SCRIPT HISTORY", ...need }) === "" ? ["FILA.SCRIPT", "HISTORY", queue, hook] : null);
	if (why !== "") {
		return <Empty title="You may not see the scripts of this queue.">This {why}.</Empty>;
	}
	const mine = maps(stats.data).find((s) => text(s.hook).toUpperCase() === hook);
	const reload = () => {
		source.reload();
		stats.reload();
		history.reload();
	};
	return (
		<div class="stack">
			<Choice label="Hook" value={hook} options={[["ON_ENQUEUE", "on_enqueue"], ["ON_FAILURE", "on_failure"]]}
				onChange={(v) => refine(route, { hook: v === "ON_FAILURE" ? "on_failure" : "" })} />
			<Failure error={source.error} />
			{mine && <Stats s={mine} />}
			{source.data !== undefined && <Editor key={hook} queue={queue} hook={hook} loaded={source.data} stats={mine} onChange={reload} />}
			<History queue={queue} hook={hook} versions={maps(history.data)} error={history.error} onChange={reload} />
		</div>
	);
}

function Stats({ s }: { s: Fields }) {
	const state = text(s.state);
	const error = text(s.last_error);
	return (
		<Card title={<>Runs <Badge tone={state === "closed" ? "good" : state === "open" ? "bad" : "wait"}>breaker {state}</Badge></>} note={<>version <Code title={text(s.version)}>{text(s.version).slice(0, 12)}</Code></>}>
			{error !== "" && num(s.errors) > 0 && <p class="failure"><strong>Last error{num(s.last_line) > 0 && <>, line {text(s.last_line)}</>}</strong>, {ago(maybe(s.last_at))}: {error}</p>}
			<Facts facts={[
				["Calls", count(num(s.calls))], ["Decisions that were known", count(num(s.recalled))], ["Errors", count(num(s.errors))],
				["Errors in a row", count(num(s.row))], ["Too slow or too large", count(num(s.limits))], ["Answered without the script", count(num(s.skipped))],
				["Breaker opened", count(num(s.opened))], ["p50, p99, longest", `${micros(num(s.p50_us))}, ${micros(num(s.p99_us))}, ${micros(num(s.max_us))}`],
				...(maybe(s.trial_at) ? [["Tried again", <Time at={maybe(s.trial_at)} />] as [string, ComponentChildren]] : []),
			]} />
		</Card>
	);
}

/** drafts are sources that were edited and not loaded, by user, queue and hook: they outlive a session that ends meanwhile. */
const drafts = new Map<string, string>();
const draftsMax = 20;

function Editor({ queue, hook, loaded, stats, onChange }: { queue: Bytes; hook: Hook; loaded: Value; stats?: Fields; onChange(): void }) {
	const there = loaded !== null;
	const current = there ? text(loaded) : starts[hook];
	const draft = JSON.stringify([useApp().session.user, queue, hook]);
	const [source, set] = useState(drafts.get(draft) ?? current);
	useEffect(() => {
		drafts.delete(draft);
		if (source !== current) {
			drafts.set(draft, source); // the newest is the last
		}
		if (drafts.size > draftsMax) {
			drafts.delete(drafts.keys().next().value ?? "");
		}
	}, [source, current]);
	const [tried, mark] = useState(0); // the line in which a dry run has failed
	const before = useRef(current);
	useEffect(() => {
		// Another source was loaded. What is being edited stays.
		const last = before.current;
		before.current = current;
		set((edited) => (edited === last ? current : edited));
	}, [current]);
	const line = tried > 0 ? tried : there && source === current && num(stats?.errors) > 0 ? num(stats?.last_line) : 0;
	const need = (command: string) => ({ command, queue, access: "both" as const });
	const name = text(queue);
	const load: Action = {
		label: "Load", title: `Load ${hook.toLowerCase()} into ${name}`, need: need("FILA.SCRIPT LOAD"), text: "Messages that are enqueued after the reply meet the new script. The old one stays in the history.",
		words: () => ["FILA.SCRIPT", "LOAD", queue, hook, source], done: (v) => `Loaded as ${text(v).slice(0, 12)}.`, after: onChange,
	};
	const remove: Action = {
		label: "Remove", title: `Remove ${hook.toLowerCase()} from ${name}`, need: need("FILA.SCRIPT DEL"), text: "What clients ask for counts again. The history stays.",
		words: () => ["FILA.SCRIPT", "DEL", queue, hook], done: () => "The script is removed.", after: onChange,
	};
	const changed = there && source !== current;
	return (
		<Card title={<>Source {!there && <Badge tone="quiet">not loaded</Badge>}{changed && <Badge tone="wait">changed</Badge>}</>} actions={
			<>
				{changed && <button type="button" onClick={() => set(current)}>Undo changes</button>}
				{there && <ActionButton action={remove} />}
				<ActionButton action={load} primary />
			</>
		}>
			<Lines source={source} line={line} onChange={(s) => {
				set(s);
				mark(0);
			}} />
			<Trial queue={queue} hook={hook} source={source} onLine={mark} />
		</Card>
	);
}

/** Lines is a text with the numbers of its lines. */
function Lines({ source, line, onChange }: { source: string; line: number; onChange(s: string): void }) {
	const gutter = useRef<HTMLDivElement>(null);
	const n = source.split("\n").length;
	return (
		<div class="code">
			<div class="gutter" ref={gutter} aria-hidden="true">
				{Array.from({ length: n }, (_, i) => <span key={i} class={i + 1 === line ? "bad" : ""}>{i + 1}</span>)}
			</div>
			<textarea aria-label={line > 0 ? `Source, error in line ${line}` : "Source"} rows={Math.min(28, Math.max(8, n))} spellcheck={false} wrap="off" value={source}
				onInput={(e) => onChange(e.currentTarget.value)}
				onScroll={(e) => gutter.current && (gutter.current.scrollTop = e.currentTarget.scrollTop)} />
		</div>
	);
}

const samples: Record<Hook, Field[]> = {
	ON_ENQUEUE: [
		{ name: "headers", label: "Headers", kind: "area", placeholder: "tenant: acme", hint: "One on a line." },
		{ name: "key", label: "Fairness key" },
		{ name: "throttle", label: "Throttles", hint: "Separated by spaces." },
		{ name: "size", label: "Size of the payload, bytes", kind: "number", min: 0 },
	],
	ON_FAILURE: [
		{ name: "headers", label: "Headers", kind: "area", placeholder: "tenant: acme", hint: "One on a line." },
		{ name: "key", label: "Fairness key" },
		{ name: "attempt", label: "Attempt", kind: "number", min: 1, value: "1" },
		{ name: "error", label: "Error", placeholder: "timeout" },
	],
};

/** Trial runs the source with a sample. It changes nothing. */
function Trial({ queue, hook, source, onLine }: { queue: Bytes; hook: Hook; source: string; onLine(line: number): void }) {
	const app = useApp();
	const [values, set] = useState<Values>(() => initial(samples[hook]));
	const [id, setID] = useState("");
	const [result, show] = useState<{ fields?: Fields; error?: Refusal }>();
	const why = app.may({ command: "FILA.SCRIPT TEST", queue, access: "either" });
	const words: Bytes[] = [
		"FILA.SCRIPT", "TEST", queue, hook, "SOURCE", source,
		...(values.key ? ["KEY", values.key] : []), ...headerWords(values.headers ?? ""),
		...(values.throttle ?? "").split(/\s+/).filter(Boolean).flatMap((t) => ["THROTTLE", t]),
		...(values.size ? ["PAYLOADSIZE", values.size] : []), ...(values.attempt ? ["ATTEMPT", values.attempt] : []), ...(values.error ? ["ERROR", values.error] : []),
	];
	useEffect(() => show(undefined), [source]);
	const attempt = async () => {
		try {
			show({ fields: (await run(words)) as Fields });
			onLine(0);
		} catch (e) {
			const error = refusalOf(e);
			show({ error });
			onLine(Number(/:(\d+):|line[: ](\d+)/.exec(error.text)?.slice(1).find(Boolean) ?? 0));
		}
	};
	const take = async () => {
		try {
			const m = (await run(["FILA.GET", queue, id.trim()])) as Fields | null;
			if (m === null) {
				app.say("There is no such message in this queue.");
				return;
			}
			set((v) => ({
				...v, key: text(m.key), headers: pairs(m.headers).map(([n, h]) => `${text(n)}: ${text(h)}`).join("\n"), throttle: list(m.throttle).map(text).join(" "),
				size: String(new TextEncoder().encode(text(m.payload)).length), attempt: text(m.attempt), error: text(m.error),
			}));
			app.say("The sample is that of the message.");
		} catch (e) {
			app.say(refusalOf(e).text);
		}
	};
	return (
		<section class="trial" aria-label="Dry run">
			<h3>Dry run</h3>
			<form onSubmit={(e) => {
				e.preventDefault();
				void attempt();
			}}>
				<div class="fields across">
					{samples[hook].map((f) => <Input key={f.name} field={f} value={values[f.name] ?? ""} onChange={(v) => set((all) => ({ ...all, [f.name]: v }))} />)}
					<div class="field">
						<label for="trial-id">Or take a message, by its id</label>
						<span class="pair"><input id="trial-id" value={id} spellcheck={false} onInput={(e) => setID(e.currentTarget.value)} /><button type="button" disabled={id.trim() === ""} onClick={() => void take()}>Take</button></span>
					</div>
				</div>
				<div class="actions">
					<button type="submit" disabled={why !== ""} title={why}>Try it</button>
					<details class="inline"><summary>Command line</summary><CommandLine words={words} /></details>
				</div>
			</form>
			<div role="status">
				{result?.error && <p class="failure"><strong>It fails.</strong> {result.error.text}</p>}
				{result?.fields && <><p class="caption">It decides:</p><Facts facts={Object.entries(result.fields).map(([n, v]) => [n.replaceAll("_", " "), v === null ? <span class="zero">not decided</span> : n === "time_us" ? micros(num(v)) : n === "memory_bytes" ? size(num(v)) : Array.isArray(v) ? v.map(text).join(", ") : text(v)])} /></>}
			</div>
		</section>
	);
}

function History({ queue, hook, versions, error, onChange }: { queue: Bytes; hook: Hook; versions: Fields[]; error?: Refusal; onChange(): void }) {
	const [open, set] = useState("");
	const [how, see] = useState("source");
	const looked = versions.find((v) => text(v.version) === open);
	const loaded = versions.find((v) => num(v.current) === 1);
	const before = versions[versions.findIndex((v) => v === looked) + 1]; // the newest is the first
	const other = how === "before" ? before : loaded;
	return (
		<Card title="History" note={versions.length > 0 ? `the last ${plural(versions.length, "source")}` : undefined}>
			<Failure error={error} />
			<Table caption="Sources that were loaded" rows={versions} id={(v) => text(v.version)} empty={<Empty title="Nothing was loaded yet." />} columns={[
				{ name: "Version", head: true, cell: (v) => <><Code title={text(v.version)}>{text(v.version).slice(0, 12)}</Code>{num(v.current) === 1 && <> <Badge tone="good">loaded</Badge></>}</> },
				{ name: "Loaded", cell: (v) => <Time at={maybe(v.loaded_at)} /> },
				{ name: "By", cell: (v) => text(v.user) || "–" },
				{ name: "Size", right: true, cell: (v) => size(num(v.bytes)) },
				{ name: "Actions", cell: (v) => (
					<span class="rowactions">
						<button type="button" class="small" aria-expanded={open === text(v.version)} onClick={() => set(open === text(v.version) ? "" : text(v.version))}>Source</button>
						{num(v.current) !== 1 && (
							<ActionButton small action={{
								label: "Roll back", title: `Roll back to ${text(v.version).slice(0, 12)}`, need: { command: "FILA.SCRIPT ROLLBACK", queue, access: "both" },
								text: "This source is loaded again, and is the newest of the history then.",
								words: () => ["FILA.SCRIPT", "ROLLBACK", queue, hook, text(v.version)], done: () => `Rolled back to ${text(v.version).slice(0, 12)}.`, after: onChange,
							}} />
						)}
					</span>
				) },
			]} />
			{looked && (
				<>
					<div class="payloadbar">
						<h3><Code>{text(looked.version).slice(0, 12)}</Code></h3>
						<Choice label="What of the version" value={how} onChange={see} options={[
							["source", "Source"], ...(before ? [["before", "Changes from the one before"] as [string, string]] : []), ...(loaded && loaded !== looked ? [["loaded", "Changes to the one that is loaded"] as [string, string]] : []),
						]} />
						<Copy text={text(looked.source)} label="Copy the source" />
					</div>
					{how !== "source" && other && other !== looked
						? <Diff label={how === "before" ? "Changes from the version before" : "Changes to the version that is loaded"} before={text((how === "before" ? other : looked).source)} after={text((how === "before" ? looked : other).source)} />
						: <pre class="payload" tabIndex={0} aria-label={`Source of ${text(looked.version)}`}>{text(looked.source)}</pre>}
				</>
			)}
		</Card>
	);
}
