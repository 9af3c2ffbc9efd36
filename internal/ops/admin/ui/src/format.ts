// Numbers, times and command lines as people read them.

import type { Bytes } from "./api";
import { raw } from "./value";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** count writes a whole number with its digits in groups. */
export function count(n: number): string {
	return whole.format(n);
}

const exact = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 12 });

/** figure writes a number as it was set: 1,000,000, 0.001. */
export function figure(n: number): string {
	return exact.format(n);
}

/** short writes a number in a few characters: 1,234, 12.3k, 4.56M. */
export function short(n: number): string {
	const abs = Math.abs(n);
	if (abs < 10_000) {
		return whole.format(n);
	}
	for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
		if (abs >= size) {
			const v = n / size;
			return v.toFixed(Math.abs(v) < 10 ? 2 : Math.abs(v) < 100 ? 1 : 0) + unit;
		}
	}
	return whole.format(n);
}

/** rate writes a number per second. */
export function rate(n: number | null): string {
	if (n === null) {
		return "–";
	}
	if (n > 0 && n < 10) {
		return n < 0.05 ? "<0.1" : n.toFixed(1);
	}
	return short(Math.round(n));
}

export function percent(part: number): string {
	const p = part * 100;
	return (p > 0 && p < 10 ? p.toFixed(1) : p.toFixed(0)) + " %";
}

/** duration writes milliseconds with at most two units. */
export function duration(ms: number | null): string {
	if (ms === null) {
		return "–";
	}
	if (ms < 0) {
		return "-" + duration(-ms);
	}
	if (ms < 1) {
		return ms === 0 ? "0 ms" : `${Math.max(1, Math.round(ms * 1000))} µs`;
	}
	if (ms < 1000) {
		return `${ms < 10 ? ms.toFixed(1).replace(".0", "") : Math.round(ms)} ms`;
	}
	const s = ms / 1000;
	if (s < 60) {
		return `${s < 10 ? s.toFixed(1).replace(".0", "") : Math.round(s)} s`;
	}
	const parts: [number, string][] = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
	let left = Math.round(s);
	const out: string[] = [];
	for (const [size, unit] of parts) {
		const n = Math.floor(left / size);
		left -= n * size;
		if (n > 0 || out.length > 0) {
			out.push(`${n}${unit}`);
		}
		if (out.length === 2) {
			break;
		}
	}
	return out.filter((p) => !/^0[a-z]/.test(p)).join(" ");
}

export function micros(us: number | null): string {
	return us === null ? "–" : duration(us / 1000);
}

export function size(bytes: number): string {
	if (bytes < 1024) {
		return `${bytes} B`;
	}
	for (const [n, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"]] as const) {
		if (bytes >= n) {
			return `${(bytes / n).toFixed(1)} ${unit}`;
		}
	}
	return `${(bytes / 1024).toFixed(1)} KiB`;
}

const clock = new Intl.DateTimeFormat("sv-SE", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const full = new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** time writes a moment: the time of day if it is today, else with its date. */
export function time(ms: number | null): string {
	if (ms === null || ms === 0) {
		return "–";
	}
	const d = new Date(ms);
	return d.toDateString() === new Date().toDateString() ? clock.format(d) : full.format(d);
}

export function exactTime(ms: number): string {
	return full.format(new Date(ms));
}

/** ago writes how long a moment is past, or ahead. */
export function ago(ms: number | null, now = Date.now()): string {
	if (ms === null || ms === 0) {
		return "–";
	}
	const past = now - ms;
	return past >= 0 ? `${duration(past < 1000 ? 0 : past)} ago`.replace("0 ms ago", "just now") : `in ${duration(-past)}`;
}

const stamp = /\d{4}-\d\d-\d\dT[\d:.]+Z/g;

/** spoken writes a sentence of the broker with the moments in it as people read them. */
export function spoken(sentence: string): string {
	return sentence.replace(stamp, (s) => `${time(Date.parse(s))} (${ago(Date.parse(s))})`);
}

/** stamped reports whether a sentence says when. */
export function stamped(sentence: string): boolean {
	return spoken(sentence) !== sentence;
}

/** plural writes a number with its noun. */
export function plural(n: number, one: string, many = one + "s"): string {
	return `${count(n)} ${n === 1 ? one : many}`;
}

const plain = /^[A-Za-z0-9_@%+=:,./*?#~^[\]{}<>|&;!$-]+$/;

/** unseen are characters that show nothing, or change the order of others: in a line to copy they are written as bytes. */
const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u00a0\u3164]/u;

/** redisLine writes a command as it is typed into redis-cli. */
export function redisLine(words: Bytes[]): string {
	return words.map(redisWord).join(" ");
}

const hex = (byte: number) => "\\x" + byte.toString(16).padStart(2, "0");

function redisWord(word: Bytes): string {
	if (typeof word === "string" && plain.test(word)) {
		return word;
	}
	let out = "";
	for (const c of typeof word === "string" ? word : Array.from(raw(word), (b) => String.fromCharCode(b))) {
		const code = c.codePointAt(0) ?? 0;
		if (c === "\\" || c === '"') {
			out += "\\" + c;
		} else if (c === "\n") {
			out += "\\n";
		} else if (c === "\r") {
			out += "\\r";
		} else if (c === "\t") {
			out += "\\t";
		} else if (typeof word !== "string" && (code < 0x20 || code > 0x7e)) {
			out += hex(code);
		} else if (unseen.test(c)) {
			out += Array.from(raw(c), hex).join("");
		} else {
			out += c;
		}
	}
	return `"${out}"`;
}

/** filaLine writes a command as it is typed into a shell. */
export function filaLine(words: Bytes[]): string {
	return "fila call " + words.map(shellWord).join(" ");
}

function shellWord(word: Bytes): string {
	if (typeof word === "string" && /^[A-Za-z0-9_@%+=:,./-]+$/.test(word)) {
		return word;
	}
	if (typeof word === "string" && !unseen.test(word)) {
		return "'" + word.replaceAll("'", `'\\''`) + "'";
	}
	let out = "";
	for (const b of raw(word)) {
		const c = String.fromCharCode(b);
		out += c === "\\" || c === "'" ? "\\" + c : b === 10 ? "\\n" : b < 0x20 || b > 0x7e ? hex(b) : c;
	}
	return `$'${out}'`;
}
