// What the dashboard says to the broker: commands, streams, the session. Everything is a command
// of the user, so the broker alone decides what may be seen and done.

/** Bytes are a string of the broker: text, or base64 where it is not UTF-8. */
export type Bytes = string | { base64: string };

/** Value is a reply, or a part of one. */
export type Value = null | boolean | number | string | Value[] | Fields;
export interface Fields {
	[name: string]: Value;
}

/** Refusal is an error of the broker, or of the way to it. */
export class Refusal extends Error {
	constructor(
		readonly code: string,
		readonly text: string,
		readonly status: number,
	) {
		super(text);
	}
}

/** Session is who the browser speaks for, and what that user may do. */
export interface Session {
	user: string;
	version: string;
	session: boolean;
	commands: Record<string, boolean>;
	queues: string;
	channels: string;
}

const noBroker = () => new Refusal("OFFLINE", "The broker cannot be reached. It may be restarting.", 0);

async function ask(path: string, init: RequestInit): Promise<Response> {
	let response: Response;
	try {
		response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...init });
	} catch (e) {
		if (e instanceof DOMException && e.name === "AbortError") {
			throw e;
		}
		reached(false);
		throw noBroker();
	}
	reached(true);
	if (response.ok) {
		return response;
	}
	let code = "ERR";
	let text = `The listener has answered ${response.status}.`;
	try {
		const body = await response.json();
		code = String(body.code ?? code);
		text = String(body.error ?? text);
	} catch {
		// a proxy in between answers in its own words
	}
	if (text.startsWith(code + " ")) {
		text = text.slice(code.length + 1);
	}
	const refusal = new Refusal(code, text, response.status);
	if (response.status === 401) {
		on.expired?.();
	} else if (code === "OTHERUSER") {
		on.doubted?.();
	}
	throw refusal;
}

const on: { expired?: () => void; doubted?: () => void; away?: (since: number) => void } = {};

let heard = Date.now(); // when the broker has answered last
let away = false;

/** reached notes whether the broker has answered. */
export function reached(yes: boolean) {
	if (yes) {
		heard = Date.now();
	}
	if (away === yes) {
		away = !yes;
		on.away?.(away ? heard : 0);
	}
}

/** onReach sets what is called with the time of the last answer when the broker cannot be reached any more, and with 0 when it can. It returns what ends that. */
export function onReach(changed: (since: number) => void): () => void {
	on.away = changed;
	changed(away ? heard : 0);
	return () => {
		on.away = undefined;
	};
}

/** onSession sets what happens when the broker wants a login, and when the session may be another one:
 * after a login in another tab, or when the broker was away. */
export function onSession(expired: () => void, doubted: () => void) {
	on.expired = expired;
	on.doubted = doubted;
}

let user: string | undefined;

/** speakFor sets the user that commands are for: the listener refuses those that come with the session of another one. */
export function speakFor(session: Session | null) {
	user = session?.session ? session.user : undefined;
}

/** run executes a command and returns its reply. */
export async function run(words: Bytes[], signal?: AbortSignal): Promise<Value> {
	const response = await ask("v1/command", {
		method: "POST",
		headers: { "Content-Type": "application/json", ...(user === undefined ? {} : { "Fila-User": encodeURIComponent(user) }) },
		body: JSON.stringify(words),
		signal,
	});
	return (await response.json()) as Value;
}

/** whoAmI returns the session, null where a login is needed. */
export async function whoAmI(): Promise<Session | null> {
	try {
		const response = await ask("v1/session", {});
		return (await response.json()) as Session;
	} catch (e) {
		if (e instanceof Refusal && (e.status === 401 || e.status === 403)) {
			return null;
		}
		throw e;
	}
}

export async function login(user: string, password: string): Promise<void> {
	await ask("v1/session", { method: "POST", body: new URLSearchParams({ user, password }) });
}

export async function logout(): Promise<void> {
	await ask("v1/session", { method: "DELETE" });
}

/** Stream is a stream of events, which is closed while the page is hidden. */
export interface Stream {
	close(): void;
}

/** Listeners are what a stream calls. state is "live", "waiting" while there is no connection, or "hidden". */
export interface Listeners {
	kinds: string[]; // "" is the default kind
	event(data: Value): void;
	state?(state: StreamState, why?: Refusal): void;
}
export type StreamState = "live" | "waiting" | "hidden" | "refused";

function doubt() {
	on.doubted?.();
}

/** listen opens a stream. A browser allows six connections to a host, so a hidden page has none. */
export function listen(path: string, to: Listeners): Stream {
	let lost = false; // the stream has been interrupted
	let source: EventSource | undefined;
	let retry: number | undefined;
	let closed = false;
	const stop = () => {
		source?.close();
		source = undefined;
		clearTimeout(retry);
	};
	const open = () => {
		stop();
		source = new EventSource(path);
		source.onopen = () => {
			if (lost) {
				lost = false;
				doubt();
			}
			to.state?.("live");
		};
		const got = (e: MessageEvent) => {
			reached(true);
			to.event(JSON.parse(e.data) as Value);
		};
		for (const kind of to.kinds) {
			source.addEventListener(kind === "" ? "message" : kind, got);
		}
		// The broker has ended the stream and says so, such as at the end of a session. The source would
		// only ask again after some seconds.
		source.addEventListener("end", () => {
			lost = true;
			void refused();
		});
		source.onerror = () => {
			lost = true;
			if (source?.readyState === EventSource.CLOSED) {
				void refused();
			} else {
				to.state?.("waiting");
			}
		};
	};
	// An event source does not say why it was refused, so ask.
	const refused = async () => {
		stop();
		let why: Refusal | undefined;
		try {
			const response = await ask(path, { headers: { Accept: "text/event-stream" }, signal: AbortSignal.timeout(3000) });
			await response.body?.cancel();
		} catch (e) {
			why = e instanceof Refusal ? e : undefined;
		}
		if (closed || document.hidden) {
			return;
		}
		if (why && why.status >= 400 && why.status < 500) {
			to.state?.("refused", why);
			if (why.status === 401) {
				return;
			}
		} else {
			to.state?.("waiting");
		}
		retry = window.setTimeout(open, why ? 3000 : 0);
	};
	const show = () => {
		if (document.hidden) {
			stop();
			to.state?.("hidden");
		} else {
			open();
		}
	};
	document.addEventListener("visibilitychange", show);
	if (!document.hidden) {
		open();
	}
	return {
		close() {
			closed = true;
			stop();
			document.removeEventListener("visibilitychange", show);
		},
	};
}
