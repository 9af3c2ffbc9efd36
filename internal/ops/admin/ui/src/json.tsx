// JSON that is coloured and can be folded.

import type { ComponentChildren } from "preact";

type JSONValue = null | boolean | number | string | JSONValue[] | { [name: string]: JSONValue };

/** Exact is a number as it was written: a number of the page would lose digits. */
class Exact {
	constructor(readonly digits: string) {}
}

const nodesMax = 3000; // values that are coloured and folded

/** parsed reads JSON; undefined if the text is none, or has too many values. */
export function parsed(source: string): { value: unknown } | undefined {
	let nodes = 0;
	try {
		// The third argument is there in browsers of 2025 and later.
		const value: unknown = JSON.parse(source, ((_: string, v: JSONValue, context?: { source?: string }) => {
			nodes++;
			return typeof v === "number" && context?.source !== undefined ? new Exact(context.source) : v;
		}) as (name: string, v: unknown) => unknown);
		return nodes > nodesMax ? undefined : { value };
	} catch {
		return undefined;
	}
}

/** Tree is a value; what it has in it can be folded. */
export function Tree({ value, name, last = true }: { value: unknown; name?: string; last?: boolean }): ComponentChildren {
	const label = name === undefined ? null : <><span class="j-name">{JSON.stringify(name)}</span>: </>;
	const comma = last ? "" : ",";
	if (typeof value !== "object" || value === null || value instanceof Exact) {
		const kind = typeof value === "string" ? "j-text" : value instanceof Exact || typeof value === "number" ? "j-number" : "j-word";
		return <div>{label}<span class={kind}>{value instanceof Exact ? value.digits : JSON.stringify(value)}</span>{comma}</div>;
	}
	const array = Array.isArray(value);
	const [open, close] = array ? ["[", "]"] : ["{", "}"];
	const parts: [string | undefined, unknown][] = array ? value.map((v) => [undefined, v]) : Object.entries(value);
	if (parts.length === 0) {
		return <div>{label}{open}{close}{comma}</div>;
	}
	return (
		<details open>
			<summary>{label}{open}<span class="j-folded"> {parts.length} {close}{comma}</span></summary>
			<div class="j-in">{parts.map(([n, v], i) => <Tree key={i} name={n} value={v} last={i === parts.length - 1} />)}</div>
			<div>{close}{comma}</div>
		</details>
	);
}
