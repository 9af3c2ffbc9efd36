// What all pages share: the session, actions, notes about what was done, and how to ask for data.

import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { listen, Refusal, run } from "./api";
import type { Bytes, Fields, Session, StreamState, Value } from "./api";
import { fill, record } from "./history";
import { missing } from "./rights";
import type { Need } from "./rights";
import { fields } from "./value";

/** Values are what the fields of an action hold; those that are empty are not given. */
export type Values = Record<string, string>;

/** Field is an input of an action. */
export interface Field {
	name: string;
	label: string;
	kind?: "text" | "number" | "select" | "check" | "area" | "code";
	value?: string;
	options?: [value: string, label: string][];
	hint?: string;
	required?: boolean;
	min?: number;
	step?: string;
	placeholder?: string;
}

/** Action is something to do: one command, made from fields. */
export interface Action {
	label: string;
	title?: string;
	text?: string;
	need: Need;
	fields?: Field[];
	words(v: Values): Bytes[];
	/** danger: what is lost, and the name that has to be typed. */
	danger?: { what: string; name: string };
	submit?: string;
	done?(reply: Value): string;
	after?(reply: Value): void;
}

export interface App {
	session: Session;
	may(need: Need): string;
	act(action: Action): void;
	say(text: string): void;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
	const app = useContext(AppContext);
	if (app === null) {
		throw new Error("there is no session");
	}
	return app;
}

export function mayOf(session: Session) {
	return (need: Need) => missing(session, need);
}

/** Asked is the state of a question to the broker. data stays while it is asked again. */
export interface Asked {
	data: Value | undefined;
	error: Refusal | undefined;
	busy: boolean;
	reload(): void;
}

export function refusalOf(e: unknown): Refusal {
	return e instanceof Refusal ? e : new Refusal("ERR", e instanceof Error ? e.message : String(e), 0);
}

/** useReply asks a command, again when its words change, and every few milliseconds while the page is shown. */
export function useReply(words: Bytes[] | null, every = 0): Asked {
	const id = JSON.stringify(words);
	const [state, set] = useState<{ id: string; data?: Value; error?: Refusal; busy: boolean }>({ id, busy: true });
	const [again, reloads] = useState(0);
	useEffect(() => {
		if (words === null) {
			return;
		}
		const cancel = new AbortController();
		let timer: number | undefined;
		const ask = async () => {
			try {
				const data = await run(words, cancel.signal);
				set({ id, data, busy: false });
			} catch (e) {
				if (cancel.signal.aborted) {
					return;
				}
				set((s) => ({ id, data: s.id === id ? s.data : undefined, error: refusalOf(e), busy: false }));
			}
			if (every > 0 && !cancel.signal.aborted) {
				timer = window.setTimeout(next, every);
			}
		};
		const next = () => (document.hidden ? undefined : void ask());
		const shown = () => {
			if (!document.hidden && every > 0) {
				clearTimeout(timer);
				void ask();
			}
		};
		set((s) => ({ id, data: s.id === id ? s.data : undefined, error: undefined, busy: true }));
		void ask();
		document.addEventListener("visibilitychange", shown);
		return () => {
			cancel.abort();
			clearTimeout(timer);
			document.removeEventListener("visibilitychange", shown);
		};
	}, [id, every, again]);
	const reload = useCallback(() => reloads((n) => n + 1), []);
	const mine = state.id === id;
	return { data: mine ? state.data : undefined, error: mine ? state.error : undefined, busy: !mine || state.busy, reload };
}

/** Live is the newest event of a stream of figures. */
export interface Live {
	figures: Fields | null;
	state: StreamState;
	why?: Refusal;
}

/** useLive reads a stream of figures; path null: none. */
export function useLive(path: string | null, each?: (figures: Fields) => void): Live {
	const [live, set] = useState<Live & { path: string | null }>({ path, figures: null, state: "waiting" });
	const latest = useRef(each);
	latest.current = each;
	useEffect(() => {
		if (path === null) {
			return;
		}
		set({ path, figures: null, state: "waiting" });
		const stream = listen(path, {
			kinds: ["figures"],
			event(data) {
				latest.current?.(fields(data));
				set({ path, figures: fields(data), state: "live" });
			},
			state: (state, why) => set((l) => ({ ...l, path, state, why })),
		});
		return () => stream.close();
	}, [path]);
	return live.path === path ? live : { figures: null, state: "waiting" };
}

/** useHistory returns what records a sample of a source, and asks for what was before it, again with the next sample if that fails. */
export function useHistory(source: string, words: Bytes[]): (at: number, figures: Fields) => void {
	const app = useApp();
	const may = app.may({ command: "FILA.HISTORY" }) === "";
	const [, draw] = useState(0);
	const state = useRef({ lacks: false, asks: false, open: true });
	useEffect(() => () => {
		state.current.open = false;
	}, []);
	return (at, figures) => {
		const s = state.current;
		s.lacks = record(source, at, figures) || s.lacks;
		if (!may || !s.lacks || s.asks) {
			return;
		}
		s.asks = true;
		void fill(source, words).then(() => {
			s.lacks = false;
			return s.open && draw((n) => n + 1);
		}, () => undefined).finally(() => {
			s.asks = false;
		});
	};
}

/** title sets what the browser calls the page. */
export function useTitle(title: string) {
	useEffect(() => {
		document.title = title === "" ? "Fila" : `${title} · Fila`;
	}, [title]);
}
