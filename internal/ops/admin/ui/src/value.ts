// Replies, taken apart, and turned into text.

import type { Bytes, Fields, Value } from "./api";

export function fields(v: Value | undefined): Fields {
	return v !== null && typeof v === "object" && !Array.isArray(v) ? v : {};
}

export function list(v: Value | undefined): Value[] {
	return Array.isArray(v) ? v : [];
}

export function maps(v: Value | undefined): Fields[] {
	return list(v).map(fields);
}

/** page splits the reply of a command that answers in pages; next is "0" at the end. */
export function page(v: Value | undefined): { next: Bytes; items: Fields[] } {
	const [next, items] = list(v);
	return { next: bytes(next ?? "0"), items: maps(items) };
}

export function num(v: Value | undefined): number {
	return typeof v === "number" ? v : Number(v) || 0;
}

/** maybe returns a number, or null where there is none. */
export function maybe(v: Value | undefined): number | null {
	return v === null || v === undefined ? null : num(v);
}

/** bytes returns a string of the broker as it is, to send it back. */
export function bytes(v: Value | undefined): Bytes {
	if (typeof v === "string") {
		return v;
	}
	const b = fields(v).base64;
	return typeof b === "string" ? { base64: b } : text(v);
}

/** text returns a value as text. Bytes that are not UTF-8 are shown as \xNN. */
export function text(v: Value | Bytes | undefined): string {
	switch (typeof v) {
		case "string":
			return v;
		case "number":
		case "boolean":
			return String(v);
		case "undefined":
			return "";
	}
	if (v === null) {
		return "";
	}
	if (!Array.isArray(v) && typeof v.base64 === "string") {
		return escaped(decoded(v.base64));
	}
	return JSON.stringify(v);
}

export function same(a: Bytes | null, b: Bytes | null): boolean {
	return a !== null && b !== null && key(a) === key(b);
}

/** key returns a text that is different for different bytes. */
export function key(b: Bytes): string {
	return typeof b === "string" ? "=" + b : "~" + b.base64;
}

export function decoded(base64: string): Uint8Array {
	return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/** raw returns the bytes of a string of the broker. */
export function raw(b: Bytes): Uint8Array {
	return typeof b === "string" ? new TextEncoder().encode(b) : decoded(b.base64);
}

/** escaped returns bytes as text, with those that are not UTF-8 as \xNN. */
function escaped(b: Uint8Array): string {
	const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
	let out = "";
	for (let i = 0; i < b.length; ) {
		let n = 0;
		for (const length of [1, 2, 3, 4]) {
			try {
				out += strict.decode(b.subarray(i, i + length));
				n = i + length <= b.length ? length : 0;
				break;
			} catch {
				// longer, or no character
			}
		}
		if (n === 0) {
			out += "\\x" + (b[i] ?? 0).toString(16).padStart(2, "0");
			n = 1;
		}
		i += n;
	}
	return out;
}

/** pairs returns a map in its order: as an object, or as the pairs of one with names that JSON lacks. */
export function pairs(v: Value | undefined): [Bytes, Value][] {
	if (Array.isArray(v)) {
		return v.map((p) => [bytes(list(p)[0]), list(p)[1] ?? null]);
	}
	return Object.entries(fields(v));
}

/** clientLines parses the text of CLIENT LIST and the like: fields with "=" in each line. */
export function clientLines(text: string): Record<string, string>[] {
	return text
		.split("\n")
		.filter((line) => line.trim() !== "")
		.map((line) => {
			const row: Record<string, string> = {};
			for (const part of line.trim().split(" ")) {
				const at = part.indexOf("=");
				row[part.slice(0, at)] = part.slice(at + 1);
			}
			return row;
		});
}

/** percent writes bytes as a parameter of an address. */
export function percent(b: Bytes): string {
	return typeof b === "string" ? encodeURIComponent(b) : Array.from(decoded(b.base64), (c) => "%" + c.toString(16).padStart(2, "0")).join("");
}
