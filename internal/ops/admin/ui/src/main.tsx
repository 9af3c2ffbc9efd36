// The shell: session, navigation, theme, and the page that the address names.

import { render } from "preact";
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ActionDialog } from "./action";
import { logout, onReach, onSession, reached, speakFor, whoAmI } from "./api";
import type { Session } from "./api";
import { AppContext, mayOf, useApp } from "./app";
import type { Action, App } from "./app";
import { ago, time } from "./format";
import { forget } from "./history";
import { Login } from "./pages/login";
import { pageOf } from "./pages";
import { NodeNote, Nodes, useNode } from "./pages/nodes";
import { KeysHelp, Palette, useKeys } from "./palette";
import { useRoute } from "./route";

/** places are the pages of the navigation, with the word that the address begins with. A group begins with its first page. */
const places: [name: string, path: string, group?: string][] = [
	["Queues", "queues"],
	["Topics", "topics"],
	["Groups", "groups"],
	["Throttles", "throttles"],
	["Budgets", "budgets"],
	["Signals", "signals"],
	["Schedules", "crons"],
	["Events", "events"],
	["Nodes", "nodes", "Broker"],
	["Clients", "clients", "Broker"],
	["Slow log", "slowlog"],
	["Latency", "latency"],
	["Configuration", "config"],
	["Users", "users"],
	["Audit log", "audit"],
];

type Phase = { session: Session } | "asking" | "login" | "away";

function Root() {
	const [phase, set] = useState<Phase>("asking");
	const ask = useCallback(async () => {
		try {
			const session = await whoAmI();
			speakFor(session);
			set((old) => {
				if (!session) {
					return "login";
				}
				if (typeof old === "string") {
					return { session };
				}
				if (old.session.user !== session.user) {
					forget();
				}
				return JSON.stringify(old.session) === JSON.stringify(session) ? old : { session };
			});
		} catch {
			set((old) => (typeof old === "string" ? "away" : old)); // a page that is open says itself that there is no connection
		}
	}, []);
	useEffect(() => {
		const again = () => void ask();
		onSession(() => {
			forget();
			set("login");
		}, again);
		again();
		const shown = () => document.hidden || again();
		document.addEventListener("visibilitychange", shown);
		return () => document.removeEventListener("visibilitychange", shown);
	}, []);
	useEffect(() => {
		if (phase !== "away") {
			return;
		}
		const timer = setTimeout(() => void ask(), 2000);
		return () => clearTimeout(timer);
	});
	if (phase === "asking") {
		return <main class="alone"><p role="status">Loading…</p></main>;
	}
	if (phase === "away") {
		return <main class="alone"><h1>Fila</h1><p role="status">The broker cannot be reached. Trying again…</p></main>;
	}
	if (phase === "login") {
		return <Login onDone={() => void ask()} />;
	}
	return <Shell key={phase.session.user} session={phase.session} onLogout={() => void logout().finally(() => {
		forget();
		set("login");
	})} />;
}

function Shell({ session, onLogout }: { session: Session; onLogout(): void }) {
	const route = useRoute();
	const [action, act] = useState<Action>();
	const [said, say] = useState("");
	const [menu, open] = useState(false);
	const [over, lay] = useState<"" | "palette" | "keys">("");
	const away = useAway();
	useKeys(() => lay("palette"), () => lay("keys"));
	const main = useRef<HTMLElement>(null);
	const place = route.path[0] ?? "queues";
	const app = useMemo<App>(() => ({ session, may: mayOf(session), act, say: (text) => say(text) }), [session]);
	const node = useNode(app.may({ command: "INFO" }) === "");
	useEffect(() => {
		if (said !== "") {
			const timer = setTimeout(() => say(""), 6000);
			return () => clearTimeout(timer);
		}
		return;
	}, [said]);
	const hidden: Record<string, boolean> = { nodes: node === null && place !== "nodes", audit: app.may({ command: "FILA.AUDIT" }) !== "" };
	const address = route.path.join("/");
	const before = useRef(address);
	useEffect(() => {
		open(false);
		if (before.current !== address) {
			before.current = address;
			scrollTo(0, 0);
			main.current?.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
		}
	}, [address]);
	return (
		<AppContext.Provider value={app}>
			<a class="skip" href="#main" onClick={(e) => {
				e.preventDefault();
				main.current?.querySelector<HTMLElement>("h1")?.focus();
			}}>Skip to the page</a>
			<div class="shell">
				<header class="side">
					<div class="top">
						<a class="brand" href="#/"><Logo />Fila</a>
						<button type="button" class="menu" aria-expanded={menu} aria-controls="navigation" onClick={() => open(!menu)}>Menu</button>
					</div>
					<div class={`drawer ${menu ? "open" : ""}`} id="navigation">
						<nav aria-label="Pages">
							<ul>
								{places.filter(([, path]) => !hidden[path]).map(([name, path, group], i, shown) => (
									<>
										{group && shown[i - 1]?.[2] !== group && <li class="group" key={group}>{group}</li>}
										<li key={path}><a href={`#/${path}`} aria-current={path === place ? "page" : undefined}>{name}</a></li>
									</>
								))}
							</ul>
						</nav>
						<div class="who">
							<span class="goes">
								<button type="button" class="small" onClick={() => lay("palette")}>Go to <kbd aria-hidden="true">Ctrl K</kbd></button>
								<button type="button" class="small" aria-label="Keys" onClick={() => lay("keys")}>?</button>
							</span>
							<Health />
							<span class="user" title={`User ${session.user}`}>{session.user}</span>
							<span class="version">Fila {session.version}</span>
							{session.version !== loaded(session) && <button type="button" class="small" onClick={() => location.reload()}>Reload: the broker is new</button>}
							<Theme />
							{session.session && <button type="button" class="small" onClick={onLogout}>Log out</button>}
						</div>
					</div>
				</header>
				<main id="main" ref={main} class={away > 0 ? "stale" : ""}>
					{away > 0 && <Away since={away} />}
					<Open session={session} />
					{node && <NodeNote info={node} place={route.path[1] === "server" ? "server" : place} />}
					{place === "nodes" ? <Nodes info={node} /> : pageOf(route)}
				</main>
			</div>
			<div class="said" role="status" aria-live="polite">{said !== "" && <span>{said}</span>}</div>
			{over === "palette" && <Palette here={place === "queues" ? route.names[1] : undefined} pages={places.filter(([, path]) => !hidden[path]).map(([name, path]) => [name, path])} onClose={() => lay("")} />}
			{over === "keys" && <KeysHelp onClose={() => lay("")} />}
			{action && <ActionDialog key={action.label} action={action} onClose={() => act(undefined)} />}
		</AppContext.Provider>
	);
}

