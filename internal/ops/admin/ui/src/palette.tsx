// Where to go, by name: pages, queues, a message by its id. And the keys of the dashboard.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { run } from "./api";
import type { Bytes } from "./api";
import { to } from "./route";
import { patternOf } from "./pages/overview";
import { Modal } from "./ui";
import { bytes, key, list, text } from "./value";

/** Goal is somewhere to go. */
interface Goal {
	name: string;
	kind: string;
	href: string;
}

const queuesMax = 50; // in which a message is looked for
const shownMax = 12;
const messageID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(:\d+)?$/i;

/** goals are the pages and queues whose names have what was typed, or the message that has it as its id. */
async function goals(typed: string, pages: [string, string][], here: Bytes | undefined, signal: AbortSignal): Promise<Goal[]> {
	const named = pages.filter(([name]) => name.toLowerCase().includes(typed.toLowerCase())).map(([name, path]) => ({ name, kind: "page", href: `#/${path}` }));
	const id = messageID.test(typed);
	let queues: Bytes[] = [];
	try {
		queues = list(await run(["FILA.QUEUE", "LIST", ...(typed === "" || id ? [] : ["MATCH", patternOf(typed)])], signal)).map(bytes);
	} catch {
		// who may list no queues goes to pages
	}
	if (!id) {
		return [...named, ...queues.map((q) => ({ name: text(q), kind: "queue", href: to(["queues", q]) }))].slice(0, shownMax);
	}
	const message = typed.replace(/:\d+$/, "");
	const places = [...(here === undefined ? [] : [here]), ...queues.filter((q) => here === undefined || key(q) !== key(here))].slice(0, queuesMax);
	for (const queue of places) {
		try {
			if ((await run(["FILA.GET", queue, message], signal)) !== null) {
				return [{ name: message, kind: `message in ${text(queue)}`, href: to(["queues", queue, "messages", message]) }];
			}
		} catch {
			// it may be in another one
		}
	}
	return [];
}

/** Palette goes to a page, a queue or a message. here is the queue of the page that is open. */
export function Palette({ pages, here, onClose }: { pages: [string, string][]; here: Bytes | undefined; onClose(): void }) {
	const [typed, type] = useState("");
	const [found, show] = useState<{ typed: string; goals: Goal[] }>();
	const [at, move] = useState(0);
	const id = useId();
	const input = useRef<HTMLInputElement>(null);
	useEffect(() => input.current?.focus(), []);
	useEffect(() => {
		const cancel = new AbortController();
		const timer = setTimeout(() => void goals(typed.trim(), pages, here, cancel.signal).then((all) => {
			if (!cancel.signal.aborted) {
				show({ typed, goals: all });
				move(0);
			}
		}), found ? 150 : 0);
		return () => {
			clearTimeout(timer);
			cancel.abort();
		};
	}, [typed]);
	const shown = found?.goals ?? [];
	const go = (g: Goal | undefined) => {
		if (g) {
			onClose();
			location.hash = g.href;
		}
	};
	const keys = (e: KeyboardEvent) => {
		const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
		if (step !== 0 && shown.length > 0) {
			e.preventDefault();
			move((at + step + shown.length) % shown.length);
		} else if (e.key === "Enter") {
			e.preventDefault();
			go(found?.typed === typed ? shown[at] : undefined);
		}
	};
	return (
		<Modal title="Go to" onClose={onClose}>
			<input ref={input} class="goto" type="text" role="combobox" aria-label="A page, a queue, or the id of a message" placeholder="A page, a queue, or the id of a message" spellcheck={false} autocomplete="off" value={typed}
				aria-expanded={shown.length > 0} aria-controls={id} aria-activedescendant={shown.length > 0 ? `${id}-${at}` : undefined} aria-autocomplete="list"
				onInput={(e) => type(e.currentTarget.value)} onKeyDown={keys} />
			{shown.length > 0 && <ul class="goals" role="listbox" id={id} aria-label="Where to go">
				{shown.map((g, i) => (
					<li key={g.href} id={`${id}-${i}`} role="option" aria-selected={i === at} onMouseEnter={() => move(i)} onClick={() => go(g)}>
						<span>{g.name}</span> <small>{g.kind}</small>
					</li>
				))}
			</ul>}
			<p class="caption" role="status">{found && found.typed === typed && shown.length === 0 ? "Nothing has such a name." : messageID.test(typed.trim()) && found?.typed !== typed ? "Looking for the message…" : ""}</p>
		</Modal>
	);
}

const keysOf: [string, string][] = [
	["Ctrl K", "go to a page, a queue or a message"], ["/", "search in this page"], ["?", "this list"], ["Tab, Enter", "from one control to the next, and use it"],
	["Esc", "close a dialog"], ["+ − ← → 0", "in a chart: zoom, move, show all"],
];

/** KeysHelp lists the keys. */
export function KeysHelp({ onClose }: { onClose(): void }) {
	return (
		<Modal title="Keys" onClose={onClose}>
			<dl class="keys">{keysOf.map(([keys, what]) => <div key={keys}><dt><kbd>{keys}</kbd></dt><dd>{what}</dd></div>)}</dl>
			<div class="actions end"><button type="button" onClick={onClose}>Close</button></div>
		</Modal>
	);
}

/** useKeys calls what is bound to a key, unless something is being typed or a dialog is open. */
export function useKeys(palette: () => void, help: () => void) {
	useEffect(() => {
		const pressed = (e: KeyboardEvent) => {
			if (document.querySelector("dialog[open]")) {
				return;
			}
			if (e.key.toLowerCase() === "k" && (e.ctrlKey || e.metaKey)) {
				e.preventDefault();
				palette();
			} else if (e.key === "?" && !/^(INPUT|TEXTAREA|SELECT)$/.test((e.target as HTMLElement).tagName)) {
				e.preventDefault();
				help();
			}
		};
		addEventListener("keydown", pressed);
		return () => removeEventListener("keydown", pressed);
	}, []);
}
