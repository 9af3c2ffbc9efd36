// The dialog of an action: its fields, the command line that it sends, and what came of it.

import { useId, useRef, useState } from "preact/hooks";
import { run } from "./api";
import type { Refusal } from "./api";
import type { Action, Field, Values } from "./app";
import { refusalOf, useApp } from "./app";
import { filaLine, redisLine, size } from "./format";
import type { Bytes } from "./api";
import { Choice, Copy, Failure, Modal } from "./ui";

const shownMax = 64 << 10; // characters of a line that is shown

/** CommandLine shows a command as it can be typed elsewhere. */
export function CommandLine({ words }: { words: Bytes[] }) {
	const [form, set] = useState("redis");
	const length = words.reduce((sum, w) => sum + (typeof w === "string" ? w.length : w.base64.length), 0);
	if (length > shownMax) {
		return <p class="caption">{redisLine(words.slice(0, 2))} … with {size(length)} of arguments: too long to show.</p>;
	}
	const line = form === "redis" ? redisLine(words) : filaLine(words);
	return (
		<div class="command">
			<div class="bar">
				<Choice label="Form of the command line" value={form} options={[["redis", "redis-cli"], ["fila", "shell"]]} onChange={set} />
				<Copy text={line} label="Copy the command line" />
			</div>
			<pre tabIndex={0} aria-label="Command line">{line}</pre>
		</div>
	);
}

export function Input({ field, value, onChange, first }: { field: Field; value: string; onChange(v: string): void; first?: boolean }) {
	const id = useId();
	const hint = field.hint ? id + "-hint" : undefined;
	const common = { id, name: field.name, "aria-describedby": hint, autofocus: first, required: field.required };
	if (field.kind === "check") {
		return (
			<div class="field check">
				<input {...common} type="checkbox" checked={value !== ""} onChange={(e) => onChange(e.currentTarget.checked ? "on" : "")} />
				<label for={id}>{field.label}</label>
				{field.hint && <small id={hint}>{field.hint}</small>}
			</div>
		);
	}
	return (
		<div class={`field ${field.kind ?? "text"}`}>
			<label for={id}>{field.label}</label>
			{field.kind === "select" ? (
				<select {...common} value={value} onChange={(e) => onChange(e.currentTarget.value)}>
					{field.options?.map(([v, name]) => <option key={v} value={v}>{name}</option>)}
				</select>
			) : field.kind === "area" || field.kind === "code" ? (
				<textarea {...common} rows={field.kind === "code" ? 8 : 3} spellcheck={false} value={value} placeholder={field.placeholder}
					onInput={(e) => onChange(e.currentTarget.value)} />
			) : field.kind === "number" ? (
				<input {...common} type="number" value={value} min={field.min} step={field.step ?? "1"} placeholder={field.placeholder}
					onInput={(e) => onChange(e.currentTarget.value)} />
			) : (
				<input {...common} type="text" value={value} placeholder={field.placeholder} spellcheck={false} autocomplete="off"
					onInput={(e) => onChange(e.currentTarget.value)} />
			)}
			{field.hint && <small id={hint}>{field.hint}</small>}
		</div>
	);
}

/** initial returns the values that fields have before anything is typed. */
export function initial(fields: Field[] = []): Values {
	return Object.fromEntries(fields.map((f) => [f.name, f.value ?? (f.kind === "select" ? (f.options?.[0]?.[0] ?? "") : "")]));
}

/** ActionDialog runs an action. Nothing is sent before its last button is pressed. */
export function ActionDialog({ action, onClose }: { action: Action; onClose(): void }) {
	const app = useApp();
	const [values, set] = useState<Values>(() => initial(action.fields));
	const [typed, type] = useState("");
	const [error, fail] = useState<Refusal>();
	const [busy, setBusy] = useState(false);
	const form = useRef<HTMLFormElement>(null);
	const words = action.words(values);
	const named = !action.danger || typed === action.danger.name;
	const sending = useRef(false); // the state is that of the last drawing, and two clicks may come before the next
	const send = async () => {
		if (sending.current) {
			return;
		}
		sending.current = true;
		setBusy(true);
		fail(undefined);
		try {
			const reply = await run(words);
			onClose();
			app.say(action.done?.(reply) ?? `${action.label}: done.`);
			action.after?.(reply);
		} catch (e) {
			fail(refusalOf(e));
			setBusy(false);
			sending.current = false;
		}
	};
	return (
		<Modal title={action.title ?? action.label} onClose={onClose} wide={action.fields?.some((f) => f.kind === "code")}>
			<form ref={form} onSubmit={(e) => {
				e.preventDefault();
				if (named && !busy) {
					void send();
				}
			}}>
				{action.text && <p>{action.text}</p>}
				{action.danger && <p class="danger-note"><strong>{action.danger.what}</strong> This cannot be undone.</p>}
				<div class="fields">
					{action.fields?.map((f, i) => (
						<Input key={f.name} field={f} value={values[f.name] ?? ""} first={i === 0} onChange={(v) => set((all) => ({ ...all, [f.name]: v }))} />
					))}
					{action.danger && (
						<Input first={!action.fields?.length} value={typed} onChange={type}
							field={{ name: "confirm", label: `Type ${action.danger.name} to confirm`, required: true }} />
					)}
				</div>
				<p class="caption">This sends:</p>
				<CommandLine words={words} />
				<Failure error={error} />
				<div class="actions end">
					<button type="button" onClick={onClose}>Cancel</button>
					<button type="submit" class={action.danger ? "danger solid" : "primary"} disabled={!named || busy}>{busy ? "Sending…" : (action.submit ?? action.label)}</button>
				</div>
			</form>
		</Modal>
	);
}