let first: string | undefined;

/** loaded is the version of the broker that this page came from. */
function loaded(session: Session): string {
	return (first ??= session.version);
}

function Logo() {
	return (
		<svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true" class="logo">
			<rect width="32" height="32" rx="7" />
			<g><rect x="7" y="7" width="18" height="4" rx="2" /><rect x="7" y="14" width="13" height="4" rx="2" /><rect x="7" y="21" width="7" height="4" rx="2" /></g>
		</svg>
	);
}

/** Open says that there are no passwords. */
function Open({ session }: { session: Session }): ComponentChildren {
	if (session.session || session.user !== "default") {
		return null;
	}
	return <p class="banner" role="note">This broker needs no password: any browser that reaches this page may do all that it offers.</p>;
}

/** useAway returns when the broker has answered last, while it cannot be reached; 0 while it can. */
function useAway(): number {
	const [away, set] = useState(0);
	useEffect(() => onReach(set), []);
	return away;
}

/** Away says that what is shown is old, and how old. */
function Away({ since }: { since: number }) {
	const [, tick] = useState(0);
	useEffect(() => {
		const timer = setInterval(() => tick((n) => n + 1), 1000);
		return () => clearInterval(timer);
	}, []);
	return <p class="banner away" role="alert">The broker cannot be reached. What is shown is as of {time(since)}<span aria-hidden="true">, {ago(since)}</span>. It goes on by itself.</p>;
}

/** Health is the condition of the broker in a word. */
function Health() {
	const [state, set] = useState("…");
	const app = useApp();
	const before = useRef("");
	useEffect(() => {
		let timer: number | undefined;
		let over = false;
		const ask = async () => {
			let word: string;
			try {
				const response = await fetch("readyz", { cache: "no-store" });
				word = (await response.text()).trim().slice(0, 20);
				reached(true);
			} catch {
				word = "unreachable";
				reached(false);
			}
			if (over) {
				return;
			}
			if (before.current !== "" && before.current !== word) {
				app.say(`The broker is ${word}.`);
			}
			before.current = word;
			set(word);
			timer = window.setTimeout(() => (document.hidden ? wait() : void ask()), 5000);
		};
		const wait = () => {
			timer = window.setTimeout(() => (document.hidden ? wait() : void ask()), 1000);
		};
		void ask();
		return () => {
			over = true;
			clearTimeout(timer);
		};
	}, []);
	return <span class={`health ${state === "running" ? "good" : state === "…" ? "" : "bad"}`}><span class="dot" aria-hidden="true" />{state}</span>;
}

const themes: [string, string][] = [["", "Theme: system"], ["light", "Theme: light"], ["dark", "Theme: dark"]];

function stored(): string {
	try {
		return localStorage.getItem("fila-theme") ?? "";
	} catch {
		return "";
	}
}

function applyTheme(theme: string) {
	if (theme === "") {
		delete document.documentElement.dataset.theme;
	} else {
		document.documentElement.dataset.theme = theme;
	}
}

function Theme() {
	const [theme, set] = useState(stored);
	const choose = (value: string) => {
		set(value);
		applyTheme(value);
		try {
			localStorage.setItem("fila-theme", value);
		} catch {
			// it lasts as long as the page
		}
	};
	return (
		<label class="theme">
			<span class="hidden">Theme</span>
			<select value={theme} onChange={(e) => choose(e.currentTarget.value)}>
				{themes.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
			</select>
		</label>
	);
}

applyTheme(stored());
const root = document.getElementById("app");
if (root) {
	render(<Root />, root);
}
