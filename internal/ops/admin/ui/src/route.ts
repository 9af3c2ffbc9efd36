// The address of a page is behind the "#": it works below any prefix, and names of queues never
// reach a log of a server.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Bytes } from "./api";

/** Route is a page with its arguments and its parameters. */
export interface Route {
	path: string[];
	names: Bytes[];
	query: URLSearchParams;
}

function encode(b: Bytes): string {
	if (typeof b !== "string") {
		return "~" + encodeURIComponent(b.base64);
	}
	return encodeURIComponent(b).replace(/^~/, "%7E").replace(/^\.{1,2}$/, (dots) => dots.replaceAll(".", "%2E"));
}

function decode(part: string): Bytes {
	try {
		return part.startsWith("~") ? { base64: decodeURIComponent(part.slice(1)) } : decodeURIComponent(part);
	} catch {
		return part;
	}
}

/** to returns the address of a page. */
export function to(path: Bytes[], query: Record<string, string> = {}): string {
	const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== "")).toString();
	return "#/" + path.map(encode).join("/") + (q === "" ? "" : "?" + q);
}

export function parse(hash: string): Route {
	const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
	const names = path === "" ? [] : path.split("/").map(decode);
	return { path: names.map((n) => (typeof n === "string" ? n : "")), names, query: new URLSearchParams(query) };
}

export function useRoute(): Route {
	const [hash, set] = useState(location.hash);
	useEffect(() => {
		const changed = () => set(location.hash);
		addEventListener("hashchange", changed);
		changed(); // it may have changed since the first rendering
		return () => removeEventListener("hashchange", changed);
	}, []);
	return useMemo(() => parse(hash), [hash]);
}

/** refine changes parameters of the current page, without an entry in the history. If the address is that of another page already, it stays. */
export function refine(route: Route, change: Record<string, string>) {
	if (to(parse(location.hash).names) !== to(route.names)) {
		return;
	}
	const query = new URLSearchParams(route.query);
	for (const [name, value] of Object.entries(change)) {
		if (value === "") {
			query.delete(name);
		} else {
			query.set(name, value);
		}
	}
	history.replaceState(null, "", to(route.names, Object.fromEntries(query)));
	dispatchEvent(new HashChangeEvent("hashchange"));
}
