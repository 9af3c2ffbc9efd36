// What the user may do. The broker decides; this only says beforehand what it will refuse, so that
// an action that is not allowed is there, disabled, with the right that is missing.

import type { Bytes, Session } from "./api";
import { text } from "./value";

/** Access is what a command needs of a queue. */
export type Access = "consume" | "produce" | "both" | "either";

/** Need is what an action needs: a command, as "FILA.QUEUE PAUSE", and a queue or a topic, or one of each. */
export interface Need {
	command: string;
	queue?: Bytes;
	access?: Access;
	and?: { queue: Bytes; access: Access };
}

/** missing says which right a user lacks for something; "" if none. */
export function missing(session: Session, need: Need): string {
	const name = need.command.toLowerCase().replace(" ", "|");
	if (session.commands[name] === undefined) {
		return `needs a broker that has ${need.command}`;
	}
	if (!session.commands[name]) {
		return `needs the right +${name}`;
	}
	if (need.queue !== undefined && need.access !== undefined) {
		const queue = text(need.queue);
		const rights = queueRights(session.queues, queue);
		const lacks: string[] = [];
		if (!rights.consume && (need.access === "both" || need.access === "consume")) {
			lacks.push("consume from");
		}
		if (!rights.produce && (need.access === "both" || need.access === "produce")) {
			lacks.push("produce to");
		}
		if (need.access === "either" && !rights.consume && !rights.produce) {
			lacks.push("consume from or produce to");
		}
		if (lacks.length > 0) {
			return `needs the right to ${lacks.join(" and ")} ${queue}`;
		}
	}
	return need.and ? missing(session, { command: need.command, ...need.and }) : "";
}

/** queueRights reads the patterns of a user, as in ACL GETUSER. */
export function queueRights(patterns: string, queue: string): { consume: boolean; produce: boolean } {
	const rights = { consume: false, produce: false };
	for (const rule of patterns.split(" ")) {
		const m = /^(?:%(RW|WR|R|W))?~(.*)$/s.exec(rule);
		if (m && globMatch(m[2] ?? "", queue)) {
			const which = m[1] ?? "RW";
			rights.consume ||= which.includes("R");
			rights.produce ||= which.includes("W");
		}
	}
	return rights;
}

/** globMatch matches a pattern of Redis: * ? [a-z] [^a] and \ before a character. */
export function globMatch(pattern: string, s: string): boolean {
	let p = 0;
	let i = 0;
	let star = -1;
	let mark = 0;
	while (i < s.length) {
		const step = p < pattern.length && pattern[p] !== "*" ? one(pattern, p, s[i] ?? "") : 0;
		if (pattern[p] === "*") {
			star = p++;
			mark = i;
		} else if (step > 0) {
			p += step;
			i++;
		} else if (star >= 0) {
			p = star + 1;
			i = ++mark;
		} else {
			return false;
		}
	}
	while (pattern[p] === "*") {
		p++;
	}
	return p === pattern.length;
}

/** one matches one character and returns how much of the pattern it took; 0 if it does not match. */
function one(pattern: string, p: number, c: string): number {
	switch (pattern[p]) {
		case "?":
			return 1;
		case "\\":
			return p + 1 < pattern.length ? (pattern[p + 1] === c ? 2 : 0) : c === "\\" ? 1 : 0;
		case "[":
			break;
		default:
			return pattern[p] === c ? 1 : 0;
	}
	let at = p + 1;
	const not = pattern[at] === "^";
	if (not) {
		at++;
	}
	let found = false;
	while (at < pattern.length && pattern[at] !== "]") {
		if (pattern[at] === "\\" && at + 1 < pattern.length) {
			at++;
			found ||= pattern[at] === c;
		} else if (pattern[at + 1] === "-" && at + 2 < pattern.length) {
			const [a = "", b = ""] = [pattern[at], pattern[at + 2]].sort();
			found ||= a <= c && c <= b;
			at += 2;
		} else {
			found ||= pattern[at] === c;
		}
		at++;
	}
	return found !== not ? at - p + 1 : 0;
}
