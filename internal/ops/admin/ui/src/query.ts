// The line of a search: words that the payload contains, and conditions such as status:dead key:acme since:2h.

import type { Values } from "./app";

/** conditions are what a line can ask for besides a payload, with examples of what follows. */
export const conditions: [name: string, what: string, examples: string[]][] = [
	["status", "ready, delayed, leased, dead or done", ["ready", "delayed", "leased", "dead", "done"]],
	["key", "the fairness key", []],
	["header", "a header, as name or name=pattern", []],
	["error", "a pattern of the error", ["*timeout*"]],
	["since", "an age such as 2h, or a time", ["15m", "1h", "1d", "7d"]],
	["until", "an age such as 2h, or a time", ["15m", "1h", "1d"]],
	["payload", "a text in the payload", []],
];

const names = new Set(conditions.map(([name]) => name));
const token = /([a-z]+):(?:"((?:[^"\\]|\\.)*)"?|(\S*))|"((?:[^"\\]|\\.)*)"(?=\s|$)|(\S+)/gy;

const unquoted = (quoted: string) => quoted.replace(/\\(.)/g, "$1");

/** valuesOf reads a line. What is no condition is a part of the payload. */
export function valuesOf(line: string): Values {
	const values: Values = {};
	const plain: string[] = [];
	for (let at = 0; at < line.length;) {
		if (/\s/.test(line[at]!)) {
			at++;
			continue;
		}
		token.lastIndex = at;
		const m = token.exec(line)!;
		const [all, name, quoted, bare, words, word] = m;
		if (name !== undefined && names.has(name)) {
			at += all.length;
			const value = quoted === undefined ? (bare ?? "") : unquoted(quoted);
			if (name === "header") {
				const cut = value.indexOf("=");
				values.header = cut < 0 ? value : value.slice(0, cut);
				values.value = cut < 0 ? "" : value.slice(cut + 1);
			} else {
				values[name] = value;
			}
			continue;
		}
		if (name !== undefined) { // it looks like a condition and is none
			const end = /\s|$/.exec(line.slice(at))!.index;
			plain.push(line.slice(at, at + end));
			at += end;
			continue;
		}
		at += all.length;
		plain.push(words === undefined ? word! : unquoted(words));
	}
	if (plain.length > 0) {
		values.payload = plain.join(" ");
	}
	return values;
}

const quote = (value: string) => (/^[^\s"\\]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);

/** lineOf writes a line that has these values. */
export function lineOf(v: Values): string {
	const parts: string[] = [];
	for (const [name] of conditions) {
		const value = v[name] ?? "";
		if (value === "") {
			continue;
		}
		if (name === "header") {
			parts.push(`header:${quote(v.value ? `${value}=${v.value}` : value)}`);
		} else if (name === "payload") {
			parts.unshift(valuesOf(value).payload === value ? value : `payload:${quote(value)}`);
		} else {
			parts.push(`${name}:${quote(value)}`);
		}
	}
	return parts.join(" ");
}

const ages: Record<string, number> = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3, w: 7 * 86400e3 };

/** moment reads a time as it is typed, or an age; NaN if it is none. */
export function moment(typed: string, now = Date.now()): number {
	const age = /^(\d+)\s*([smhdw])$/.exec(typed);
	if (age) {
		return now - Number(age[1]) * (ages[age[2] ?? ""] ?? 0);
	}
	return /^\d{10,}$/.test(typed) ? Number(typed) : Date.parse(typed);
}

/** Offer is a way to go on with a line. */
export interface Offer {
	line: string;
	text: string;
	what: string;
}

/** offers are the ways to go on with the last word of a line. */
export function offers(line: string): Offer[] {
	const last = /\S*$/.exec(line)?.[0] ?? "";
	const before = line.slice(0, line.length - last.length);
	const cut = last.indexOf(":");
	if (cut < 0) {
		return conditions.filter(([name]) => name.startsWith(last.toLowerCase()) && !new RegExp(`(^|\\s)${name}:`).test(before))
			.map(([name, what]) => ({ line: `${before}${name}:`, text: `${name}:`, what }));
	}
	const [name = "", , examples = []] = conditions.find(([name]) => name === last.slice(0, cut)) ?? [];
	const begun = last.slice(cut + 1);
	return examples.filter((e) => e.startsWith(begun) && e !== begun).map((e) => ({ line: `${before}${name}:${e} `, text: `${name}:${e}`, what: "" }));
}
